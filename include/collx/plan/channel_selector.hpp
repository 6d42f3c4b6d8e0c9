// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The default choice of algorithm where ranks do not all share memory: few rounds for short messages, few bytes for
// long ones. docs/design/sockets.md has the measurements.
#pragma once

#include <cstddef>

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
#include <collx/plan/host_selector.hpp>
#include <collx/plan/problem.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {
// Above this many bytes a call is a matter of bandwidth: a message costs about as much as moving so many bytes.
inline constexpr std::size_t long_message_bytes = 32 * 1024;
// Up to here a sum among 2^k ranks halves and doubles: as few bytes as a ring in fewer steps, each of which must wait
// for a message (and, where ranks share cores, for its turn). Above, a ring's single neighbour is worth more. Likewise
// a broadcast down one tree, before the overlap of two pays.
inline constexpr std::size_t few_steps_bytes = 512 * 1024;
// Up to so many ranks the root of a short broadcast sends to each, and in an all-gather of a few steps' bytes each rank
// does: nothing is passed on.
inline constexpr int few_ranks = 4;
constexpr bool is_power_of_two(int n) { return (n & (n - 1)) == 0; }
} // namespace detail

template <collective C>
[[gnu::cold]] bound_schedule& select_over_channels(schedule_cache& cache, const problem& p) {
    if (p.hosts != nullptr)
        if (bound_schedule* among = detail::select_among_hosts<C>(cache, p)) return *among;
    [[maybe_unused]] const bool is_long = p.bytes > detail::long_message_bytes;
    [[maybe_unused]] const bool is_serial = p.serial && p.ranks > 2; // two operands group in one way only
    if constexpr (C == collective::all_reduce) {
        if (is_serial) return cache.bind(algo::linear_all_reduce{}, p.at_port);
        // Two ranks move the same bytes either way; exchanging everything at once waits once instead of twice, which is
        // worth more than the half of the sum that it repeats.
        if (!is_long || (p.ranks == 2 && p.bytes <= detail::few_steps_bytes))
            return cache.bind(algo::recursive_doubling_all_reduce{}, p.at_port);
        if (p.ordered || (detail::is_power_of_two(p.ranks) && p.bytes <= detail::few_steps_bytes))
            return cache.bind(algo::halving_doubling_all_reduce{}, p.at_port);
        return cache.bind(algo::ring_all_reduce{}, p.at_port);
    } else if constexpr (C == collective::reduce) {
        if (is_serial) return cache.bind(algo::linear_reduce{.root = p.root}, p.at_port);
        if (is_long && p.ranks > 2) return cache.bind(algo::chain_reduce{.root = p.root}, p.at_port);
        return cache.bind(algo::binomial_reduce{.root = p.root}, p.at_port);
    } else if constexpr (C == collective::broadcast) {
        if (p.bytes > detail::few_steps_bytes && p.ranks > 2)
            return cache.bind(algo::double_tree_broadcast{.root = p.root}, p.at_port);
        if (!is_long && p.ranks <= detail::few_ranks)
            return cache.bind(algo::linear_broadcast{.root = p.root}, p.at_port);
        return cache.bind(algo::binomial_broadcast{.root = p.root}, p.at_port);
    } else if constexpr (C == collective::all_gather) {
        if (p.bytes <= 4 * detail::long_message_bytes) return cache.bind(algo::bruck_all_gather{}, p.at_port);
        if (p.bytes <= detail::few_steps_bytes && p.ranks > 2 && p.ranks <= detail::few_ranks)
            return cache.bind(algo::pairwise_all_gather{}, p.at_port);
        return cache.bind(algo::ring_all_gather{}, p.at_port);
    } else if constexpr (C == collective::reduce_scatter) {
        if (is_serial) return cache.bind(algo::linear_reduce_scatter{}, p.at_port);
        if (p.ordered) return cache.bind(algo::pairwise_reduce_scatter{}, p.at_port);
        if (!is_long || (detail::is_power_of_two(p.ranks) && p.bytes <= detail::few_steps_bytes))
            return cache.bind(algo::halving_reduce_scatter{}, p.at_port);
        return cache.bind(algo::ring_reduce_scatter{}, p.at_port);
    } else if constexpr (C == collective::gather) {
        return cache.bind(algo::linear_gather{.root = p.root}, p.at_port);
    } else if constexpr (C == collective::scatter) {
        return cache.bind(algo::linear_scatter{.root = p.root}, p.at_port);
    } else if constexpr (C == collective::all_to_all) {
        return cache.bind(algo::pairwise_all_to_all{}, p.at_port);
    } else if constexpr (C == collective::scan) {
        if (is_long || is_serial) return cache.bind(algo::chain_scan{}, p.at_port);
        return cache.bind(algo::doubling_scan{}, p.at_port);
    } else if constexpr (C == collective::exclusive_scan) {
        if (is_long || is_serial) return cache.bind(algo::chain_exclusive_scan{}, p.at_port);
        return cache.bind(algo::doubling_exclusive_scan{}, p.at_port);
    } else {
        static_assert(C == collective::barrier);
        return cache.bind(algo::dissemination_barrier{}, p.at_port);
    }
}

namespace detail {
template <int... Cs>
inline constexpr selection all_over_channels[] = {select_over_channels<static_cast<collective>(Cs)>...};
inline constexpr const selection* over_channels =
    all_over_channels<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, static_cast<int>(collective::barrier)>;
#if !defined(COLLX_COMPILED)
inline const bool selects_over_channels = (selections_over_channels = over_channels, true);
#endif
} // namespace detail

COLLX_END_NAMESPACE
