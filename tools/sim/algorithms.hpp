// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The algorithms that collx_sim finds by name: all that need no machine, and those that go host by host.
#pragma once

#include <collx/algo/algorithms.hpp>
#include <collx/algo/hierarchical.hpp>
#include <collx/sim/recording.hpp>

#include <string>
#include <vector>

namespace collx::tools {

/// Records a collective by the algorithm of that name, or by the first one if none is given. `nodes`: where the ranks
/// are, for "hierarchical" (rings inside and between hosts) and "hierarchical-trees" (rings inside, trees between
/// hosts).
inline sim::recording recording_of(const std::string& op, const std::string& name, int ranks, const node_map& nodes) {
    sim::recording s;
    std::string names, collectives;
    const auto offer = [&](auto a, const char* called) {
        if (collectives.find(" " + std::string(name_of(a.op))) == std::string::npos)
            collectives += std::string(" ") + name_of(a.op);
        if (op != name_of(a.op)) return;
        names += std::string(" ") + called;
        if (s.ranks == 0 && (name.empty() || name == called)) s = sim::record_short(a, ranks);
    };
    algo::for_each_algorithm([&](auto a) { offer(a, a.name); });
    offer(algo::hierarchical_all_reduce<algo::rings>{{nodes}}, "hierarchical");
    offer(algo::hierarchical_all_reduce<algo::rings, algo::trees>{{nodes}}, "hierarchical-trees");
    offer(algo::hierarchical_reduce_scatter<algo::rings>{{nodes}}, "hierarchical");
    offer(algo::hierarchical_all_gather<algo::rings>{{nodes}}, "hierarchical");
    if (names.empty())
        fail(errc::invalid_argument, -1, -1, ("there are" + collectives).c_str(), "no collective is called '%.100s'",
             op.c_str());
    if (s.ranks == 0)
        fail(errc::invalid_argument, -1, -1, ("there are" + names).c_str(), "no %s is called '%.100s'", op.c_str(),
             name.c_str());
    return s;
}

} // namespace collx::tools
