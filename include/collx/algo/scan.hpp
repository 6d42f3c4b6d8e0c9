// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Scans over channels: rank r receives the reduction of the ranks before it (exclusive) or up to and including it. As a
// chain, which sends the fewest bytes, or by doubling distances, which takes the fewest rounds.
//
// A result is also an operand of the next rank, so the value that is stored must be the one that travels.
// Requires (all): an operator without a post hook.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Shape: 1 chunk.
// Cost: n - 1 rounds, one message per rank but the last; no scratch, slots >= 1. Pieces are pipelined.
// Order: ((x0 op x1) op x2) op …; any operator, associative or not.
struct chain_scan {
    static constexpr collective op = collective::scan;
    static constexpr const char* name = "chain";
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (r == 0) {
            if (n > 1) ex.step(send, to(1), in(0)); // first: `in` and `out` may be one buffer, and hooks apply once
            ex.step(copy, in(0), out(0));
        } else if (r < n - 1) {
            ex.step(recv | reduce | copy | send, from(r - 1), to(r + 1), in(0), out(0));
        } else {
            ex.step(recv | reduce | copy, from(r - 1), in(0), out(0));
        }
    }
};

// The received value is the result. A rank adds its own operand, over a channel to itself, to what it sends on.
// Shape: 1 chunk; rank 0 receives nothing.
// Cost: n - 1 rounds, one message per rank but the last and one to itself at all inner ranks; no scratch, slots >= 1.
// Order: ((x0 op x1) op x2) op …; any operator, associative or not.
struct chain_exclusive_scan {
    static constexpr collective op = collective::exclusive_scan;
    static constexpr const char* name = "chain";
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return;
        if (r == 0) return ex.step(send, to(1), in(0));
        if (r == n - 1) return ex.step(recv | copy, from(r - 1), out(0));
        ex.step(send, to(r), in(0)); // first: `in` and `out` may be one buffer
        ex.step(recv | copy, from(r - 1), out(0));
        ex.step(recv | reduce_after | send, from(r), to(r + 1), out(0));
    }
};

// After the round of distance d each rank holds the reduction of the 2d ranks that end with it.
// Shape: 1 chunk.
// Cost: ceil(log2 n) rounds, at most one message per rank and round; scratch 1 chunk if n > 2; slots >= 1.
// Order: rank order; any associative operator.
// Source: Hillis, Steele, "Data parallel algorithms", CACM 29(12), 1986.
struct doubling_scan {
    static constexpr collective op = collective::scan;
    static constexpr const char* name = "doubling";
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }
    static constexpr int tmp_chunks(int n) { return n > 2 ? 1 : 0; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        ref partial = in(0);
        for (int d = 1; d < n; d *= 2) {
            if (r + d < n) ex.step(send, to(r + d), partial);
            if (r - d < 0) continue;
            const ref sum = r < 2 * d ? out(0) : tmp(0);
            ex.step(recv | reduce | copy, from(r - d), partial, sum);
            partial = sum;
        }
        if (r == 0) ex.step(copy, in(0), out(0)); // last: `in` and `out` may be one buffer, and hooks apply once
    }
};

// As doubling_scan, after each rank has sent its operand to the next rank.
// Shape: 1 chunk; rank 0 receives nothing.
// Cost: 1 + ceil(log2(n - 1)) rounds, at most one message per rank and round; scratch 1 chunk if n > 2; slots >= 1.
// Order: rank order; any associative operator.
struct doubling_exclusive_scan {
    static constexpr collective op = collective::exclusive_scan;
    static constexpr const char* name = "doubling";
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }
    static constexpr int tmp_chunks(int n) { return n > 2 ? 1 : 0; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (r < n - 1) ex.step(send, to(r + 1), in(0));
        if (r == 0) return;
        ref partial = r == 1 ? out(0) : tmp(0);
        ex.step(recv | copy, from(r - 1), partial);
        for (int d = 1; d < n - 1; d *= 2) {
            if (r + d < n) ex.step(send, to(r + d), partial);
            if (r - d < 1) continue;
            const ref sum = r <= 2 * d ? out(0) : tmp(0);
            ex.step(recv | reduce | copy, from(r - d), partial, sum);
            partial = sum;
        }
    }
};

} // namespace algo
COLLX_END_NAMESPACE
