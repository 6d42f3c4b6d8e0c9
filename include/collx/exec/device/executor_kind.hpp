// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the executor of a kernel is compiled for.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/traits.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// Groups: of threads of a block, each of which runs a part of the strands.
template <class E, class A, class T, class P, int G = 1>
struct executor_kind {
    using Env = E;
    using Algorithm = A;
    using Types = T;
    using Protocol = P;
    static constexpr int Groups = G;
};

// A rank that has left iteration i - 1 may push iteration i + 1 over it only if it has received from every reader in
// between: so these are the algorithms in which every rank reads every other, in each iteration and each segment.
template <class Algorithm>
inline constexpr bool
    may_push_v = (Algorithm::op == collective::all_reduce && sched::pushes_parts_v<Algorithm>) ||
                 (sched::signals_v<Algorithm> == 1 && sched::least_window_depth_v<Algorithm> == 2 &&
                  (Algorithm::op == collective::all_reduce || Algorithm::op == collective::all_gather ||
                   Algorithm::op == collective::reduce_scatter || Algorithm::op == collective::all_to_all));

} // namespace device
COLLX_END_NAMESPACE
