// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The default choice of every collective, which records all algorithms that it chooses from. Where a program links
// collx::collx, the choices are only declared here, and defined once in compile_once.hpp.
#pragma once

#include <collx/plan/problem.hpp>

#define COLLX_CHOICE_OF(word, c) word template bound_schedule& select<collective::c>(schedule_cache&, const problem&);
#define COLLX_CHOICE_FOR_PRIVATE_COUNTS(word, c) \
    word template bound_schedule& select_for_private_counts<collective::c>(schedule_cache&, const problem&);
#define COLLX_CHOICES(word)                        \
    COLLX_CHOICE_OF(word, all_reduce)              \
    COLLX_CHOICE_OF(word, reduce)                  \
    COLLX_CHOICE_OF(word, broadcast)               \
    COLLX_CHOICE_OF(word, all_gather)              \
    COLLX_CHOICE_OF(word, reduce_scatter)          \
    COLLX_CHOICE_OF(word, gather)                  \
    COLLX_CHOICE_OF(word, scatter)                 \
    COLLX_CHOICE_OF(word, all_to_all)              \
    COLLX_CHOICE_OF(word, scan)                    \
    COLLX_CHOICE_OF(word, exclusive_scan)          \
    COLLX_CHOICE_OF(word, barrier)                 \
    COLLX_CHOICE_FOR_PRIVATE_COUNTS(word, gather)  \
    COLLX_CHOICE_FOR_PRIVATE_COUNTS(word, scatter) \
    COLLX_CHOICE_FOR_PRIVATE_COUNTS(word, all_to_all)

#if defined(COLLX_ONLY_DECLARED)
COLLX_BEGIN_NAMESPACE
COLLX_CHOICES(extern)
COLLX_END_NAMESPACE
#else
#include <collx/plan/private_selector.hpp>
#include <collx/plan/selector.hpp>
#endif
