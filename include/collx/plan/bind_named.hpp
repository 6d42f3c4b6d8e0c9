// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Binds an algorithm by its name in the table of choices.
#pragma once

#include <collx/plan/algorithm_of.hpp>
#include <collx/plan/problem.hpp>
#include <collx/plan/schedules.hpp>
#include <collx/sched/traits.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Requires: an algorithm whose only parameter is the root, if any.
template <choices::name N, collective C>
[[gnu::always_inline]] inline bound_schedule& bind_named(schedule_cache& cache, const problem& p) {
    algorithm_of<N, C> a{};
    sched::set_root(a, p.root);
    return cache.bind(a, p.at_port);
}

} // namespace detail
COLLX_END_NAMESPACE
