// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// 16,384 ranks with rings inside and between hosts: 67 million messages, within a small machine's memory.
// collx-test: label=nightly timeout=600 optimised
#include <collx/algo/hierarchical.hpp>
#include <collx/sim/simulate.hpp>

#include <sys/resource.h>

#include <catch2/catch.hpp>

using namespace collx;

TEST_CASE("hierarchical all_reduce of 16,384 ranks, rings between 2,048 hosts") {
    const double bytes = 1e9;
    const int hosts = 2048, g = 8;
    const sim::cost_model m = sim::nccl_costs(sim::nccl_family::ring, sim::protocol::simple);
    sim::fabric f = sim::fabric_of({hosts, g});
    const node_map nodes = node_map::blocks(hosts * g, g);
    sim::options o;
    o.bytes = bytes;
    const sim::recording s = sim::record_short(algo::hierarchical_all_reduce<algo::rings>{{nodes}}, hosts * g);
    const sim::result r = sim::simulate(s, f, m, o);
    CHECK(r.messages == std::int64_t{hosts} * g * (2 * (hosts - 1) + 2 * (g - 1)));
    const double inside = 2 * (g - 1) * (3400 + bytes / g / 450);
    const double between = 2 * (hosts - 1) * (14e3 + bytes / g / hosts / 50);
    CHECK(r.time_ns == Approx(8400 + inside + between));
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    CHECK(used.ru_maxrss < 8l << 20); // KiB: 8 GiB; it takes 30 MiB
}
