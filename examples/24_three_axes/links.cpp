// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shows which links the axes of a grid take, and why.
#include <collx/comm/machine.hpp>
#include <collx/topo/machines.hpp>
#include <collx/topo/nccl_topology_writer.hpp>
#include <collx/topology.hpp>

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>

#include "../check.hpp"
#include "links.hpp"

namespace three_axes {

collx::communicator neighbours_together(collx::communicator& world) {
    // [doc:order]
    const std::vector<int> along = collx::order_of(world); // by the machine's links, where COLLX_TOPOLOGY says them
    const auto at = std::find(along.begin(), along.end(), world.rank()) - along.begin();
    const int first_of_host = hosts_of(world)[static_cast<std::size_t>(world.rank())];
    return world.split(0, first_of_host * world.size() + static_cast<int>(at));
    // [doc:end]
}

// Returns the slowest path between neighbours on an axis, and among equally slow ones the one of the highest class.
collx::topo::path slowest_way(const collx::topo::graph& machine, const std::vector<int>& sites, const placement& p,
                              axis a) {
    collx::topo::path slowest;
    for (int r = 0; r < static_cast<int>(sites.size()); ++r) {
        const int next = p.along(a, r, (p.places_of(r)[a] + 1) % p.size[a]);
        const auto way =
            collx::topo::best_path(machine, sites[static_cast<std::size_t>(r)], sites[static_cast<std::size_t>(next)]);
        const bool is_worse = way.bytes_per_s < slowest.bytes_per_s ||
                              (way.bytes_per_s == slowest.bytes_per_s && way.type > slowest.type);
        if (slowest.arcs.empty() || is_worse) slowest = way;
    }
    return slowest;
}

void explain(collx::communicator& world, grid& g, axis a, const std::vector<int>& host, const job& j) {
    const int n = j.size[a];
    bool is_inside = true;
    for (int r = 0; r < world.size(); ++r)
        is_inside &= host[static_cast<std::size_t>(r)] == host[static_cast<std::size_t>(g.place.along(a, r, 0))];
    std::printf("%-9s %d ranks, %s: at most %.0f bytes a rank\n", name_of[a], n,
                n == 1      ? "nothing to send"
                : is_inside ? "inside hosts"
                            : "between hosts",
                j.sends().of_rank(a, j.size, n / 2));
    if (n == 1) return;
    if (a != pipeline) {
        const std::size_t bytes =
            a == tensor ? static_cast<std::size_t>(j.bytes()) : g.mine.gradient.size() * sizeof(double);
        std::printf("          by default its all_reduce would be %s\n", default_sum(g.lines[a].comm, bytes).c_str());
    }
    if (const collx::topo::graph* machine = collx::machine_of(world)) {
        const auto way = slowest_way(*machine, collx::sites_of(world), g.place, a);
        std::printf("          slowest way: %s, %g GB/s, %s\n", collx::topo::name_of(way.type), way.bytes_per_s / 1e9,
                    collx::topo::to_text(*machine, way).c_str());
    }
}

void place_on_dgx_1v() {
    char file[] = "/tmp/collx-machine-XXXXXX"; // as a user would: COLLX_TOPOLOGY=dgx-1v.xml collx_run -n 8 program
    if (const int f = ::mkstemp(file); f >= 0) ::close(f);
    std::FILE* const f = std::fopen(file, "we");
    std::fputs(collx::topo::write_nccl_topology(collx::topo::dgx_1v(), 70).c_str(), f);
    std::fclose(f);
    ::setenv("COLLX_TOPOLOGY", file, 1);
    collx::run_threads(8, [](collx::communicator& ranks) {
        collx::communicator world = neighbours_together(ranks);
        if (world.rank() != 0) return;
        std::printf("\nEight ranks of a DGX-1V, the slowest way of each axis:\n");
        const collx::topo::graph& machine = *collx::machine_of(world);
        double before = 0;
        for (const axis a : {data, pipeline, tensor}) {
            const auto way = slowest_way(machine, collx::sites_of(world), {.size = axes_of(8)}, a);
            std::printf("%-9s %s, %g GB/s: %s\n", name_of[a], collx::topo::name_of(way.type), way.bytes_per_s / 1e9,
                        collx::topo::to_text(machine, way).c_str());
            example::expect(way.bytes_per_s >= before, "an axis with more bytes has ways that are no slower");
            before = way.bytes_per_s;
        }
        example::expect(before == 50e9, "tensor goes by the widest links of the machine");
    });
    ::unsetenv("COLLX_TOPOLOGY");
    ::unlink(file);
}

} // namespace three_axes
