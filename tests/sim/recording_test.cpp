// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Short recordings equal long ones and are small, and thousands of ranks take the times of the formulas.
#include <collx/algo/algorithms.hpp>
#include <collx/algo/hierarchical.hpp>
#include <collx/sim/simulate.hpp>
#include <collx/sim/traces.hpp>

#include <catch2/catch.hpp>

using namespace collx;
using Catch::Contains;

namespace {

std::vector<short> kinds_of(const sim::recording& s) {
    std::vector<short> kinds;
    for (const sim::short_step& st : s.steps) kinds.push_back(static_cast<short>(st.what));
    return kinds;
}

// Rank 0 has a strand for each other rank.
struct uneven {
    void operator()(sim::detail::short_recorder& ex, int r, int n) const {
        for (int k = 0; k < (r == 0 ? n - 1 : 1); ++k)
            if (ex.strand(k)) {
                if (r == 0) ex.step(sched::send, sched::to(k + 1), sched::in(0));
                else ex.step(sched::recv | sched::copy, sched::from(0), sched::out(0));
            }
    }
};

} // namespace

TEST_CASE("a recording is what the long one becomes, for every algorithm") {
    algo::for_each_algorithm([](auto a) {
        for (const int n : {1, 2, 5, 8}) {
            CAPTURE(name_of(a.op), a.name, n);
            const sched::schedule s = sched::record_all(a, n);
            const sim::recording one = sim::record_short(a, n), other = sim::recording_of(s);
            CHECK(one.signals == s.signals);
            CHECK(one.chunks == s.chunks);
            CHECK(one.depth == s.depth);
            CHECK(kinds_of(one) == kinds_of(other));
            REQUIRE(one.strands.size() == other.strands.size());
            for (std::size_t k = 0; k < one.strands.size(); ++k) {
                CHECK(one.strands[k].rank == other.strands[k].rank);
                CHECK(one.strands[k].end == other.strands[k].end);
            }
            std::size_t long_steps = 0, short_steps = 0;
            for (const auto& p : s.programs)
                for (const auto& strand : p.strands) long_steps += strand.size();
            for (std::size_t k = 0; k < one.steps.size(); ++k) {
                short_steps += static_cast<std::size_t>(one.steps[k].times);
                CHECK(one.steps[k].chunks == other.steps[k].chunks);
                CHECK(one.steps[k].peer_to == other.steps[k].peer_to);
            }
            CHECK(short_steps == long_steps);
        }
    });
}

TEST_CASE("a strand that only some ranks have is recorded for these") {
    sim::recording all;
    sim::detail::short_recorder to;
    for (int r = 0; r < 4; ++r) {
        uneven{}(to, r, 4);
        to.move_to(all, r);
    }
    REQUIRE(all.strands.size() == 6);
    CHECK(all.strands[2].rank == 0);
    CHECK(all.strands[3].rank == 1);
    CHECK(all.steps.size() == 6);
}

TEST_CASE("steps that cost the same are kept as one: a ring of 1,024 ranks has a few for each") {
    const sim::recording ring = sim::record_short(algo::ring_all_reduce{}, 1024);
    CHECK(ring.steps.size() <= 5 * 1024);
    const node_map nodes = node_map::blocks(1024, 8);
    const sim::recording both = sim::record_short(algo::hierarchical_all_reduce<algo::rings>{{nodes}}, 1024);
    CHECK(both.steps.size() <= 16 * 1024);

    // In a long form each step has its own line.
    const std::string goal = sim::to_goal(sim::record_short(algo::ring_all_reduce{}, 8), 8000);
    std::size_t sends = 0;
    for (std::size_t at = goal.find("send 1000b"); at != goal.npos; at = goal.find("send 1000b", at + 1)) ++sends;
    CHECK(sends == 8 * 14);
}

TEST_CASE("hierarchical all_reduce of hosts on rails takes what its three phases take") {
    const double bytes = 1e9;
    const sim::cost_model m = sim::nccl_costs(sim::nccl_family::ring, sim::protocol::simple);
    const int hosts = 32, g = 8;
    sim::fabric f = sim::fabric_of({hosts, g});
    const node_map nodes = node_map::blocks(hosts * g, g);
    sim::options o;
    o.bytes = bytes;
    const double inside = 2 * (g - 1) * (3400 + bytes / g / 450);
    const double ring = 2 * (hosts - 1) * (14e3 + bytes / g / hosts / 50);
    const auto took = [&](auto a) { return sim::simulate(sim::record_short(a, hosts * g), f, m, o).time_ns; };
    CHECK(took(algo::hierarchical_all_reduce<algo::rings>{{nodes}}) == Approx(8400 + inside + ring));
    const double doubling = 5 * (14e3 + bytes / g / 50); // log2(32) rounds of all bytes
    CHECK(took(algo::hierarchical_all_reduce<algo::rings, algo::trees>{{nodes}}) == Approx(8400 + inside + doubling));
}

TEST_CASE("the step that never ends is counted as it was written") {
    sched::schedule s = sched::record_all(algo::ring_all_reduce{}, 4);
    s.programs[1].strands[0][4].peer_from = 3; // rank 3 sends nothing to it
    sim::fabric f = sim::fabric_of({1, 4});
    CHECK_THROWS_WITH(sim::simulate(s, f, {}, {}), Contains("step 4 waits for rank 3"));
}
