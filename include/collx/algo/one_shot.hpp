// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Small messages in one phase over windows: each rank publishes what others need and takes what it needs. One
// strand and one signal per iteration instead of the two of direct.hpp and two_shot.hpp: half the synchronisation, and
// no putting ahead while taking.
//
// Why one signal is enough: the signal of iteration i says two things, "what I put for i may be read" and "I have left
// iteration i - 1". Who has seen all signals of one iteration may therefore reuse the stages of those before it.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Private buffers, staged through windows.
// Shape: 1 chunk. Window segment 0: the contribution.
// Cost: the buffer is written to a window once and n - 1 windows are read; one synchronisation; windows >= 2 deep
// (checked): a rank that sees all signals of iteration i knows that all ranks have left iteration i - 1, so two
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
        ex.step(copy, in(0), window(0, 0));
        ex.signal(0);
        ex.wait_all(0);
        ex.step(fold | copy, in(0), at_ranks(0, n, window(0, 0)), out(0));
    }
};

// Shape: n chunks; rank r contributes chunk r.
// Cost: one chunk put and n - 1 read per rank; one synchronisation; windows >= 2 deep.
struct one_shot_all_gather {
    static constexpr collective op = collective::all_gather;
    static constexpr const char* name = "one_shot";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 2;
    static constexpr int signals = 1;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int depth = 2;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        ex.step(copy, in(r), window(0, r));
        ex.signal(0);
        ex.step(copy, in(r), out(r));
        for (int i = 1; i < n; ++i) {
            const int k = (r + i) % n;
            ex.wait(0, k);
            ex.step(get | copy, at(k, window(0, k)), out(k));
        }
    }
};

// Shape: n chunks; chunk d of the input goes to rank d.
// Cost: n - 1 chunks put and n - 1 read per rank; one synchronisation, where pairwise.hpp has a message for each peer;
// windows >= 2 deep.
struct one_shot_all_to_all {
    static constexpr collective op = collective::all_to_all;
    static constexpr const char* name = "one_shot";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 2;
    static constexpr int signals = 1;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int depth = 2;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        for (int i = 1; i < n; ++i) ex.step(copy, in((r + i) % n), window(0, (r + i) % n));
        ex.signal(0);
        ex.step(copy, in(r), out(r));
        for (int i = 1; i < n; ++i) {
            const int k = (r + i) % n;
            ex.wait(0, k);
            ex.step(get | copy, at(k, window(0, r)), out(k));
        }
    }
};

// Shape: n chunks; rank r keeps chunk r.
// Cost: n - 1 chunks put and n - 1 read per rank; one synchronisation; windows >= 2 deep.
// Order: rank order; any associative operator.
struct one_shot_reduce_scatter {
    static constexpr collective op = collective::reduce_scatter;
    static constexpr const char* name = "one_shot";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 2;
    static constexpr int signals = 1;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int depth = 2;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        for (int i = 1; i < n; ++i) ex.step(copy, in((r + i) % n), window(0, (r + i) % n));
        ex.signal(0);
        ex.wait_all(0);
        ex.step(fold | copy, in(r), at_ranks(0, n, window(0, r)), out(r));
    }
};

// The root may be `depth` - 1 iterations ahead of its readers, whose signals it hears of in no other way than by asking
// for old ones.
// Shape: 1 chunk.
// Cost: one buffer put by the root, read by n - 1 ranks; one synchronisation; windows >= 2 deep.
struct one_shot_broadcast {
    static constexpr collective op = collective::broadcast;
    static constexpr const char* name = "one_shot";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 2;
    static constexpr int signals = 1;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }
    int root = 0;
    int depth = 4;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int) const {
        if (r == root) {
            ex.wait_all(0, depth - 1);
            ex.step(copy, in(0), window(0, 0));
        }
        ex.signal(0);
        if (r == root) {
            ex.step(copy, in(0), out(0));
        } else {
            ex.wait(0, root);
            ex.step(get | copy, at(root, window(0, 0)), out(0));
        }
    }
};

// Shape: 1 chunk.
// Cost: one buffer put per rank but the root, all read by the root; one synchronisation; windows >= 2 deep.
// Order: rank order; any associative operator.
struct one_shot_reduce {
    static constexpr collective op = collective::reduce;
    static constexpr const char* name = "one_shot";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 2;
    static constexpr int signals = 1;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }
    int root = 0;
    int depth = 4;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (r != root) {
            ex.wait_all(0, depth - 1);
            ex.step(copy, in(0), window(0, 0));
        }
        ex.signal(0);
        if (r == root) {
            ex.wait_all(0);
            ex.step(fold | copy, in(0), at_ranks(0, n, window(0, 0)), out(0));
        }
    }
};

} // namespace algo
COLLX_END_NAMESPACE
