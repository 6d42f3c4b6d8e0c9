// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The default choice of algorithm for ranks that share memory: the rows `memory` of the table (plan/choices.hpp).
#pragma once

#include <collx/algo/chain.hpp>
#include <collx/algo/direct.hpp>
#include <collx/algo/dissemination.hpp>
#include <collx/algo/linear.hpp>
#include <collx/algo/one_shot.hpp>
#include <collx/algo/pairwise.hpp>
#include <collx/algo/recursive_doubling.hpp>
#include <collx/algo/scan.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/algo/zero_copy.hpp>
#include <collx/plan/bind_named.hpp>
#include <collx/plan/problem.hpp>
#include <collx/plan/schedules.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Separate, so that calls without a machine save no registers for it.
template <collective C>
[[gnu::cold, gnu::noinline]] bound_schedule& select_by_machine(schedule_cache& cache, const problem& p) {
    problem known = p;
    if (p.links->hosts != nullptr) known.hosts = p.links->hosts;
    if (bound_schedule* by_links = p.links->select(*p.links, C, cache, known)) return *by_links;
    known.links = nullptr;
    return select<C>(cache, known);
}

} // namespace detail

// Binds the default algorithm of a call.
template <collective C>
bound_schedule& select(schedule_cache& cache, const problem& p) {
    if (p.links != nullptr) [[unlikely]]
        return detail::select_by_machine<C>(cache, p);
    if (!p.windows) return selections_over_channels[static_cast<int>(C)](cache, p);
    return choices::with_choice<choices::memory, C>(detail::situation_of(p), [&](auto chosen) -> bound_schedule& {
        return detail::bind_named<chosen.use, C>(cache, p);
    });
}

COLLX_END_NAMESPACE
