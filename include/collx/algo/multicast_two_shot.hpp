// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two-shot all-reduce whose sums and copies a switch makes (NVLink SHARP). Rank r loads the sum of chunk r of all
// windows: the chunk leaves each rank's memory once and arrives reduced. It then stores the sum to the windows of all
// in one store. device::multicast_protocol does so (exec/device/); everywhere else this is an ordinary two-shot sum.
#pragma once

#include <collx/algo/window_moves.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Private buffers, staged through windows.
// Shape: n chunks. Window segment 0: contributions, including a rank's own; segment 1: the finished chunks.
// Cost: with a switch (1 + 1/n) of the buffer leaves a rank and as much arrives, where two_shot has 2(n - 1)/n.
// Order: rank order; with a switch the switch's order, equal on all ranks.
// Source: NVIDIA, "NVLink SHARP"; PTX ISA, multimem.
struct multicast_two_shot_all_reduce {
    static constexpr collective op = collective::all_reduce;
    static constexpr const char* name = "multicast_two_shot";
    static constexpr int signals = 3;
    static constexpr bool needs_commutative = false; // the steps keep rank order, a switch does not
    static constexpr int chunks(int n) { return n; }
    int depth = 4; // stages of the window ring: how far putting may run ahead of taking

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (ex.strand(0)) {
            ex.wait_all(1, depth); // all ranks have reduced from the stage that is overwritten now
            in_turn(0, n, [&](int i) { ex.step(copy, in((r + i) % n), window(0, (r + i) % n)); });
            ex.signal(0);
        }
        if (ex.strand(1)) {
            ex.wait_all(2, depth); // all ranks have taken the result that is overwritten now
            ex.wait_all(0);
            ex.step(fold | copy, ref{}, at_ranks(0, n, window(0, r)), out(r), place::window1);
            ex.signal(1);
        }
        if (ex.strand(2)) {
            in_turn(1, n, [&](int i) {
                const int k = (r + i) % n;
                ex.wait(1, k);
                ex.step(get | copy, at(k, window(1, k)), out(k));
            });
            ex.signal(2);
        }
    }
};

} // namespace algo
COLLX_END_NAMESPACE
