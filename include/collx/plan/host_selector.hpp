// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The default choice where several ranks share each of several hosts: what is slow to cross is crossed as little as can
// be. docs/design/hierarchy.md has the measurements.
#pragma once

#include <cstddef>

#include <collx/algo/aggregated.hpp>
#include <collx/algo/hierarchical.hpp>
#include <collx/algo/leader.hpp>
#include <collx/plan/problem.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Above this many bytes a call inside and between hosts is a matter of bandwidth.
inline constexpr std::size_t long_among_hosts_bytes = 64 * 1024;
// Up to here a sum between hosts is one message of one rank each, not one of every rank.
inline constexpr std::size_t one_rail_bytes = 16 * 1024;
// Among so many hosts their leaders may exchange directly. All-gather: bytes of all ranks up to which that is faster.
inline constexpr int few_hosts = 8;
inline constexpr std::size_t led_gather_bytes = 64 * 1024;
// All-to-all: bytes for one peer up to which one message for each rank elsewhere beats one for each pair of ranks.
inline constexpr std::size_t aggregated_bytes = 32 * 1024;

// Bound where host by host is expected to be faster; null: where it is not.
template <collective C>
[[gnu::cold]] bound_schedule* select_among_hosts(schedule_cache& cache, const problem& p) {
    [[maybe_unused]] const node_view at = *p.hosts;
    [[maybe_unused]] const bool is_long = p.bytes > long_among_hosts_bytes;
    if constexpr (C == collective::all_to_all) {
        const std::size_t part_bytes = p.bytes / static_cast<std::size_t>(p.ranks);
        if (part_bytes > aggregated_bytes) return nullptr;
        if (part_bytes <= static_cast<std::size_t>(most_led_bytes(at, true)))
            return &cache.bind(algo::leader_all_to_all{.nodes = at}, p.at_port);
        return &cache.bind(algo::aggregated_all_to_all{.nodes = at}, p.at_port);
    } else if constexpr (C == collective::barrier) {
        if (at.nodes() <= few_hosts) return &cache.bind(algo::leader_barrier{{.nodes = at}}, p.at_port);
        return &cache.bind(algo::hierarchical_barrier<>{{.nodes = at}}, p.at_port);
    } else if constexpr (C == collective::broadcast || C == collective::reduce) {
        if (C == collective::reduce && p.ordered) return nullptr;
        if (is_long) return &cache.bind(algo::hierarchical<C, algo::rings>{{{.nodes = at}, p.root}}, p.at_port);
        return &cache.bind(algo::hierarchical<C, algo::trees>{{{.nodes = at}, p.root}}, p.at_port);
    } else if constexpr (C == collective::all_reduce || C == collective::reduce_scatter ||
                         C == collective::all_gather) {
        if (C != collective::all_gather && p.ordered) return nullptr; // one after the other, whatever the placement
        if (is_long) return &cache.bind(algo::hierarchical<C, algo::rings>{{.nodes = at}}, p.at_port);
        if constexpr (C == collective::all_gather)
            if (p.bytes <= led_gather_bytes && at.nodes() <= few_hosts)
                return &cache.bind(algo::leader_all_gather{{.nodes = at}}, p.at_port);
        if constexpr (C == collective::all_reduce)
            if (p.bytes <= one_rail_bytes)
                return &cache.bind(algo::hierarchical<C, algo::trees>{{.nodes = at}, 1}, p.at_port);
        return &cache.bind(algo::hierarchical<C, algo::trees>{{.nodes = at}}, p.at_port);
    } else {
        return nullptr;
    }
}

} // namespace detail

COLLX_END_NAMESPACE
