// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The default choice where the links between ranks are known: long messages along rings of the machine, and between
// hosts each rank's traffic by its own card. Other calls go as without a machine, over hosts in their order.
#pragma once

#include <collx/algo/aggregated.hpp>
#include <collx/algo/chain.hpp>
#include <collx/algo/in_order.hpp>
#include <collx/algo/on_rings.hpp>
#include <collx/algo/ring.hpp>
#include <collx/plan/problem.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

[[gnu::cold]] inline bound_schedule* select_by_links(const links_choice& l, collective c, schedule_cache& cache,
                                                     const problem& p) {
    if (p.hosts != nullptr) {
        choices::situation s = situation_on(*p.hosts, p);
        s.by_rail = l.has_rails && !p.windows;
        if (find_choice(choices::rails, c, s) == nullptr) return nullptr;
        return &cache.bind(algo::aggregated_all_to_all{.nodes = *p.hosts}, p.at_port);
    }
    choices::situation s = situation_of(p);
    s.rings_pay = l.ring_count != 0 && (!p.windows || l.beats_windows);
    if (find_choice(choices::links, c, s) == nullptr) return nullptr;
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
