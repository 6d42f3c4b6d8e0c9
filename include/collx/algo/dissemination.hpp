// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Barriers: no rank leaves before all have come. No data travels: a message is a token, its meaning is that it
// came.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// In round k rank r tells rank r + 2^k that it has come and has heard of the 2^k - 1 ranks before it. Works for any n
// because being told twice does no harm.
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

// The same promise over windows: each rank raises a flag and looks at all flags. No data at all.
// Shape: no chunks, 1 signal.
// Cost: one signal given and n looked at per rank.
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
