// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The default choice where the links between ranks are known: long messages along rings of the machine, and between
// hosts each rank's traffic by its own card. What it leaves alone goes as without a machine, over hosts in their order.
#pragma once

#include <cstddef>

#include <collx/algo/aggregated.hpp>
#include <collx/algo/chain.hpp>
#include <collx/algo/in_order.hpp>
#include <collx/algo/on_rings.hpp>
#include <collx/algo/ring.hpp>
#include <collx/plan/problem.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Above this many bytes a call is a matter of the links. (As a ring without a machine, see channel_selector.hpp.)
inline constexpr std::size_t least_ring_bytes = 512 * 1024;

[[gnu::cold]] inline bound_schedule* select_by_links(const links_choice& l, collective c, schedule_cache& cache,
                                                     const problem& p) {
    if (p.hosts != nullptr) {
        if (c == collective::all_to_all && l.has_rails && !p.windows) {
            const std::size_t part_bytes = p.bytes / static_cast<std::size_t>(p.ranks);
            if (part_bytes > static_cast<std::size_t>(most_led_bytes(*p.hosts, true)))
                return &cache.bind(algo::aggregated_all_to_all{.nodes = *p.hosts}, p.at_port);
        }
        return nullptr;
    }
    if (l.ring_count == 0 || p.ordered || p.zero_copy || p.bytes <= least_ring_bytes) return nullptr;
    if (p.windows && !l.beats_windows) return nullptr;
    switch (c) {
        case collective::all_reduce:
            return &cache.bind(algo::on_rings<algo::ring_all_reduce>{l.rings, l.ring_count}, p.at_port);
        case collective::all_gather: return &cache.bind(algo::in_order<algo::ring_all_gather>{*l.rings}, p.at_port);
        case collective::reduce_scatter:
            return &cache.bind(algo::in_order<algo::ring_reduce_scatter>{*l.rings}, p.at_port);
        case collective::broadcast:
            return &cache.bind(algo::rooted_in_order<algo::chain_broadcast>{*l.rings, p.root}, p.at_port);
        case collective::reduce:
            return &cache.bind(algo::rooted_in_order<algo::chain_reduce>{*l.rings, p.root}, p.at_port);
        default: return nullptr;
    }
}

} // namespace detail

COLLX_END_NAMESPACE
