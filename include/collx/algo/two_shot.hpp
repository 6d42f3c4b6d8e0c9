// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Direct all-reduce in two phases over windows: rank r reduces chunk r of all contributions, then each rank collects
// the finished chunks. Each byte is read and written once per phase for any n; two synchronisations per piece. The
// names one-shot and two-shot are those of GPU libraries.
#pragma once

#include <collx/algo/window_moves.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Private buffers, staged through windows. Three strands so that putting piece i + 1, reducing piece i and taking piece
// i - 1 overlap.
// Shape: n chunks. Window segment 0: contributions, segment 1: the finished chunk.
// Cost: the buffer is written to windows once, 2(n - 1)/n of it is read; a window ring of 1 stage suffices, more let
// the phases overlap (checked).
// Order: rank order, equal on all ranks; any associative operator.
struct two_shot_all_reduce {
    struct finished {
        static COLLX_HD constexpr ref chunk(int c) { return window(1, c); }
    };
    static constexpr collective op = collective::all_reduce;
    static constexpr const char* name = "two_shot";
    static constexpr int signals = 3;
    static constexpr bool needs_commutative = false;
    static constexpr bool pushes_parts = true; // contributions to the ranks that reduce them, results to all
    static constexpr int chunks(int n) { return n; }
    int depth = 4; // stages of the window ring: how far putting may run ahead of taking

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (ex.strand(0)) {
            ex.wait_all(1, depth); // all ranks have reduced from the stage that is overwritten now
            put_others(ex, r, n);
            ex.signal(0);
        }
        if (ex.strand(1)) {
            ex.wait_all(2, depth); // all ranks have taken the result that is overwritten now
            ex.wait_all(0);
            ex.step(fold | copy, in(r), at_ranks(0, n, window(0, r)), out(r), place::window1);
            ex.signal(1);
        }
        if (ex.strand(2)) {
            take_others<collective::all_gather, finished>(ex, r, n, 1);
            ex.signal(2);
        }
    }
};

} // namespace algo
COLLX_END_NAMESPACE
