// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The choice of algorithm where each rank knows only its own counts. It may depend on ranks and nodes, not on sizes.
// Only the way of a part may: both its ends know its size. Rows `own_counts` of the table (plan/choices.hpp).
#pragma once

#include <collx/algo/leader.hpp>
#include <collx/algo/linear.hpp>
#include <collx/algo/pairwise.hpp>
#include <collx/plan/long_parts.hpp>
#include <collx/plan/private_counts.hpp>
#include <collx/plan/problem.hpp>
#include <collx/plan/schedules.hpp>
#include <collx/sched/traits.hpp>

COLLX_BEGIN_NAMESPACE

// p.bytes differs between ranks and must not be used.
template <collective C>
bound_schedule& select_for_private_counts(schedule_cache& cache, const problem& p) {
    if constexpr (C == collective::all_to_all)
        if (p.hosts != nullptr) {
            const node_view at = *p.hosts;
            constexpr choices::row led = row_naming(choices::own_counts, C, choices::leader);
            return cache.bind_for_private_counts(
                long_parts_directly(algo::leader_all_to_all{at}, most_part_bytes(led, at.largest())), p.at_port);
        }
    typename detail::direct_algorithm<C>::type direct{};
    sched::set_root(direct, p.root);
    return cache.bind_for_private_counts(direct, p.at_port);
}

COLLX_END_NAMESPACE
