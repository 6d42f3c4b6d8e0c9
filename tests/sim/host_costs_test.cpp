// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The work of a call over several hosts, counted by hand, separately for messages inside hosts and between them.
#include <collx/algo/chain.hpp>
#include <collx/algo/hierarchical.hpp>
#include <collx/algo/ring.hpp>
#include <collx/algo/scan.hpp>
#include <collx/sim/host_costs.hpp>

#include <catch2/catch.hpp>

using namespace collx;

namespace {

sim::work_by_hosts work(const sched::schedule& s, const node_map& nodes, double bytes, int cores, double pieces = 1) {
    sim::call_shape c;
    c.bytes = bytes;
    c.pieces = pieces;
    sim::cores on;
    on.count = cores;
    return sim::work_of_hosts(s, c, on, nodes.view());
}

} // namespace

TEST_CASE("host by host: one message of each rank between hosts, and two inside") {
    const node_map nodes{0, 0, 1, 1};
    const sched::schedule s = sched::record_all(algo::hierarchical_all_reduce<algo::trees>{{nodes}}, 4);
    const sim::work_by_hosts w = work(s, nodes, 4000, 4);
    // Inside: half is scattered, then gathered. Between: that half crosses once.
    CHECK(w.inside.of[sim::step] == 2 * 2);
    CHECK(w.inside.of[sim::byte] == 2 * 2 * 2000);
    CHECK(w.inside.of[sim::round] == 2);
    CHECK(w.inside.of[sim::reduced_byte] == 2000);
    CHECK(w.between.of[sim::step] == 2);
    CHECK(w.between.of[sim::byte] == 2 * 2000);
    CHECK(w.between.of[sim::round] == 1);
    CHECK(w.between.of[sim::reduced_byte] == 2000);
    // The call is counted once.
    CHECK(w.inside.of[sim::call] == 1);
    CHECK(w.between.of[sim::call] + w.between.of[sim::task] == 0);
    // Two cores for four ranks: everything counts twice.
    const sim::work_by_hosts shared = work(s, nodes, 4000, 2);
    CHECK(shared.inside.of[sim::byte] == 2 * w.inside.of[sim::byte]);
    CHECK(shared.between.of[sim::round] == 2);
    CHECK(work(s, nodes, 4000, 4, 3).between.of[sim::step] == 3 * 2); // pieces
}

TEST_CASE("one host has nothing between, single ranks nothing inside") {
    const sched::schedule s = sched::record_all(algo::ring_all_reduce{}, 4);
    const node_map one{0, 0, 0, 0}, each{0, 1, 2, 3};
    const sim::work_by_hosts in = work(s, one, 4000, 4), out = work(s, each, 4000, 4);
    const sim::work flat = sim::work_of(s, {.bytes = 4000}, {.count = 4});
    for (const int t : {sim::step, sim::byte, sim::round, sim::reduced_byte, sim::l2_byte}) {
        CHECK(in.inside.of[t] == flat.of[t]);
        CHECK(out.between.of[t] == flat.of[t]);
        CHECK(in.between.of[t] + out.inside.of[t] == 0);
    }
}

TEST_CASE("what goes to later ranks only has no rounds, inside hosts and between them") {
    const node_map nodes{0, 0, 1, 1};
    const sim::work_by_hosts up = work(sched::record_all(algo::chain_scan{}, 4), nodes, 4000, 4);
    CHECK(up.inside.of[sim::round] + up.between.of[sim::round] == 0);
    CHECK(up.inside.of[sim::step] > 0);
    CHECK(up.between.of[sim::step] > 0);
    // Consecutive calls may have different roots.
    const sim::work_by_hosts rooted = work(sched::record_all(algo::chain_broadcast{}, 4), nodes, 4000, 4);
    CHECK(rooted.inside.of[sim::round] >= 2);
    CHECK(rooted.between.of[sim::round] >= 1);
}

TEST_CASE("each kind of message has costs of its own") {
    const node_map nodes{0, 0, 1, 1};
    const sched::schedule s = sched::record_all(algo::hierarchical_all_reduce<algo::trees>{{nodes}}, 4);
    sim::costs channels, sockets;
    channels.of[sim::call] = 100;
    channels.of[sim::byte] = 1;
    sockets.of[sim::byte] = 10;
    sockets.of[sim::round] = 1000;
    CHECK(sim::predicted_ns(work(s, nodes, 4000, 4), channels, sockets) == 100 + 8000 + 10 * 4000 + 1000);
}
