// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Machines, the widest ring through some of their processors, its picture, and all_reduce along it: proved, with
// mutants, and in rank order. Threads run it in tests/comm/on_route_test.cpp.
#include <collx/algo/on_route.hpp>
#include <collx/algo/ring.hpp>
#include <collx/sched/facts.hpp>
#include <collx/sched/verify_members.hpp>
#include <collx/topo/drawing.hpp>
#include <collx/topo/machine.hpp>
#include <collx/topo/ring.hpp>

#include <algorithm>
#include <fstream>
#include <functional>
#include <numeric>
#include <sstream>

#include <catch2/catch.hpp>

using namespace collx;
using topo::machine;
using list = std::vector<int>;

namespace {

// What is wrong with a ring, in words.
std::string wrong(const machine& m, const topo::ring& r, const list& members) {
    for (const int p : members)
        if (std::count(r.sites.begin(), r.sites.end(), p) != 1) return "member " + m.name(p);
    double narrowest = 1e9;
    for (std::size_t i = 0; i < r.sites.size(); ++i) {
        const int p = r.sites[i];
        if (m.is_processor(p) && std::count(r.sites.begin(), r.sites.end(), p) != 1) return "twice " + m.name(p);
        narrowest = std::min(narrowest, m.width(p, r.sites[(i + 1) % r.sites.size()]));
    }
    return narrowest == r.width && narrowest > 0 ? "" : "width " + std::to_string(narrowest);
}

// The width and length of the best ring, by trying all orders of all sets of sites. Processors only.
std::pair<double, int> best_by_trying(const machine& m, const list& members) {
    std::pair<double, int> best{0, 0}; // length negative: longer is worse
    for (unsigned set = 0; set < 1u << m.size(); ++set) {
        list sites;
        for (int p = 0; p < m.size(); ++p)
            if ((set >> p & 1) != 0) sites.push_back(p);
        if (sites.size() < 2 || !std::all_of(members.begin(), members.end(), [&](int p) { return set >> p & 1; }))
            continue;
        do {
            double narrowest = 1e9;
            for (std::size_t i = 0; i < sites.size(); ++i)
                narrowest = std::min(narrowest, m.width(sites[i], sites[(i + 1) % sites.size()]));
            best = std::max(best, {narrowest, -static_cast<int>(sites.size())});
        } while (std::next_permutation(sites.begin() + 1, sites.end()));
    }
    return best;
}

sched::schedule on(const relay_route& route, int n) {
    return sched::record_all(algo::on_route<algo::ring_all_reduce>{route}, n);
}
list by_position(const relay_route& r) {
    list members;
    for (int p = 0; p < r.view().members(); ++p) members.push_back(r.view().member(p));
    return members;
}
// Messages between ranks without a link as wide as the ring, where rank r is at site r.
int off_the_links(const sched::schedule& s, const machine& m, double width) {
    int count = 0;
    for (int r = 0; r < s.ranks; ++r)
        for (const auto& strand : s.programs[static_cast<unsigned>(r)].strands)
            for (const auto& st : strand) count += (st.what & sched::send) != 0 && m.width(r, st.peer_to) < width;
    return count;
}

const list even{0, 2, 4, 6};

} // namespace

TEST_CASE("a hybrid cube mesh has six links at each processor, and a card beside it") {
    const machine m = topo::hybrid_cube_mesh();
    REQUIRE(m.size() == 12);
    for (int p = 0; p < 8; ++p) {
        double sum = 0;
        int cards = 0;
        for (const auto& [other, width] : m.links(p)) m.is_processor(other) ? void(sum += width) : void(++cards);
        CHECK(sum == 6 * 20);
        CHECK(cards == 1);
        CHECK(m.width(p, (p + 4) % 8) > 0); // its mirror
    }
    CHECK(m.width(0, 5) == 0);
    CHECK(m.width(8, 1) == 12);
    const machine two = topo::rails(m, 2);
    CHECK(two.size() == 24);
    CHECK(two.width(8, 20) == 12);
    CHECK(two.width(8, 21) == 0);
}

TEST_CASE("the ring through 0, 2, 4 and 6 is twice as wide through their neighbours") {
    const machine m = topo::hybrid_cube_mesh();
    machine alone; // the four by themselves
    for (int i = 0; i < 4; ++i) alone.add(std::to_string(2 * i));
    for (int i = 0; i < 4; ++i)
        for (int k = 0; k < i; ++k)
            if (m.width(2 * i, 2 * k) > 0) alone.link(i, k, m.width(2 * i, 2 * k));
    CHECK(topo::widest_ring(alone, {0, 1, 2, 3}).width == 20);

    const topo::ring r = topo::widest_ring(m, even);
    CHECK(r.width == 40);
    CHECK(wrong(m, r, even) == "");
    CHECK(topo::to_text(m, r, even) == "0 -40- (3) -40- 2 -40- (1) -40- (5) -40- 6 -40- (7) -40- 4 -40- 0");
    const std::string svg = topo::to_svg(m, r, even);
    const auto count = [&](const char* text) {
        int n = 0;
        for (std::size_t at = 0; (at = svg.find(text, at)) != std::string::npos; ++at) ++n;
        return n;
    };
    CHECK(count("<circle") == 12);
    CHECK(count("#ffd8a8") == 4);
    CHECK(count("#d9480f") == 8);
    CHECK(count("#c8c8c8") == 8 + 8 + 8); // double, single, to cards
    std::ifstream file(COLLX_SOURCE_DIR "/docs/design/cube_mesh_ring.svg");
    std::stringstream documented;
    documented << file.rdbuf();
    CHECK(documented.str() == svg);
}

TEST_CASE("names of any length and letters are drawn whole") {
    machine m;
    const std::string name = "a<b>&" + std::string(300, 'x');
    m.link(m.add(name), m.add("1"), 2.5);
    const topo::ring r{{0, 1}, 2.5};
    const std::string svg = topo::to_svg(m, r, {0, 1});
    CHECK_THAT(svg, Catch::Contains(">a&lt;b&gt;&amp;" + std::string(300, 'x') + "</text>\n"));
    CHECK_THAT(svg, Catch::Contains("stroke-width=\"1.5\"/>"));
}

TEST_CASE("no ring is wider, and none as wide is shorter") {
    machine m; // without cards
    const machine whole = topo::hybrid_cube_mesh();
    for (int p = 0; p < 7; ++p) m.add(std::to_string(p)); // one has failed
    for (int p = 0; p < 7; ++p)
        for (const auto& [other, width] : whole.links(p))
            if (p < other && other < 7) m.link(p, other, width);
    int rings = 0;
    for (unsigned set = 0; set < 128; ++set) {
        list members;
        for (int p = 0; p < 7; ++p)
            if ((set >> p & 1) != 0) members.push_back(p);
        if (members.size() < 2) continue;
        const topo::ring r = topo::widest_ring(m, members);
        const auto [width, length] = best_by_trying(m, members);
        CHECK(r.width == width);
        CHECK(static_cast<int>(r.sites.size()) == -length);
        if (width > 0) CHECK(wrong(m, r, members) == "");
        ++rings;
    }
    CHECK(rings == 128 - 8);
}

TEST_CASE("where members are not beside a card, the ring leaves the node through a neighbour") {
    machine node; // 0 - 1 - 2 in a triangle, cards beside 1 and 2 only
    for (int p = 0; p < 3; ++p) node.add(std::to_string(p));
    node.link(0, 1, 40), node.link(1, 2, 40), node.link(0, 2, 40);
    for (const int beside : {1, 2}) node.link(node.add("card", topo::site_kind::card), beside, 12);
    const machine m = topo::rails(node, 2);
    const list members{0, 5}; // site 0 of both nodes
    const topo::ring r = topo::widest_ring(m, members);
    CHECK(wrong(m, r, members) == "");
    list processors;
    for (const int p : r.sites)
        if (m.is_processor(p)) processors.push_back(p % 5 + p / 5 * 3); // ranks: three a node
    CHECK(processors.size() == 6);
    const relay_route route(6, processors, {0, 3});
    CHECK(sched::verify_members(on(route, 6), by_position(route)).ok());
    // What crosses between the nodes is sent by those who are beside a card.
    const auto s = on(route, 6);
    for (int rank = 0; rank < 6; ++rank)
        for (const auto& st : s.programs[static_cast<unsigned>(rank)].strands[0])
            if ((st.what & sched::send) != 0 && st.peer_to / 3 != rank / 3) CHECK(rank % 3 != 0);

    machine apart;
    apart.add("a"), apart.add("b");
    CHECK(topo::widest_ring(apart, {0, 1}).sites.empty());
    CHECK(topo::to_text(apart, {}, {0, 1}) == "no ring");
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

    const machine m = topo::hybrid_cube_mesh();
    const topo::ring r = topo::widest_ring(m, even);
    const relay_route route(8, r.sites, even);
    CHECK(off_the_links(on(route, 8), m, r.width) == 0);
    CHECK(off_the_links(sched::record_all(algo::ring_all_reduce{}, 8), m, r.width) > 0);
    CHECK(sched::verify_members(on(route, 8), by_position(route)).ok());
    CHECK(sched::record(algo::on_route<algo::ring_all_reduce>{route}, 3, 8).strands[0].size() == 2 * 3); // passes on
    CHECK(sched::record(algo::on_route<algo::ring_all_reduce>{relay_route(8, {0, 2, 6, 4}, even)}, 3, 8)
              .strands[0]
              .empty()); // takes no part
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
            refused([&](auto& m) { // to or from somebody else
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

TEST_CASE("what is no route fits nobody") {
    CHECK(relay_route(4, {0, 2, 1}, {0, 1}).view().fits(4));
    CHECK(!relay_route(4, {0, 2, 1}, {0, 1}).view().fits(5));
    CHECK(!relay_route(4, {0, 2, 2, 1}, {0, 1}).view().fits(4)); // twice
    CHECK(!relay_route(4, {0, 4, 1}, {0, 1}).view().fits(4));    // no rank
    CHECK(!relay_route(4, {0, 2}, {0, 1}).view().fits(4));       // a member is missing
    CHECK(!relay_route(4, {0, 2}, {}).view().fits(4));
    CHECK(!route_view{}.fits(1));
    CHECK(relay_route(4, {0, 2, 1}, {0, 1}).view().hash() != relay_route(4, {0, 2, 1}, {0, 1, 2}).view().hash());
}
