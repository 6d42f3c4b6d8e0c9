// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rings: a rank sends only to the next rank, every link carries the same load, and the fewest bytes possible are sent.
//
//   ring all-reduce of 4 ranks: who passes which chunk on, step by step (R: reduced on arrival, *: complete)
//            step 1   2    3    4*   5    6    7
//   rank 0:   0 →    3R → 2R → 1R* → 0 →  3 →  2
//   rank 1:   1 →    0R → 3R → 2R* → 1 →  0 →  3
//
// Source: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Shape: n chunks; chunk c is complete first at rank c - 1.
// Cost: 2n - 1 steps, 2(n - 1) messages of one chunk per rank, no scratch, slots >= 2 (checked in tests/proofs).
// Order: rotated by chunk, equal on all ranks; needs a commutative operator.
struct ring_all_reduce {
    static constexpr collective op = collective::all_reduce;
    static constexpr const char* name = "ring";
    static constexpr int min_depth = 2;
    static constexpr bool needs_commutative = true;
    COLLX_HD static constexpr int chunks(int n) { return n; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return ex.step(copy, in(0), out(0));
        const int next = (r + 1) % n, prev = (r + n - 1) % n;
        const auto chunk = [&](int c) { return ((c % n) + n) % n; };
        ex.step(send, to(next), in(r));
        in_turn(1, n - 1, [&](int i) { ex.step(recv | reduce | send, from(prev), to(next), in(chunk(r - i))); });
        ex.step(recv | reduce | copy | send, from(prev), to(next), in(chunk(r + 1)), out(chunk(r + 1)));
        in_turn(0, n - 2, [&](int i) { ex.step(recv | copy | send, from(prev), to(next), out(chunk(r - i))); });
        ex.step(recv | copy, from(prev), out(chunk(r + 2)));
    }
};

// Shape: n chunks; rank r keeps chunk r.
// Cost: n steps, n - 1 messages of one chunk per rank, no scratch, slots >= 2 (checked).
// Order: rotated by chunk; needs a commutative operator.
struct ring_reduce_scatter {
    static constexpr collective op = collective::reduce_scatter;
    static constexpr const char* name = "ring";
    static constexpr int min_depth = 2;
    static constexpr bool needs_commutative = true;
    COLLX_HD static constexpr int chunks(int n) { return n; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return ex.step(copy, in(0), out(0));
        const int next = (r + 1) % n, prev = (r + n - 1) % n;
        ex.step(send, to(next), in(prev));
        for (int i = 2; i < n; ++i) ex.step(recv | reduce | send, from(prev), to(next), in((r + n - i) % n));
        ex.step(recv | reduce | copy, from(prev), in(r), out(r));
    }
};

// Shape: n chunks; rank r contributes chunk r.
// Cost: n + 1 steps, n - 1 messages of one chunk per rank, no scratch, slots >= 2 (checked).
struct ring_all_gather {
    static constexpr collective op = collective::all_gather;
    static constexpr const char* name = "ring";
    static constexpr int min_depth = 2;
    COLLX_HD static constexpr int chunks(int n) { return n; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        ex.step(copy, in(r), out(r));
        if (n == 1) return;
        const int next = (r + 1) % n, prev = (r + n - 1) % n;
        ex.step(send, to(next), in(r));
        for (int i = 1; i < n - 1; ++i) ex.step(recv | copy | send, from(prev), to(next), out((r + n - i) % n));
        ex.step(recv | copy, from(prev), out(next));
    }
};

} // namespace algo
COLLX_END_NAMESPACE
