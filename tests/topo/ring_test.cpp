// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The widest ring through some ranks of a machine, its picture, and all_reduce along it: proved, tested with mutants,
// and in rank order. tests/comm/on_route_test.cpp runs it with threads; tests/topo/rings_test.cpp tests the search.
#include <collx/algo/on_route.hpp>
#include <collx/algo/ring.hpp>
#include <collx/sched/facts.hpp>
#include <collx/sched/verify_members.hpp>
#include <collx/topo/drawing.hpp>
#include <collx/topo/machines.hpp>
#include <collx/topo/member_order.hpp>
#include <collx/topo/rings.hpp>
#include <collx/topo/traffic.hpp>

#include <algorithm>
#include <fstream>
#include <functional>
#include <numeric>
#include <sstream>

#include <catch2/catch.hpp>

using namespace collx;
using topo::graph;
using topo::site_type;
using list = std::vector<int>;

namespace {

topo::ring widest_ring(const graph& g, const list& members) {
    topo::ring_options o;
    o.most_rings = 1;
    o.once = true;
    const topo::ring_set set = topo::find_rings(g, members, o);
    return set.rings.empty() ? topo::ring{} : set.rings[0];
}
// The ranks at these sites; ranks are the numbers of GPUs.
list ranks_of(const graph& g, const list& sites) {
    const list gpus = g.all(site_type::gpu);
    list ranks;
    for (const int s : sites) ranks.push_back(static_cast<int>(std::find(gpus.begin(), gpus.end(), s) - gpus.begin()));
    return ranks;
}
list gpus_of(const graph& g, const list& ranks) {
    const list gpus = g.all(site_type::gpu);
    list sites;
    for (const int r : ranks) sites.push_back(gpus[static_cast<std::size_t>(r)]);
    return sites;
}

sched::schedule on(const relay_route& route, int n) {
    return sched::record_all(algo::on_route<algo::ring_all_reduce>{route}, n);
}
list by_position(const relay_route& r) {
    list members;
    for (int p = 0; p < r.view().members(); ++p) members.push_back(r.view().member(p));
    return members;
}
// The number of messages between ranks without an NVLink of at least this rate.
int off_the_links(const sched::schedule& s, const graph& g, double bytes_per_s) {
    int count = 0;
    for (int r = 0; r < s.ranks; ++r)
        for (const auto& strand : s.programs[static_cast<unsigned>(r)].strands)
            for (const auto& st : strand)
                if ((st.what & sched::send) != 0) {
                    const topo::path p = find_path(g, gpus_of(g, {r})[0], gpus_of(g, {st.peer_to})[0]);
                    count += p.type != topo::path_class::nvl || p.bytes_per_s < bytes_per_s;
                }
    return count;
}

const list even{0, 2, 4, 6};

} // namespace

TEST_CASE("the ring through 0, 2, 4 and 6 is twice as wide through their neighbours") {
    const graph g = topo::dgx_1v();
    const topo::ring r = widest_ring(g, gpus_of(g, even));
    CHECK(topo::to_text(g, r) == "GPU0 -> GPU4 -> (GPU7) -> GPU6 -> (GPU5) -> (GPU1) -> GPU2 -> (GPU3) -> GPU0");
    for (const topo::path& hop : r.hops) CHECK(hop.bytes_per_s == 50e9);
    topo::ring_options alone;
    alone.most_rings = 1;
    alone.limits.relays = 0;
    CHECK(find_rings(g, gpus_of(g, even), alone).bytes_per_s == 25e9);

    const std::string svg = topo::to_svg(g, {r});
    const auto count = [&](const char* text) {
        int n = 0;
        for (std::size_t at = 0; (at = svg.find(text, at)) != std::string::npos; ++at) ++n;
        return n;
    };
    CHECK(count("<rect") == g.size());
    CHECK(count("#ffd8a8") == 4); // members
    CHECK(count("#d9480f") == 8); // links of the ring
    CHECK(count("#c8c8c8") == g.arcs() / 2);
    std::ifstream file(COLLX_SOURCE_DIR "/docs/design/cube_mesh_ring.svg");
    std::stringstream documented;
    documented << file.rdbuf();
    CHECK(documented.str() == svg);
}

TEST_CASE("names of any letters are drawn") {
    graph g;
    const std::string name = "a<b>&\"" + std::string(300, 'x');
    g.link(g.add({name, site_type::gpu}), g.add({"1", site_type::gpu}), topo::link_type::nvlink, {25e9});
    CHECK_THAT(topo::to_svg(g, {}), Catch::Contains(">a&lt;b&gt;&amp;&quot;" + std::string(300, 'x') + "</text>\n"));
    CHECK_THAT(topo::to_dot(g), Catch::Contains("a<b>&\\\"x"));
}

TEST_CASE("where members are not beside a card, the ring leaves the node through a neighbour") {
    const graph g = on_rails(topo::dgx_1v(), 2, 12.5);
    const list members{0, 2, 4, 6, 8, 10, 12, 14};
    topo::ring_options o;
    o.once = true;
    const topo::ring_set set = topo::find_rings(g, gpus_of(g, members), o);
    CHECK(set.total() == 50e9);
    for (std::size_t k = 0; k < set.rings.size(); ++k) {
        const list order = ranks_of(g, ranks_along(g, set.rings[k]));
        CHECK(order.size() > members.size());
        const relay_route route(16, order, members);
        const auto s = on(route, 16);
        CHECK(sched::verify_members(s, by_position(route)).ok());
        // Messages between nodes are sent by the GPUs next to card k, and of these by the one that is not a member.
        for (int rank = 0; rank < 16; ++rank)
            for (const auto& strand : s.programs[static_cast<unsigned>(rank)].strands)
                for (const auto& st : strand)
                    if ((st.what & sched::send) != 0 && st.peer_to / 8 != rank / 8)
                        CHECK(rank % 8 == 2 * static_cast<int>(k) + 1);
    }
    REQUIRE(set.rings.size() == 4);

    graph apart;
    apart.add({"a", site_type::gpu});
    apart.add({"b", site_type::gpu});
    CHECK(topo::to_text(apart, widest_ring(apart, {0, 1})) == "no ring");
}

TEST_CASE("all_reduce on a route is the members' ring, whatever the route") {
    int routes = 0;
    list order(6);
    std::iota(order.begin(), order.end(), 0);
    do {
        for (const unsigned set : {0b111111u, 0b101010u, 0b000011u, 0b100000u, 0b011110u}) {
            list members;
            for (int r = 0; r < 6; ++r)
                if ((set >> r & 1) != 0) members.push_back(r);
            const relay_route route(6, order, members);
            const auto s = on(route, 6);
            const auto v = sched::verify_members(s, by_position(route));
            if (!v.ok()) FAIL("problem " << static_cast<int>(v.what) << " at rank " << v.rank << ", set " << set);
            ++routes;
        }
    } while (std::next_permutation(order.begin() + 1, order.end()));
    CHECK(routes == 120 * 5);

    const graph g = topo::dgx_1v();
    const relay_route route(8, ranks_of(g, ranks_along(g, widest_ring(g, gpus_of(g, even)))), even);
    CHECK(off_the_links(on(route, 8), g, 50e9) == 0);
    CHECK(off_the_links(sched::record_all(algo::ring_all_reduce{}, 8), g, 50e9) > 0);
    CHECK(sched::verify_members(on(route, 8), by_position(route)).ok());
    CHECK(sched::record(algo::on_route<algo::ring_all_reduce>{route}, 3, 8).strands[0].size() == 2 * 3); // passes on
    const relay_route without_3(8, {0, 2, 6, 4}, even);
    CHECK(sched::record(algo::on_route<algo::ring_all_reduce>{without_3}, 3, 8).strands[0].empty()); // takes no part
}

TEST_CASE("the proof refuses what is wrong among members or on the way") {
    const relay_route route(5, {0, 4, 1, 2, 3}, {0, 1, 2});
    const auto s = on(route, 5);
    const list members = by_position(route);
    CHECK(members == list{0, 1, 2});
    REQUIRE(sched::verify_members(s, members).ok());
    int mutants = 0;
    const auto refused = [&](const std::function<void(sched::schedule&)>& change) {
        auto mutant = s;
        change(mutant);
        sched::survey(mutant);
        CHECK(!sched::verify_members(mutant, members).ok());
        ++mutants;
    };
    for (unsigned r = 0; r < 5; ++r)
        for (unsigned k = 0; k < s.programs[r].strands[0].size(); ++k) {
            refused([&](auto& m) { // a step is missing
                auto& steps = m.programs[r].strands[0];
                steps.erase(steps.begin() + k);
            });
            refused([&](auto& m) { // the wrong peer
                auto& st = m.programs[r].strands[0][k];
                if ((st.what & sched::send) != 0) st.peer_to = (st.peer_to + 1) % 5;
                else st.peer_from = (st.peer_from + 1) % 5;
            });
        }
    refused([](auto& m) { // keeps what it should only pass on
        m.programs[4].strands[0][0].what |= sched::copy;
        m.programs[4].strands[0][0].dst.where = sched::place::out;
    });
    refused([](auto& m) { std::swap(m.programs[0].strands[0][0], m.programs[0].strands[0][1]); });
    refused([](auto& m) { m.programs[4].strands[0][0].dst.chunks.count = 2; });
    CHECK(mutants > 20);
}

namespace {

topo::member_order ordered(const std::vector<std::pair<const graph*, list>>& hosts) {
    std::vector<topo::standing> members;
    std::vector<const graph*> machines;
    for (const auto& [g, gpus] : hosts) {
        for (const int gpu : gpus)
            members.push_back(
                {static_cast<int>(machines.size()), topo::places_of_ranks(*g)[static_cast<std::size_t>(gpu)]});
        machines.push_back(g);
    }
    return topo::order_members(members, machines);
}

} // namespace

TEST_CASE("members stand along the ring of their host, one way and the other") {
    const graph mesh = topo::dgx_1v(), switched = topo::dgx_h100(), plain = topo::workstation(4);
    const topo::member_order seed = ordered({{&mesh, even}});
    CHECK(seed.along == list{0, 1, 3, 2});
    REQUIRE(seed.rings.size() == 2);
    CHECK(seed.rings[1] == list{2, 3, 1, 0});
    CHECK(seed.ring_s == Approx(2 * 3 / 4. / 50e9));
    CHECK(seed.direct_s > 2 * seed.ring_s); // 2-4 and 0-6 cross between the sockets
    CHECK(seed.has_rails);
    const topo::member_order four = ordered({{&switched, {0, 1, 2, 3}}});
    CHECK(four.rings.size() == 1); // the other direction loads the same links
    CHECK(four.ring_s == Approx(four.direct_s));
    CHECK_FALSE(ordered({{&plain, {0, 1, 2, 3}}}).has_rails);
    CHECK(ordered({{&mesh, {0, 0, 2}}}).rings.empty()); // two ranks at one GPU
    CHECK(ordered({{&mesh, {5}}}).along == list{0});

    graph apart;
    for (const char* name : {"GPU0", "GPU1", "GPU2"}) apart.add({name, site_type::gpu});
    const topo::member_order none = ordered({{&apart, {2, 0, 1}}});
    CHECK((!none.is_complete && none.rings.empty()));
    CHECK(none.along == list{1, 2, 0}); // ordered by their sites
}

TEST_CASE("ranks of one place on two hosts have cards of one rail") {
    const graph mesh = topo::dgx_1v(), other = topo::dgx_a100();
    // The second host's members in another order, and other GPUs next to the same cards.
    CHECK(ordered({{&mesh, even}, {&mesh, {6, 4, 2, 0}}}).along == list{0, 1, 3, 2, 7, 6, 4, 5});
    CHECK(ordered({{&mesh, even}, {&mesh, {7, 5, 3, 1}}}).along == list{0, 1, 3, 2, 7, 6, 4, 5});
    const topo::member_order o = ordered({{&mesh, {0, 2}}, {&other, {1, 0}}});
    CHECK(o.along == list{0, 1, 3, 2});
    graph turned = mesh; // cabled in reverse: its ring begins at GPU 6
    for (const int c : turned.all(site_type::nic)) turned.at(c).rail = 3 - turned.at(c).rail;
    CHECK(ordered({{&mesh, even}, {&turned, even}}).along == list{0, 1, 3, 2, 7, 6, 4, 5});
    // Two GPUs that are equally near to two cards get one each.
    const std::vector<int> cards = topo::own_cards(other);
    std::vector<int> rails;
    for (const int gpu : other.all(site_type::gpu))
        rails.push_back(other.at(cards[static_cast<std::size_t>(gpu)]).rail);
    CHECK(rails == list{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("hosts are joined at their rails, and messages leave by their senders' cards") {
    graph mesh = topo::dgx_1v(), other = topo::dgx_a100();
    for (graph* g : {&mesh, &other})
        for (const int c : g->all(site_type::nic)) g->at(c).port_bytes_per_s = 12.5e9;
    const topo::joined_hosts j = topo::join_hosts({&mesh, &other});
    CHECK(j.whole.all(site_type::network_switch).size() == 4); // the second host's other four have no counterpart
    CHECK(j.whole.name(j.first[1]) == "h1." + other.name(0));
    CHECK(topo::join_hosts({&mesh}).whole.find("GPU0") >= 0);
    CHECK(topo::content_hash(mesh) != topo::content_hash(other));
    CHECK(topo::content_hash(mesh) == topo::content_hash(topo::dgx_1v())); // its cards have the same ports
    graph faster = mesh;
    faster.at(faster.all(site_type::nic)[0]).port_bytes_per_s = 25e9;
    CHECK(topo::content_hash(mesh) != topo::content_hash(faster));

    graph unknown = mesh; // cards of unknown rails, or without a rate: nothing says that they reach one another
    for (const int c : unknown.all(site_type::nic)) unknown.at(c).rail = c % 2 == 0 ? -1 : 0;
    for (const int c : unknown.all(site_type::nic)) unknown.at(c).port_bytes_per_s = 0;
    const graph none = topo::join_hosts({&unknown, &unknown}).whole;
    CHECK(none.all(site_type::network_switch).empty());
    for (const int c : unknown.all(site_type::nic)) {
        unknown.at(c).rail = -1;
        unknown.at(c).port_bytes_per_s = 12.5e9;
    }
    CHECK(topo::join_hosts({&unknown, &unknown}).whole.find("rail-1") < 0);

    const topo::joined_hosts two = topo::join_hosts({&mesh, &mesh});
    std::vector<int> own = topo::own_cards(mesh);
    for (const int c : topo::own_cards(mesh)) own.push_back(c < 0 ? -1 : two.first[1] + c);
    own.resize(static_cast<std::size_t>(two.whole.size()), -1);
    const auto way = [&](const char* a, const char* b) {
        return topo::to_text(two.whole,
                             topo::way_of_message(two.whole, own, two.whole.require(a), two.whole.require(b)));
    };
    CHECK_THAT(way("h0.GPU2", "h1.GPU3"), Catch::Contains("h0.NIC1 -network 12.5- rail1 -network 12.5- h1.NIC1"));
    CHECK_THAT(way("h0.GPU2", "h1.GPU6"),
               Catch::Contains("-socket link") && Catch::Contains("rail3") && Catch::Contains("h0.NIC3"));
    CHECK(way("h0.GPU0", "h0.GPU2") == "h0.GPU0 -NVLink 25- h0.GPU2");
    CHECK_THAT(way("h0.GPU0", "h0.GPU6"), !Catch::Contains("NVLink")); // GPUs do not pass messages on
}

TEST_CASE("what is no route fits no communicator") {
    CHECK(relay_route(4, {0, 2, 1}, {0, 1}).view().fits(4));
    CHECK(!relay_route(4, {0, 2, 1}, {0, 1}).view().fits(5));
    CHECK(!relay_route(4, {0, 2, 2, 1}, {0, 1}).view().fits(4)); // a rank twice
    CHECK(!relay_route(4, {0, 4, 1}, {0, 1}).view().fits(4));    // not a rank
    CHECK(!relay_route(4, {0, 2}, {0, 1}).view().fits(4));       // a member is missing
    CHECK(!relay_route(4, {0, 2}, {}).view().fits(4));
    CHECK(!route_view{}.fits(1));
    CHECK(relay_route(4, {0, 2, 1}, {0, 1}).view().hash() != relay_route(4, {0, 2, 1}, {0, 1, 2}).view().hash());
}
