// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The simulator compared with known answers: formulas, shares of links computed by hand, bytes counted from the
// recording, and bounds. Faults end with an error that names the rank.
#include <collx/algo/algorithms.hpp>
#include <collx/algo/multicast_two_shot.hpp>
#include <collx/sim/simulate.hpp>
#include <collx/topo/clusters.hpp>
#include <collx/topo/machines.hpp>
#include <collx/topo/max_flow.hpp>
#include <collx/topo/rings.hpp>

#include <random>

#include <catch2/catch.hpp>

using namespace collx;
using Catch::Contains;

namespace {

// n CPUs on one network switch, each with a link of `rate` bytes/ns and half of the latency in each direction.
topo::graph star(int n, double rate, double latency_ns) {
    topo::graph g;
    for (int r = 0; r < n; ++r) g.add({"C" + std::to_string(r), topo::site_type::cpu});
    const int middle = g.add({"switch", topo::site_type::network_switch});
    for (int r = 0; r < n; ++r) g.link(r, middle, topo::link_type::network, {rate * 1e9, latency_ns / 2});
    return g;
}
std::vector<int> first(int n) {
    std::vector<int> sites;
    for (int r = 0; r < n; ++r) sites.push_back(r);
    return sites;
}
template <class A>
sim::result run(const A& a, const topo::graph& g, int n, const sim::options& o, const sim::cost_model& m = {},
                int ranks_of_order = 0) {
    sim::fabric f(g, first(n));
    return sim::simulate(sched::record_all(a, ranks_of_order > 0 ? ranks_of_order : n), f, m, o);
}
sim::options of_bytes(double bytes, int pieces = 1, int depth = 8) {
    sim::options o;
    o.bytes = bytes;
    o.pieces = pieces;
    o.depth = depth;
    return o;
}

// Rank 0 sends chunk k to rank k + 1, one strand each, all concurrently.
struct fan {
    static constexpr collective op = collective::broadcast;
    [[maybe_unused]] static constexpr const char* name = "fan";
    static constexpr int chunks(int n) { return n; }
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        for (int k = 1; k < n; ++k)
            if (ex.strand(k - 1)) {
                if (r == 0) ex.step(sched::send, sched::to(k), sched::in(k));
                if (r == k) ex.step(sched::recv | sched::copy, sched::from(0), sched::out(k));
            }
    }
};

} // namespace

TEST_CASE("one message takes alpha + n beta, and each cost of the model is charged once") {
    const topo::graph g = star(2, 10, 500);
    CHECK(run(algo::binomial_broadcast{}, g, 2, of_bytes(1000)).time_ns == 500 + 100);
    sim::cost_model m;
    m.call_ns = 7000;
    m.hop.network_ns = 30;
    m.overhead_ns = 11;
    m.wire_bytes_per_byte = 2;
    CHECK(run(algo::binomial_broadcast{}, g, 2, of_bytes(1000), m).time_ns == 7000 + 11 + 500 + 30 + 200);
    // payload: half of 4 bytes/ns
    m.with_link_latency = false;
    m.most_bytes_per_s = 2e9;
    CHECK(run(algo::binomial_broadcast{}, g, 2, of_bytes(1000), m).time_ns == 7000 + 11 + 30 + 500);
    sim::cost_model reducing;
    reducing.reduce_ns_per_byte = 0.25;
    CHECK(run(algo::binomial_reduce{}, g, 2, of_bytes(1000), reducing).time_ns == 500 + 100 + 250);
}

TEST_CASE("a ring all_reduce takes 2(n-1)(alpha + S/n beta) exactly") {
    for (const int n : {2, 3, 5, 8, 33}) {
        const double bytes = 1000.0 * n;
        const sim::result r = run(algo::ring_all_reduce{}, star(n, 10, 300), n, of_bytes(bytes));
        CHECK(r.time_ns == 2 * (n - 1) * (300 + 100));
        CHECK(r.messages == 2 * (n - 1) * n);
    }
}

TEST_CASE("a chain in k pieces: latency passes while pieces follow, or holds each where a channel has one slot") {
    const int p = 6, pieces = 10, k = pieces * algo::chain_broadcast{}.chunks(p);
    const double piece = 100, alpha = 300;
    const topo::graph g = star(p, 10, alpha);
    CHECK(run(algo::chain_broadcast{}, g, p, of_bytes(1000 * k, pieces, 64)).time_ns ==
          (p - 1) * (alpha + piece) + (k - 1) * piece);
    sim::cost_model held; // Hockney's model: alpha occupies the sender
    held.overhead_ns = alpha;
    CHECK(run(algo::chain_broadcast{}, star(p, 10, 0), p, of_bytes(1000 * k, pieces, 64), held).time_ns ==
          (p - 2 + k) * (alpha + piece));
    CHECK(run(algo::chain_broadcast{}, g, p, of_bytes(1000 * k, pieces, 1)).time_ns == (p - 2 + k) * (alpha + piece));
}

TEST_CASE("a binomial broadcast of 2^k ranks takes k (alpha + n beta) where alpha is the sender's") {
    sim::cost_model held;
    held.overhead_ns = 300;
    for (const int k : {1, 2, 3, 5}) {
        const int n = 1 << k;
        CHECK(run(algo::binomial_broadcast{}, star(n, 10, 0), n, of_bytes(1000), held).time_ns == k * (300 + 100));
    }
}

TEST_CASE("flows share links max-min fairly") {
    SECTION("two flows on one link take twice as long each") {
        CHECK(run(fan{}, star(3, 10, 0), 3, of_bytes(3000)).time_ns == 200);
    }
    SECTION("what a slow link leaves goes to the others") {
        // Three flows of 1000 bytes share 12 bytes/ns; one of them ends in a link of 2: it gets 2, the others 5 each.
        topo::graph g = star(3, 12, 0);
        g.link(g.add({"C3", topo::site_type::cpu}), 3, topo::link_type::network, {2e9, 0});
        sim::fabric f(g, {0, 1, 2, 4});
        sim::options o = of_bytes(4000);
        o.with_transfers = true;
        const sim::result r = sim::simulate(sched::record_all(fan{}, 4), f, {}, o);
        REQUIRE(r.transfers.size() == 3);
        CHECK(r.transfers[0].end_ns == 200);
        CHECK(r.transfers[1].end_ns == 200);
        CHECK(r.transfers[2].end_ns == 500);
    }
    SECTION("a flow that is alone again takes all of the link") {
        // Two rings' worth of shares: 1000 and 3000 bytes on 10 bytes/ns: 200 ns together, then 2000 bytes alone.
        sim::flow_set flows({{"", topo::link_type::network, 10e9, 0}});
        const sim::route r{{0}, topo::link_type::network, 0, 10e9};
        sim::picoseconds end[2] = {};
        const auto set = [&](int flow, unsigned, sim::picoseconds at) { end[flow] = at; };
        flows.start(r, 1000, 0, 0);
        flows.start(r, 3000, 0, 0);
        flows.share(0, set);
        CHECK(end[0] == 200'000);
        flows.end(0);
        flows.share(200'000, set);
        CHECK(end[1] == 400'000);
    }
}

TEST_CASE("all algorithms: they end, and links carry the bytes that the recording says") {
    const int n = 8;
    const topo::graph g = star(n, 10, 100);
    const double bytes = 8 * 5040;
    algo::for_each_algorithm([&](auto a) {
        const sched::schedule s = sched::record_all(a, n);
        CAPTURE(a.name, name_of(s.op));
        std::vector<double> out(n, 0), in(n, 0); // per rank, counted from the steps
        for (int r = 0; r < n; ++r)
            for (const auto& strand : s.programs[static_cast<unsigned>(r)].strands)
                for (const sched::step& st : strand) {
                    const auto u = [](int i) { return static_cast<std::size_t>(i); };
                    const double size =
                        bytes / std::max(1, s.chunks) * (st.what == sched::send ? st.src : st.dst).chunks.count;
                    const auto moves = [&](int from, int to) {
                        if (from != to) {
                            out[u(from)] += size;
                            in[u(to)] += size;
                        }
                    };
                    if ((st.what & sched::send) != 0) moves(r, st.peer_to);
                    if ((st.what & sched::get) != 0) moves(st.peer_from, r);
                    for (int k = 0; k < n; ++k) {
                        if ((st.what & sched::fold) != 0 && k >= st.peer_from && k < st.peer_to) moves(k, r);
                        if ((st.what & sched::to_all) != 0) moves(r, k);
                    }
                }
        sim::fabric f(g, first(n));
        for (const int pieces : {1, 3}) {
            const sim::result r = sim::simulate(s, f, {}, of_bytes(bytes, pieces));
            for (std::size_t k = 0; k < n; ++k) {
                CHECK(r.link_bytes[2 * k] == Approx(out[k]));
                CHECK(r.link_bytes[2 * k + 1] == Approx(in[k]));
            }
            CHECK(r.time_ns >= sim::link_bound_ns(f, r.link_bytes) * (1 - 1e-9));
            CHECK(sim::simulate(s, f, {}, of_bytes(bytes, pieces)).time_ns == r.time_ns);
        }
    });
}

TEST_CASE("nothing is faster than its links and the max-flow, on random machines") {
    std::mt19937 random(16);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    for (int round = 0; round < 60; ++round) {
        const int n = 2 + below(6);
        topo::graph g;
        for (int r = 0; r < n; ++r) g.add({"C" + std::to_string(r), topo::site_type::cpu});
        for (int r = 1; r < n; ++r) g.link(r, below(r), topo::link_type::socket, {(1 + below(9)) * 1e9, 10});
        for (int extra = below(n); extra > 0; --extra)
            if (const int a = below(n), b = below(n); a != b)
                g.link(a, b, topo::link_type::socket, {(1 + below(9)) * 1e9, 10});
        const double bytes = 1e6;
        const auto bound = [&](int from, int to) { return bytes / topo::max_flow(g, from, to) * 1e9; };
        const auto tries = [&](auto a) {
            sim::fabric f(g, first(n));
            const sim::result r = sim::simulate(sched::record_all(a, n), f, {}, of_bytes(bytes, 1 + below(4)));
            CHECK(r.time_ns >= sim::link_bound_ns(f, r.link_bytes) * (1 - 1e-9));
            return r.time_ns;
        };
        for (const double ns : {tries(algo::binomial_broadcast{}), tries(algo::chain_broadcast{}),
                                tries(algo::ring_all_reduce{}), tries(algo::two_shot_all_reduce{})})
            for (int r = 1; r < n; ++r) CHECK(ns >= bound(0, r) * (1 - 1e-9));
    }
}

TEST_CASE("several rings share a DGX-1V as its links allow") {
    const topo::graph g = topo::dgx_1v();
    const std::vector<int> gpus = g.all(topo::site_type::gpu);
    sim::fabric f(g, gpus);
    const sched::schedule s = sched::record_all(algo::ring_all_reduce{}, 8);
    sim::cost_model m;
    m.with_link_latency = false;
    sim::options o = of_bytes(240e6);
    o.orders = {{0, 3, 2, 1, 5, 6, 7, 4}, {4, 7, 6, 5, 1, 2, 3, 0}}; // double links only, in both directions
    CHECK(sim::bus_bandwidth(s, o.bytes, sim::simulate(s, f, m, o)) == Approx(100e9));
    o.orders.resize(1);
    CHECK(sim::bus_bandwidth(s, o.bytes, sim::simulate(s, f, m, o)) == Approx(50e9));
}

TEST_CASE("faults: a slow rank, a lost link, a dead rank") {
    const topo::graph g = star(4, 10, 100);
    sim::options o = of_bytes(4000);
    const double plain = run(algo::ring_all_reduce{}, g, 4, o).time_ns;
    o.slow_rank = 2;
    o.slowdown = 3;
    const double slow = run(algo::ring_all_reduce{}, g, 4, o).time_ns;
    CHECK(slow > plain);
    CHECK(slow <= 3 * plain);
    o = of_bytes(4000);
    o.dead_rank = 2;
    o.dead_at_ns = plain / 2;
    try {
        run(algo::ring_all_reduce{}, g, 4, o);
        FAIL("a ring ends without one of its ranks");
    } catch (const error& e) {
        CHECK(e.code() == errc::peer_failed);
        CHECK(e.peer() == 2);
        CHECK(e.rank() == 3); // the rank that waits for rank 2's messages
        CHECK_THAT(e.what(), Contains("rank 2 is dead") && Contains("shrink"));
    }
    o.dead_at_ns = 2 * plain;
    CHECK(run(algo::ring_all_reduce{}, g, 4, o).time_ns == plain);
    // A rank for which no other one waits: the others end. In nine pieces, its channel has no room for the last.
    o.dead_at_ns = 0;
    o.dead_rank = 3;
    CHECK(run(algo::linear_broadcast{}, g, 4, o).time_ns > 0);
    o.dead_rank = -1;
    const double all = run(algo::linear_broadcast{}, g, 4, o).time_ns;
    o.dead_rank = 3;
    CHECK(run(algo::linear_broadcast{}, g, 4, o).time_ns <= all);
    o.pieces = 9;
    CHECK_THROWS_WITH(run(algo::linear_broadcast{}, g, 4, o), Contains("1 strands wait for it"));

    const topo::graph cut = sim::without_link(g, 1, 4);
    CHECK_THROWS_WITH(run(algo::ring_all_reduce{}, cut, 4, of_bytes(4000)), Contains("no path from 'C0' to 'C1'"));
    CHECK_THROWS_WITH(sim::without_link(g, 0, 1), Contains("no link joins 'C0' and 'C1'"));
    const topo::graph cube = topo::dgx_1v();
    const topo::graph without = sim::without_link(cube, cube.require("GPU0"), cube.require("GPU3"));
    sim::fabric f(without, without.all(topo::site_type::gpu));
    CHECK(f.between(0, 3).links.size() == 2); // through a neighbour
}

TEST_CASE("in several orders a fault is that of one rank of the machine, and messages name its ranks") {
    const topo::graph g = star(4, 10, 100);
    sim::options o = of_bytes(8000);
    o.orders = {{1, 0}, {2, 3}}; // two rings of two ranks
    o.with_transfers = true;
    const sim::result plain = run(algo::ring_all_reduce{}, g, 4, o, {}, 2);
    REQUIRE(plain.transfers.size() == 8);
    for (int r = 0; r < 4; ++r)
        CHECK(std::count_if(plain.transfers.begin(), plain.transfers.end(),
                            [&](const sim::transfer& t) { return t.from == r && t.to == (r ^ 1); }) == 2);
    o.slow_rank = 3;
    o.slowdown = 5;
    double end[2] = {};
    for (const sim::transfer& t : run(algo::ring_all_reduce{}, g, 4, o, {}, 2).transfers)
        end[t.from / 2] = std::max(end[t.from / 2], t.end_ns);
    CHECK(end[0] == plain.time_ns);
    CHECK(end[1] == 2 * 5 * 200 + 5 * 100); // the second message leaves while the first one is still on its way
    o.slow_rank = 4;
    CHECK_THROWS_WITH(run(algo::ring_all_reduce{}, g, 4, o, {}, 2), Contains("slow rank 4") && Contains("of 4 ranks"));
    o.slow_rank = -1;
    o.dead_rank = 3;
    try {
        run(algo::ring_all_reduce{}, g, 4, o, {}, 2);
        FAIL("a ring ends without one of its ranks");
    } catch (const error& e) {
        CHECK((e.rank() == 2 && e.peer() == 3));
    }
}

TEST_CASE("the signals of a slow rank are late, too") {
    sim::options o;
    CHECK(run(algo::flag_barrier{}, star(4, 10, 100), 4, o).time_ns == 100);
    o.slow_rank = 2;
    o.slowdown = 3;
    CHECK(run(algo::flag_barrier{}, star(4, 10, 100), 4, o).time_ns == 300);
}

TEST_CASE("a switch that sums and stores to all: (1 + 1/n) of the buffer leaves each rank, and arrives") {
    for (const int n : {2, 4, 8}) {
        const topo::graph g = topo::dgx_h100();
        std::vector<int> sites = g.all(topo::site_type::gpu);
        sites.resize(static_cast<std::size_t>(n));
        sim::fabric f(g, sites);
        const sim::recording s = sim::record_short(algo::multicast_two_shot_all_reduce{}, n);
        sim::options o = of_bytes(1e9);
        o.by_switch = true;
        const sim::result r = sim::simulate(s, f, {.with_link_latency = false}, o);
        const double bytes = 1e9 * (1 + 1.0 / n);
        CAPTURE(n);
        CHECK(r.time_ns == Approx(bytes / 450));
        const sim::switch_ports& p = f.switch_of_all();
        REQUIRE(p.to.size() == sites.size());
        for (const auto& links : {p.to, p.from})
            for (const int l : links) CHECK(r.link_bytes[static_cast<std::size_t>(l)] == Approx(bytes));
        // Without the switch it is a two-shot sum that reads its operands, which takes as long again.
        o.by_switch = false;
        CHECK(sim::simulate(s, f, {.with_link_latency = false}, o).time_ns == Approx(2e9 * (n - 1) / n / 450));
        // Latencies: the signals after all puts and after all sums, and the switch's answer between them.
        o.by_switch = true;
        CHECK(sim::simulate(s, f, {}, o).time_ns == Approx(bytes / 450 + 3 * 2 * topo::link_latencies::nvswitch));
    }
}

TEST_CASE("windows that are pushed ahead cost their readers no hop, and steps of kernels cost each rank") {
    constexpr int n = 4;
    const topo::graph g = star(n, 10, 100);
    sim::cost_model m;
    const auto ns = [&] { return run(algo::two_shot_all_reduce{}, g, n, of_bytes(4000), m).time_ns; };
    // Three messages to fold at once (3 x 1,000 bytes arrive), then three parts in sequence; two signals.
    const double pulled = ns();
    CHECK(pulled == Approx(2 * 100 + (300 + 100) + 3 * (100 + 100)));
    m.pushes = true;
    CHECK(ns() == Approx(pulled - 4 * 100));
    m.step_ns = 7; // three puts of parts, one fold, three takes
    CHECK(ns() == Approx(pulled - 4 * 100 + 7 * 7));
}

TEST_CASE("sums by a switch take a machine whose ranks are all linked to one that makes them") {
    const auto why_not = [](const topo::graph& g) {
        sim::fabric f(g, g.all(topo::site_type::gpu));
        sim::options o = of_bytes(1e6);
        o.by_switch = true;
        try {
            sim::simulate(sim::record_short(algo::multicast_two_shot_all_reduce{}, f.ranks()), f, {}, o);
        } catch (const error& e) {
            return std::string(e.what());
        }
        return std::string("nothing");
    };
    CHECK_THAT(why_not(topo::dgx_a100()), Contains("no switch that reduces and multicasts") && Contains("8 ranks"));
    CHECK_THAT(why_not(topo::dgx_1v()), Contains("H100 or later"));
    CHECK(why_not(topo::hgx_b200()) == "nothing");
    CHECK(why_not(topo::gb200_nvl72(topo::rate_basis::published, 4)) == "nothing");
}

TEST_CASE("a schedule in which the switch has nothing to do is refused, not predicted without its bytes") {
    const topo::graph g = topo::dgx_h100();
    sim::fabric f(g, g.all(topo::site_type::gpu));
    sim::options o = of_bytes(1e9);
    o.by_switch = true;
    const auto refuses = [&](const auto& a) {
        CHECK_THROWS_WITH(sim::simulate(sim::record_short(a, 8), f, {}, o), Contains("the switch has nothing to do"));
    };
    refuses(algo::zero_copy_all_gather{}); // reads its peers, and what a get reads would count as stored by the switch
    refuses(algo::ring_all_reduce{});
}

TEST_CASE("what cannot be simulated is refused by name") {
    const topo::graph g = star(4, 10, 100);
    const auto message = [&](const sim::options& o, const sim::cost_model& m = {}) {
        try {
            run(algo::ring_all_reduce{}, g, 4, o, m);
        } catch (const error& e) {
            CHECK(e.code() == errc::invalid_argument);
            return std::string(e.what());
        }
        return std::string("nothing");
    };
    sim::options o;
    CHECK_THAT(message(of_bytes(-1)), Contains("-1 bytes"));
    CHECK_THAT(message(of_bytes(1, 0)), Contains("0 pieces"));
    o.slow_rank = 4;
    CHECK_THAT(message(o), Contains("slow rank 4"));
    o = {};
    o.orders = {{0, 1, 2, 2}};
    CHECK_THAT(message(o), Contains("a place of its own"));
    sim::cost_model m;
    m.wire_bytes_per_byte = 0.5;
    CHECK_THAT(message({}, m), Contains("0.5 bytes on the wire"));
    m = {};
    m.overhead_ns = -1;
    CHECK_THAT(message({}, m), Contains("-1"));
    o = {};
    o.dead_rank = 1;
    o.dead_at_ns = NAN;
    CHECK_THAT(message(o), Contains("dead from nan ns"));
    sim::fabric small(g, first(2));
    CHECK_THROWS_WITH(sim::simulate(sched::record_all(algo::ring_all_reduce{}, 4), small, {}, {}),
                      Contains("4 ranks on a machine for 2"));
}

// Rank 2 never signals.
struct silent_third {
    static constexpr collective op = collective::barrier;
    [[maybe_unused]] static constexpr const char* name = "silent_third";
    static constexpr int signals = 1;
    static constexpr int chunks(int) { return 0; }
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int) const {
        if (r != 2) ex.signal(0);
        ex.wait_all(0);
    }
};

TEST_CASE("a schedule that never ends: the rank that is silent is named, and no rank that would die later") {
    const topo::graph g = star(4, 10, 100);
    sim::options o;
    for (const double dead_at : {-1.0, 1e18}) {
        o.dead_rank = dead_at < 0 ? -1 : 3;
        o.dead_at_ns = std::max(dead_at, 0.0);
        try {
            run(silent_third{}, g, 4, o);
            FAIL("a barrier ends without a rank");
        } catch (const error& e) {
            CHECK(e.code() == errc::protocol);
            CHECK((e.rank() == 0 && e.peer() == 2));
            CHECK_THAT(e.what(), Contains("step 1 waits for rank 2"));
        }
    }
    o.dead_rank = 2;
    o.dead_at_ns = 0;
    CHECK_THROWS_WITH(run(silent_third{}, g, 4, o), Contains("rank 2 is dead") && Contains("3 strands wait"));
}

TEST_CASE("links without a rate are refused, and machines that end before their fabric") {
    const auto find = [](int, int) { return std::vector<int>{0}; };
    for (const double rate : {0.0, -5.0, double{INFINITY}, double{NAN}}) {
        CHECK_THROWS_WITH(sim::fabric(2, {{"a > b", topo::link_type::pcie, rate}}, find),
                          Contains("'a > b' has a rate of") && Contains("positive rate"));
        CHECK_THROWS_WITH(sim::fabric_of({2, 2, rate}), Contains("'rank0 > switch' has a rate of"));
        CHECK_THROWS_WITH(sim::fabric_of({2, 2, 1e9, rate}), Contains("'rank0 > rail' has a rate of"));
    }
    for (const double latency : {-1.0, double{INFINITY}, double{NAN}})
        CHECK_THROWS_WITH(sim::fabric_of({2, 2, 1e9, 1e9, latency}), Contains("a latency of"));
    CHECK_THROWS_WITH(sim::fabric_of({0, 8}), Contains("0 hosts of 8 ranks"));
    CHECK_THROWS_AS(sim::fabric_of({2, -1}), invalid_argument);
    CHECK_THROWS_WITH(sim::fabric_of({65536, 65536}), Contains("65536 hosts of 65536 ranks"));
    const topo::graph g = star(4, 10, 100);
    CHECK_THROWS_WITH(sim::fabric(g, {0, 5}), Contains("a rank is at site 5 of a machine of 5 sites"));
    CHECK_THROWS_AS(sim::fabric::with_pxn(g, {-1}), invalid_argument);
    CHECK_THROWS_WITH(sim::without_link(g, 0, 5), Contains("site 5"));
    CHECK_THROWS_AS(sim::without_link(g, -1, 0), invalid_argument);
    // A fabric searches its graph later.
    using sites = std::vector<int>;
    CHECK(std::is_constructible_v<sim::fabric, const topo::graph&, sites>);
    CHECK_FALSE(std::is_constructible_v<sim::fabric, topo::graph, sites>);
    CHECK_FALSE(std::is_constructible_v<sim::fabric, const topo::graph, sites>);
}

TEST_CASE("the formula's machine equals the graph's") {
    const topo::graph g = topo::on_rails(topo::dgx_h100(), 2, 50);
    sim::fabric graph(g, g.all(topo::site_type::gpu));
    sim::fabric formula = sim::fabric_of({2, 8});
    sim::cost_model m = sim::nccl_costs(sim::nccl_family::ring, sim::protocol::simple);
    const sched::schedule s = sched::record_all(algo::ring_all_reduce{}, 16);
    sim::options o = of_bytes(1.6e9);
    o.orders = {{0, 1, 2, 3, 4, 5, 6, 7, 15, 14, 13, 12, 11, 10, 9, 8}}; // the ring stays on rails
    const double ns = 8400 + 14e3 + 30 * 2e6; // a hundred MB each time through a card that never waits
    CHECK(sim::simulate(s, graph, m, o).time_ns == Approx(ns));
    CHECK(sim::simulate(s, formula, m, o).time_ns == Approx(ns));
    // In rank order, ranks 7 and 15 send to another rail: without PXN through the link between the sockets.
    o.orders.clear();
    CHECK(sim::simulate(s, graph, m, o).time_ns > 1.5 * ns);
}

TEST_CASE("rings between hosts take their own cards, as the search says") {
    const auto bus = [](const topo::graph& g, const std::vector<double>& speeds, bool with_ways) {
        const std::vector<int> gpus = g.all(topo::site_type::gpu);
        const topo::ring_set set = topo::find_rings(g, gpus, {.limits = {}, .speeds = speeds});
        sim::fabric f(g, gpus);
        sim::options o = of_bytes(1e9);
        for (const topo::ring& r : set.rings) {
            o.orders.emplace_back();
            for (const int s : r.members)
                o.orders.back().push_back(static_cast<int>(std::find(gpus.begin(), gpus.end(), s) - gpus.begin()));
            if (!with_ways) continue;
            o.ways.emplace_back();
            for (const topo::path& hop : r.hops) o.ways.back().push_back(hop.arcs);
        }
        sim::cost_model m;
        m.with_link_latency = false;
        const sched::schedule s = sched::record_all(algo::ring_all_reduce{}, static_cast<int>(gpus.size()));
        const sim::result r = sim::simulate(s, f, m, o);
        CHECK(r.time_ns >= sim::link_bound_ns(f, r.link_bytes) * (1 - 1e-9));
        for (const int i : {0, 1}) { // each ring uses its own card, which no other ring uses
            const auto card = static_cast<std::size_t>(g.arcs_of(g.require("rail" + std::to_string(i)))[0]);
            if (with_ways) CHECK(r.link_bytes[card] == Approx(2 * (gpus.size() - 1.0) / gpus.size() * o.bytes / 8));
        }
        return sim::bus_bandwidth(s, o.bytes, r) / 1e9;
    };
    // NCCL's search finds 8 x 45 on its ladder of speeds, then the links allow 370.8, limited by the NVSwitch.
    const topo::graph h100 = topo::on_rails(topo::dgx_h100(topo::rate_basis::nccl), 2, 50);
    CHECK(bus(h100, {45e9}, true) == Approx(370.8));
    CHECK(bus(h100, {45e9}, false) < 200); // best paths: some hops use PCIe, and several rings use one card
    const topo::graph a100 = topo::on_rails(topo::dgx_a100(topo::rate_basis::nccl), 2, 25);
    CHECK(bus(a100, {24e9}, true) == Approx(192)); // limited by PCIe 4
}

TEST_CASE("ways that do not fit are refused") {
    const topo::graph g = star(4, 10, 100);
    sim::options o = of_bytes(4000);
    o.orders = {{0, 1, 2, 3}};
    o.ways = {{{}, {}, {}}};
    CHECK_THROWS_WITH(run(algo::ring_all_reduce{}, g, 4, o), Contains("3 ways of 4 ranks"));
    o.ways = {{{0, 3}, {99}, {}, {}}};
    CHECK_THROWS_WITH(run(algo::ring_all_reduce{}, g, 4, o), Contains("link 99 of a machine of 8 links"));
    o.ways = {{{}, {}, {}, {}}};
    CHECK(run(algo::ring_all_reduce{}, g, 4, o).time_ns == run(algo::ring_all_reduce{}, g, 4, of_bytes(4000)).time_ns);
}

TEST_CASE("all_to_all through the neighbour on the receiver's rail (PXN), counted on each link") {
    const topo::graph g = topo::on_rails(topo::dgx_h100(), 2, 50);
    const std::vector<int> gpus = g.all(topo::site_type::gpu);
    sim::fabric plain(g, gpus), pxn = sim::fabric::with_pxn(g, gpus);
    const sched::schedule s = sched::record_all(algo::direct_all_to_all{}, 16);
    sim::cost_model m;
    m.with_link_latency = false;
    const double part = 1e6; // per pair of ranks
    const sim::options o = of_bytes(16 * part);
    const sim::result without = sim::simulate(s, plain, m, o), with = sim::simulate(s, pxn, m, o);
    const auto on = [&](const sim::result& r, topo::link_type type) {
        double sum = 0;
        for (int i = 0; i < g.arcs(); ++i)
            if (g.arc_at(i).type == type) sum += r.link_bytes[static_cast<std::size_t>(i)];
        return sum / part;
    };
    using topo::link_type;
    CHECK(on(with, link_type::socket) == 0);
    CHECK(on(without, link_type::socket) > 0);
    CHECK(on(with, link_type::network) == 2 * 16 * 8); // up to a rail and down, for each message between hosts
    // Two links each: each rank's 7 messages inside its host, and 7 of its 8 others to a neighbour.
    CHECK(on(with, link_type::nvlink) == 2 * 16 * (7 + 7));
    for (int i = 0; i < g.arcs(); ++i) // all rails carry equal amounts
        if (g.arc_at(i).type == link_type::network)
            CHECK(with.link_bytes[static_cast<std::size_t>(i)] == Approx(8 * part));
    const double gain = without.time_ns / with.time_ns;
    CHECK(gain > 2); // published: doubled, where messages between rails use spines; here they cross the sockets
    // Equal to the formula's machine, whose cards have the same rate and no narrower link before them.
    sim::fabric formula = sim::fabric_of({2, 8});
    CHECK(with.time_ns == Approx(sim::simulate(s, formula, m, o).time_ns));
    CHECK(with.time_ns >= sim::link_bound_ns(pxn, with.link_bytes) * (1 - 1e-9));

    // Two GPUs of a DGX A100 are equally near to two cards. Each uses one, so neither card's PCIe link carries both.
    const topo::graph a100 = topo::on_rails(topo::dgx_a100(), 2, 25);
    sim::fabric f = sim::fabric::with_pxn(a100, a100.all(topo::site_type::gpu));
    const double card_ns = 8 * part / 25; // 16 ranks' 8 messages each, each rank with its own card
    const double ns = sim::simulate(s, f, m, o).time_ns;
    CHECK(ns >= card_ns);
    CHECK(ns < 1.2 * card_ns);

    // Fat trees have one card per host, and no neighbour to use.
    const topo::graph tree = topo::fat_tree(2, 2, 2);
    sim::fabric a(tree, tree.all(topo::site_type::cpu)),
        b = sim::fabric::with_pxn(tree, tree.all(topo::site_type::cpu));
    CHECK(a.between(0, 3).links == b.between(0, 3).links);
}
