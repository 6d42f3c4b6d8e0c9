// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The default choice where several ranks share each of several hosts: the rows `hosts` of the table (plan/choices.hpp).
#pragma once

#include <type_traits>

#include <collx/algo/aggregated.hpp>
#include <collx/algo/hierarchical.hpp>
#include <collx/algo/leader.hpp>
#include <collx/plan/algorithm_of.hpp>
#include <collx/plan/problem.hpp>
#include <collx/sched/traits.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// The algorithm named N for hosts `at`. Requires: a name in the rows `hosts`.
template <choices::name N, collective C>
constexpr auto algorithm_among_hosts(const node_view& at) {
    using namespace algo;
    if constexpr (N == choices::hierarchical_one_rail) {
        return hierarchical<C, trees>{{at}, 1};
    } else if constexpr (N == choices::hierarchical_rings || N == choices::hierarchical_trees) {
        using suite = std::conditional_t<N == choices::hierarchical_rings, rings, trees>;
        hierarchical<C, suite> a{};
        a.nodes = at;
        return a;
    } else {
        algorithm_of<N, C> a{};
        a.nodes = at;
        return a;
    }
}
template <choices::name N, collective C>
[[gnu::cold]] bound_schedule& bind_among_hosts(schedule_cache& cache, const problem& p, const node_view& at) {
    auto a = algorithm_among_hosts<N, C>(at);
    if constexpr (N == choices::hierarchical_rings || N == choices::hierarchical_trees) sched::set_root(a, p.root);
    return cache.bind(a, p.at_port);
}

// Binds an algorithm that goes host by host, where that is expected to be faster; null: it is not.
template <collective C>
[[gnu::cold]] bound_schedule* select_among_hosts(schedule_cache& cache, const problem& p) {
    const node_view at = *p.hosts;
    return choices::with_choice<choices::hosts, C>(situation_on(at, p), [&](auto chosen) -> bound_schedule* {
        if constexpr (chosen.use == choices::none) return nullptr;
        else return &bind_among_hosts<chosen.use, C>(cache, p, at);
    });
}

} // namespace detail

COLLX_END_NAMESPACE
