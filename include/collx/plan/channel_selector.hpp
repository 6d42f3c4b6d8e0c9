// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The default choice of algorithm where ranks do not all share memory: few rounds for short messages, few bytes for
// long ones, as the rows `channels` of the table (plan/choices.hpp) say.
#pragma once

#include <collx/algo/binomial.hpp>
#include <collx/algo/bruck.hpp>
#include <collx/algo/chain.hpp>
#include <collx/algo/dissemination.hpp>
#include <collx/algo/double_tree.hpp>
#include <collx/algo/halving_doubling.hpp>
#include <collx/algo/linear.hpp>
#include <collx/algo/pairwise.hpp>
#include <collx/algo/recursive_doubling.hpp>
#include <collx/algo/ring.hpp>
#include <collx/algo/scan.hpp>
#include <collx/core/provided.hpp>
#include <collx/plan/bind_named.hpp>
#include <collx/plan/host_selector.hpp>
#include <collx/plan/problem.hpp>

COLLX_BEGIN_NAMESPACE

// Binds the default algorithm of a call between ranks without common memory.
template <collective C>
[[gnu::cold]] bound_schedule& select_over_channels(schedule_cache& cache, const problem& p) {
    if (p.hosts != nullptr)
        if (bound_schedule* among = detail::select_among_hosts<C>(cache, p)) return *among;
    return choices::with_choice<choices::channels, C>(detail::situation_of(p), [&](auto chosen) -> bound_schedule& {
        return detail::bind_named<chosen.use, C>(cache, p);
    });
}

namespace detail {
template <int... Cs>
inline constexpr selection all_over_channels[] = {select_over_channels<static_cast<collective>(Cs)>...};
inline constexpr const selection* over_channels =
    all_over_channels<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, static_cast<int>(collective::barrier)>;
inline const bool selects_over_channels = provided(selections_over_channels, over_channels);
} // namespace detail

COLLX_END_NAMESPACE
