// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Barriers: no rank leaves before all have entered. No data travel: a message is a token, and only its arrival counts.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// In round k rank r notifies rank r + 2^k that it and the 2^k - 1 ranks before it have entered. Works for any n:
// repeated notification is harmless.
// Shape: 1 chunk, the token.
// Cost: ceil(log2 n) messages per rank, as many rounds; scratch for the token; slots >= 1.
// Source: Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", IJPP 17(1), 1988.
struct dissemination_barrier {
    static constexpr collective op = collective::barrier;
    static constexpr const char* name = "dissemination";
    COLLX_HD static constexpr int chunks(int) { return 1; }
    static constexpr int tmp_chunks(int n) { return n > 1 ? 1 : 0; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        for (int d = 1; d < n; d *= 2) {
            ex.step(send, to((r + d) % n), in(0));
            ex.step(recv | copy, from((r + n - d) % n), tmp(0));
        }
    }
};

// A barrier over windows: each rank gives a signal and waits for those of all ranks. There are no data.
// Shape: no chunks, 1 signal.
// Cost: each rank gives one signal and checks n.
struct flag_barrier {
    static constexpr collective op = collective::barrier;
    static constexpr const char* name = "flags";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 1;
    COLLX_HD static constexpr int chunks(int) { return 0; }
    int depth = 2;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int, int) const {
        ex.signal(0);
        ex.wait_all(0);
    }
};

} // namespace algo
COLLX_END_NAMESPACE
