// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The last part of a scan in two levels: ranks that have scanned among themselves combine their results, on the left,
// with the reduction of all ranks before them. Not a collective by itself, so no proof covers it; its test runs it.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// A rank's own chunk goes over a channel to itself, so that all chunks are combined in the same way.
// Shape: n chunks; rank r's input holds chunk r of what precedes, its output all chunks of what it has scanned. With
// Exclusive rank 0 has scanned nothing and receives what precedes.
// Cost: n messages of one chunk per rank, one of them to itself; no scratch, slots >= 1.
// Order: received op own; any associative operator.
// Requires: an operator without hooks.
template <bool Exclusive>
struct preceding {
    static constexpr collective op = Exclusive ? collective::exclusive_scan : collective::scan;
    static constexpr const char* name = "preceding";
    static constexpr bool needs_commutative = false;
    COLLX_HD static constexpr int chunks(int n) { return n; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        for (int i = 0; i < n; ++i) ex.step(send, to((r + i) % n), in(r));
        for (int i = 0; i < n; ++i) {
            const int k = (r + n - i) % n;
            if (Exclusive && r == 0) ex.step(recv | copy, from(k), out(k));
            else ex.step(recv | reduce | copy, from(k), out(k), out(k));
        }
    }
};

} // namespace algo
COLLX_END_NAMESPACE
