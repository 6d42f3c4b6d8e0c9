// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Direct all-reduce in one phase over windows: everybody publishes its whole contribution, everybody reduces all of
// them. n times the arithmetic of two_shot for half the synchronisation: the choice for small messages.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Private buffers, staged through windows.
// Shape: 1 chunk. Window segment 0: the contribution.
// Cost: the buffer is written to a window once and n - 1 windows are read; one synchronisation; windows >= 2 deep
// (checked): a rank that sees everybody's signal of iteration i knows that everybody has left iteration i - 1, so two
// stages need no further wait.
// Order: rank order, equal on all ranks; any associative operator.
struct one_shot_all_reduce {
    static constexpr collective op = collective::all_reduce;
    static constexpr const char* name = "one_shot";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 2;
    static constexpr int signals = 1;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }
    int depth = 2;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int, int n) const {
        ex.template step<copy>(in(0), window(0, 0));
        ex.signal(0);
        ex.wait_all(0);
        ex.template step<fold | copy>(in(0), at_ranks(0, n, window(0, 0)), out(0));
    }
};

} // namespace algo
COLLX_END_NAMESPACE
