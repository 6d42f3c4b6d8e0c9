// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Collectives on buffers that lie in windows themselves (collx's shared allocator, registered memory): nothing is
// staged, every byte is read once where its owner put it.
//
// There are no stages here, the user's own memory is at stake, so every algorithm has two signals:
//   signal 0   my input may be read and my output be overwritten  (waited for before a peer's buffer is touched)
//   signal 1   I will touch no peer's buffer any more             (waited for at the end, from ranks that touch mine)
// All ranks give both signals in every call, so that calls may follow each other whatever their collective and root.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Rank r reduces chunk r of all inputs and stores it into all outputs.
// Shape: n chunks.
// Cost: n S read and n S written by all ranks together, the least any all-reduce can move.
// Order: rank order, equal on all ranks; any associative operator.
struct zero_copy_all_reduce {
    static constexpr collective op = collective::all_reduce;
    static constexpr const char* name = "zero_copy";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int depth = 2;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        ex.signal(0);
        ex.wait_all(0);
        ex.step(fold | to_all, at_ranks(0, n, in(r)), out(r));
        ex.signal(1);
        ex.wait_all(1);
    }
};

// Shape: n chunks; rank r keeps chunk r. In place is fine: no peer reads chunk r of rank r.
// Cost: n - 1 chunks read per rank, none copied.
// Order: rank order; any associative operator.
struct zero_copy_reduce_scatter {
    static constexpr collective op = collective::reduce_scatter;
    static constexpr const char* name = "zero_copy";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int depth = 2;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        ex.signal(0);
        ex.wait_all(0);
        ex.step(fold | copy, in(r), at_ranks(0, n, in(r)), out(r));
        ex.signal(1);
        ex.wait_all(1);
    }
};

// Shape: n chunks; rank r contributes chunk r.
// Cost: n - 1 chunks read per rank, each as soon as its owner is there.
struct zero_copy_all_gather {
    static constexpr collective op = collective::all_gather;
    static constexpr const char* name = "zero_copy";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int depth = 2;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        ex.signal(0);
        ex.step(copy, in(r), out(r));
        for (int i = 1; i < n; ++i) {
            const int k = (r + i) % n;
            ex.wait(0, k);
            ex.step(get | copy, at(k, in(k)), out(k));
        }
        ex.signal(1);
        ex.wait_all(1);
    }
};

// Shape: n chunks; chunk d of the input goes to rank d. Not in place.
// Cost: n - 1 chunks read per rank.
struct zero_copy_all_to_all {
    static constexpr collective op = collective::all_to_all;
    static constexpr const char* name = "zero_copy";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int depth = 2;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        ex.signal(0);
        ex.step(copy, in(r), out(r));
        for (int i = 1; i < n; ++i) {
            const int k = (r + n - i) % n;
            ex.wait(0, k);
            ex.step(get | copy, at(k, in(r)), out(k));
        }
        ex.signal(1);
        ex.wait_all(1);
    }
};

// Gather and scatter are for fused teams; the host's selector has no use for them yet.
// Shape: n chunks; rank r contributes chunk r.
// Cost: n - 1 chunks read by the root, each as soon as its owner is there; the others wait for the root only.
struct zero_copy_gather {
    static constexpr collective op = collective::gather;
    static constexpr const char* name = "zero_copy";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int root = 0;
    int depth = 2;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        ex.signal(0);
        if (r == root) {
            ex.step(copy, in(r), out(r));
            for (int i = 1; i < n; ++i) {
                const int k = (r + i) % n;
                ex.wait(0, k);
                ex.step(get | copy, at(k, in(k)), out(k));
            }
        }
        ex.signal(1);
        if (r != root) ex.wait(1, root);
    }
};

// Shape: n chunks; chunk k of the root's input goes to rank k.
// Cost: one chunk read per rank; only the root waits at the end.
struct zero_copy_scatter {
    static constexpr collective op = collective::scatter;
    static constexpr const char* name = "zero_copy";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int root = 0;
    int depth = 2;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int) const {
        ex.signal(0);
        if (r == root) {
            ex.step(copy, in(r), out(r));
        } else {
            ex.wait(0, root);
            ex.step(get | copy, at(root, in(r)), out(r));
        }
        ex.signal(1);
        if (r == root) ex.wait_all(1);
    }
};

// Shape: 1 chunk.
// Cost: n - 1 readers of the root's buffer; only the root waits at the end, because no other rank's buffer is read.
struct zero_copy_broadcast {
    static constexpr collective op = collective::broadcast;
    static constexpr const char* name = "zero_copy";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }
    int root = 0;
    int depth = 2;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int) const {
        ex.signal(0);
        if (r == root) {
            ex.step(copy, in(0), out(0));
        } else {
            ex.wait(0, root);
            ex.step(get | copy, at(root, in(0)), out(0));
        }
        ex.signal(1);
        if (r == root) ex.wait_all(1);
    }
};

// Shape: 1 chunk.
// Cost: n - 1 buffers read by the root; the others wait for the root only.
// Order: rank order; any associative operator.
struct zero_copy_reduce {
    static constexpr collective op = collective::reduce;
    static constexpr const char* name = "zero_copy";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }
    int root = 0;
    int depth = 2;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        ex.signal(0);
        if (r == root) {
            ex.wait_all(0);
            ex.step(fold | copy, in(0), at_ranks(0, n, in(0)), out(0));
        }
        ex.signal(1);
        if (r != root) ex.wait(1, root);
    }
};

} // namespace algo
COLLX_END_NAMESPACE
