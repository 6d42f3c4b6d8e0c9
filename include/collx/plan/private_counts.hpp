// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The choice of algorithm where each rank knows its own counts only: it may depend on the ranks and the nodes, on no
// size. Only which way a part goes may: its two ends know that. Algorithms whose ranks pass parts on say how those
// learn the counts (counts()); others need none of that.
#pragma once

#include <type_traits>

#include <collx/algo/leader.hpp>
#include <collx/algo/linear.hpp>
#include <collx/algo/pairwise.hpp>
#include <collx/plan/problem.hpp>
#include <collx/plan/schedules.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Each rank exchanges with each other directly: right with any counts.
template <collective C>
struct direct_algorithm {
    using type = void;
};
template <>
struct direct_algorithm<collective::all_to_all> {
    using type = algo::pairwise_all_to_all;
};
template <>
struct direct_algorithm<collective::gather> {
    using type = algo::linear_gather;
};
template <>
struct direct_algorithm<collective::scatter> {
    using type = algo::linear_scatter;
};

// Whether collective C has a form with private counts, and whether algorithm A can run it.
template <collective C>
inline constexpr bool may_have_private_counts = !std::is_void_v<typename direct_algorithm<C>::type>;
template <collective C, class A>
inline constexpr bool allows_private_counts = std::is_same_v<A, typename direct_algorithm<C>::type> ||
                                              requires(const A& a) {
    a.counts();
};

} // namespace detail

// The default. p.bytes is one rank's own and must not be looked at.
template <collective C>
bound_schedule& select_for_private_counts(schedule_cache& cache, const problem& p) {
    if constexpr (C == collective::all_to_all)
        if (p.hosts != nullptr) {
            const node_view at = *p.hosts;
            return cache.bind_for_private_counts(algo::leader_all_to_all{at, detail::most_led_bytes(at, false)},
                                                 p.at_port);
        }
    typename detail::direct_algorithm<C>::type direct{};
    sched::set_root(direct, p.root);
    return cache.bind_for_private_counts(direct, p.at_port);
}

COLLX_END_NAMESPACE
