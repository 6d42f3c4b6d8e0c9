// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Direct exchange over windows: a rank puts what others need into its own window, the others fetch it. One hop.
//
// The pattern is the same in every text but the scans, so that any of them may follow any other on the same windows,
// with any root:
//   signal 0   what I put into this stage may be read       (given by all ranks in every iteration)
//   signal 1   I have read all I need from this stage       (given by all ranks in every iteration)
// Putting (strand 0) runs up to `depth` iterations ahead of fetching (strand 1) and asks all ranks before it overwrites
// a stage: a rank that only puts, such as the root of a broadcast, hears of its readers in no other way. The scans keep
// one strand and one signal instead: who has seen all signals of an iteration knows that all have left the one before.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Shape: 1 chunk.
// Cost: one buffer put by the root, read by n - 1 ranks.
struct direct_broadcast {
    static constexpr collective op = collective::broadcast;
    static constexpr const char* name = "direct";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }
    int root = 0;
    int depth = 4;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int) const {
        if (ex.strand(0)) {
            if (r == root) {
                ex.wait_all(1, depth);
                ex.step(copy, in(0), window(0, 0));
            }
            ex.signal(0);
        }
        if (ex.strand(1)) {
            if (r == root) {
                ex.step(copy, in(0), out(0));
            } else {
                ex.wait(0, root);
                ex.step(get | copy, at(root, window(0, 0)), out(0));
            }
            ex.signal(1);
        }
    }
};

// Shape: 1 chunk.
// Cost: one buffer put per rank but the root, all read by the root.
// Order: rank order; any associative operator.
struct direct_reduce {
    static constexpr collective op = collective::reduce;
    static constexpr const char* name = "direct";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }
    int root = 0;
    int depth = 4;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (ex.strand(0)) {
            if (r != root) {
                ex.wait_all(1, depth);
                ex.step(copy, in(0), window(0, 0));
            }
            ex.signal(0);
        }
        if (ex.strand(1)) {
            if (r == root) {
                ex.wait_all(0);
                ex.step(fold | copy, in(0), at_ranks(0, n, window(0, 0)), out(0));
            }
            ex.signal(1);
        }
    }
};

// Shape: n chunks; rank r contributes chunk r.
// Cost: one chunk put and n - 1 read per rank.
struct direct_all_gather {
    static constexpr collective op = collective::all_gather;
    static constexpr const char* name = "direct";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int depth = 4;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (ex.strand(0)) {
            ex.wait_all(1, depth);
            ex.step(copy, in(r), window(0, r));
            ex.signal(0);
        }
        if (ex.strand(1)) {
            ex.step(copy, in(r), out(r));
            for (int i = 1; i < n; ++i) {
                const int k = (r + i) % n;
                ex.wait(0, k);
                ex.step(get | copy, at(k, window(0, k)), out(k));
            }
            ex.signal(1);
        }
    }
};

// Shape: n chunks; rank r keeps chunk r.
// Cost: n - 1 chunks put and n - 1 read per rank.
// Order: rank order; any associative operator.
struct direct_reduce_scatter {
    static constexpr collective op = collective::reduce_scatter;
    static constexpr const char* name = "direct";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int depth = 4;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (ex.strand(0)) {
            ex.wait_all(1, depth);
            for (int i = 1; i < n; ++i) ex.step(copy, in((r + i) % n), window(0, (r + i) % n));
            ex.signal(0);
        }
        if (ex.strand(1)) {
            ex.wait_all(0);
            ex.step(fold | copy, in(r), at_ranks(0, n, window(0, r)), out(r));
            ex.signal(1);
        }
    }
};

// Shape: n chunks; chunk d of the input goes to rank d. Not in place.
// Cost: n - 1 chunks put and n - 1 read per rank.
struct direct_all_to_all {
    static constexpr collective op = collective::all_to_all;
    static constexpr const char* name = "direct";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int depth = 4;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (ex.strand(0)) {
            ex.wait_all(1, depth);
            for (int i = 1; i < n; ++i) ex.step(copy, in((r + i) % n), window(0, (r + i) % n));
            ex.signal(0);
        }
        if (ex.strand(1)) {
            ex.step(copy, in(r), out(r));
            for (int i = 1; i < n; ++i) {
                const int k = (r + n - i) % n;
                ex.wait(0, k);
                ex.step(get | copy, at(k, window(0, r)), out(k));
            }
            ex.signal(1);
        }
    }
};

// Shape: n chunks; rank r contributes chunk r.
// Cost: one chunk put per rank but the root, which reads n - 1.
struct direct_gather {
    static constexpr collective op = collective::gather;
    static constexpr const char* name = "direct";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int root = 0;
    int depth = 4;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (ex.strand(0)) {
            if (r != root) {
                ex.wait_all(1, depth);
                ex.step(copy, in(r), window(0, r));
            }
            ex.signal(0);
        }
        if (ex.strand(1)) {
            if (r == root) {
                ex.step(copy, in(r), out(r));
                for (int i = 1; i < n; ++i) {
                    const int k = (r + i) % n;
                    ex.wait(0, k);
                    ex.step(get | copy, at(k, window(0, k)), out(k));
                }
            }
            ex.signal(1);
        }
    }
};

// Shape: n chunks; chunk k of the root's input goes to rank k.
// Cost: n - 1 chunks put by the root, each read by one rank.
struct direct_scatter {
    static constexpr collective op = collective::scatter;
    static constexpr const char* name = "direct";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int root = 0;
    int depth = 4;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (ex.strand(0)) {
            if (r == root) {
                ex.wait_all(1, depth);
                for (int i = 1; i < n; ++i) ex.step(copy, in((r + i) % n), window(0, (r + i) % n));
            }
            ex.signal(0);
        }
        if (ex.strand(1)) {
            if (r == root) {
                ex.step(copy, in(r), out(r));
            } else {
                ex.wait(0, root);
                ex.step(get | copy, at(root, window(0, r)), out(r));
            }
            ex.signal(1);
        }
    }
};

// Shape: 1 chunk.
// Cost: one buffer put per rank but the last, r read by rank r; one synchronisation; windows >= 2 deep.
// Order: rank order; any associative operator.
struct direct_scan {
    static constexpr collective op = collective::scan;
    static constexpr const char* name = "direct";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 2;
    static constexpr int signals = 1;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }
    int depth = 2;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (r < n - 1) ex.step(copy, in(0), window(0, 0));
        ex.signal(0);
        ex.wait_all(0); // of all, not only of the lower ranks: that is what makes two stages enough
        ex.step(fold | copy, in(0), at_ranks(0, r + 1, window(0, 0)), out(0));
    }
};

// Shape, cost and order as direct_scan; rank 0 receives nothing.
struct direct_exclusive_scan {
    static constexpr collective op = collective::exclusive_scan;
    static constexpr const char* name = "direct";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 2;
    static constexpr int signals = 1;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }
    int depth = 2;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (r < n - 1) ex.step(copy, in(0), window(0, 0));
        ex.signal(0);
        ex.wait_all(0);
        if (r > 0) ex.step(fold | copy, ref{}, at_ranks(0, r, window(0, 0)), out(0));
    }
};

} // namespace algo
COLLX_END_NAMESPACE
