// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The default choice of algorithm for ranks that share memory. Numbers carry their evidence; docs/performance.md has
// the measurements.
#pragma once

#include <cstddef>

#include <collx/algo/direct.hpp>
#include <collx/algo/dissemination.hpp>
#include <collx/algo/linear.hpp>
#include <collx/algo/one_shot.hpp>
#include <collx/algo/pairwise.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/algo/zero_copy.hpp>
#include <collx/plan/problem.hpp>
#include <collx/plan/schedules.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// One-shot beats two-shot while a second synchronisation costs more than reading everything n times. (2 ranks, near:
// 4 KiB 0.33 us against 0.57, 16 KiB 1.09 against 1.21, 32 KiB 2.25 against 1.98. 4 ranks on 2 cores: 8 KiB 5.1
// against 7.7.)
constexpr std::size_t one_shot_limit(const problem& p) {
    if (p.zero_copy && !p.oversubscribed) return 2 * 1024;
    if (p.oversubscribed) return 16 * 1024;
    return p.ranks <= 2 ? 16 * 1024 : p.ranks <= 4 ? 8 * 1024 : 4 * 1024;
}

// Up to here the others do too: one strand and one signal a call, where the forms of direct.hpp put one piece while
// they take another. (2 ranks, 8 bytes: 0.31 us against 0.53 for all_gather with far cores; 4 ranks: 1.7 against 2.9
// for reduce. Level from 16 KiB.)
inline constexpr std::size_t short_limit = 16 * 1024;

// Two ranks put and take as much through a channel as through windows, and a channel may lend.
constexpr bool prefers_channels(const problem& p) { return p.ranks == 2 && !p.zero_copy; }

// Apart, so that calls without a machine save no register for it.
template <collective C>
[[gnu::cold, gnu::noinline]] bound_schedule& select_by_machine(schedule_cache& cache, const problem& p) {
    problem known = p;
    if (p.links->hosts != nullptr) known.hosts = p.links->hosts;
    if (bound_schedule* by_links = p.links->select(*p.links, C, cache, known)) return *by_links;
    known.links = nullptr;
    return select<C>(cache, known);
}

} // namespace detail

template <collective C>
bound_schedule& select(schedule_cache& cache, const problem& p) {
    if (p.links != nullptr) [[unlikely]]
        return detail::select_by_machine<C>(cache, p);
    if (!p.windows) return selections_over_channels[static_cast<int>(C)](cache, p);
    if constexpr (C == collective::all_reduce) {
        if (p.bytes <= detail::one_shot_limit(p)) return cache.bind(algo::one_shot_all_reduce{}, p.at_port);
        if (p.zero_copy) return cache.bind(algo::zero_copy_all_reduce{}, p.at_port);
        return cache.bind(algo::two_shot_all_reduce{}, p.at_port);
    } else if constexpr (C == collective::reduce) {
        if (p.bytes <= detail::short_limit) return cache.bind(algo::one_shot_reduce{.root = p.root}, p.at_port);
        if (p.zero_copy) return cache.bind(algo::zero_copy_reduce{.root = p.root}, p.at_port);
        if (detail::prefers_channels(p)) return cache.bind(algo::linear_reduce{.root = p.root}, p.at_port);
        return cache.bind(algo::direct_reduce{.root = p.root}, p.at_port);
    } else if constexpr (C == collective::broadcast) {
        if (p.bytes <= detail::short_limit) return cache.bind(algo::one_shot_broadcast{.root = p.root}, p.at_port);
        if (p.zero_copy) return cache.bind(algo::zero_copy_broadcast{.root = p.root}, p.at_port);
        if (detail::prefers_channels(p)) return cache.bind(algo::linear_broadcast{.root = p.root}, p.at_port);
        return cache.bind(algo::direct_broadcast{.root = p.root}, p.at_port);
    } else if constexpr (C == collective::all_gather) {
        if (p.bytes <= detail::short_limit) return cache.bind(algo::one_shot_all_gather{}, p.at_port);
        if (p.zero_copy) return cache.bind(algo::zero_copy_all_gather{}, p.at_port);
        if (detail::prefers_channels(p)) return cache.bind(algo::pairwise_all_gather{}, p.at_port);
        return cache.bind(algo::direct_all_gather{}, p.at_port);
    } else if constexpr (C == collective::reduce_scatter) {
        if (p.bytes <= detail::short_limit) return cache.bind(algo::one_shot_reduce_scatter{}, p.at_port);
        if (p.zero_copy) return cache.bind(algo::zero_copy_reduce_scatter{}, p.at_port);
        if (detail::prefers_channels(p)) return cache.bind(algo::pairwise_reduce_scatter{}, p.at_port);
        return cache.bind(algo::direct_reduce_scatter{}, p.at_port);
    } else if constexpr (C == collective::gather) {
        return cache.bind(algo::linear_gather{.root = p.root}, p.at_port);
    } else if constexpr (C == collective::scatter) {
        return cache.bind(algo::linear_scatter{.root = p.root}, p.at_port);
    } else if constexpr (C == collective::all_to_all) {
        if (p.bytes <= detail::short_limit) return cache.bind(algo::one_shot_all_to_all{}, p.at_port);
        if (p.zero_copy) return cache.bind(algo::zero_copy_all_to_all{}, p.at_port);
        return cache.bind(algo::pairwise_all_to_all{}, p.at_port);
    } else if constexpr (C == collective::scan) {
        return cache.bind(algo::one_shot_scan{}, p.at_port);
    } else if constexpr (C == collective::exclusive_scan) {
        return cache.bind(algo::one_shot_exclusive_scan{}, p.at_port);
    } else {
        static_assert(C == collective::barrier);
        return cache.bind(algo::flag_barrier{}, p.at_port);
    }
}

COLLX_END_NAMESPACE
