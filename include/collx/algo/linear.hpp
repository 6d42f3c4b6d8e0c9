// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The root exchanges data directly with each rank. Best for very few ranks, and easiest to check. Its reduction is the
// loop one would write by hand: the reference for results that must not depend on the algorithm.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Shape: 1 chunk.
// Cost: n - 1 messages, all from the root; no scratch, slots >= 1.
struct linear_broadcast {
    static constexpr collective op = collective::broadcast;
    static constexpr const char* name = "linear";
    static constexpr int chunks(int) { return 1; }
    int root = 0;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (r != root) return ex.step(recv | copy, from(root), out(0));
        for (int i = 1; i < n; ++i) ex.step(send, to((root + i) % n), in(0));
        ex.step(copy, in(0), out(0));
    }
};

// The root reduces the operands one by one, its own over a channel to itself unless that is among the first two.
// Shape: 1 chunk.
// Cost: n - 1 messages to the root and one more to itself if root > 1; scratch 1 chunk if n > 2; slots >= 1.
// Order: ((x0 op x1) op x2) op … as in a sequential loop: the same bits for every root.
struct linear_reduce {
    static constexpr collective op = collective::reduce;
    static constexpr const char* name = "linear";
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 1; }
    static constexpr int tmp_chunks(int n) { return n > 2 ? 1 : 0; }
    int root = 0;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return ex.step(copy, in(0), out(0));
        if (r != root || root > 1) ex.step(send, to(root), in(0));
        if (r == root) take_in_turn(ex, root, n, 0);
    }

    // Reduces the operands of a chunk at the root, one by one. The root's own is in `in` if it is among the first two;
    // else the root has sent it to itself.
    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD static constexpr void take_in_turn(Ex& ex, int root, int n, int chunk) {
        const auto next = [&](int k) { return k == n - 1 ? out(chunk) : tmp(chunk); };
        if (root == 0) ex.step(recv | reduce_after | copy, from(1), in(chunk), next(1));
        if (root == 1) ex.step(recv | reduce | copy, from(0), in(chunk), next(1));
        if (root > 1) {
            ex.step(recv | copy, from(0), tmp(chunk));
            ex.step(recv | reduce_after | copy, from(1), tmp(chunk), next(1));
        }
        for (int k = 2; k < n; ++k) ex.step(recv | reduce_after | copy, from(k), tmp(chunk), next(k));
    }
};

// Every rank is the root of its chunk.
// Shape: n chunks; rank r keeps chunk r.
// Cost: n - 1 messages of one chunk per rank, and one more to itself if r > 1; scratch n chunks if n > 2, of which one
// is used; slots >= 1.
// Order: as in a sequential loop, for every rank.
struct linear_reduce_scatter {
    static constexpr collective op = collective::reduce_scatter;
    static constexpr const char* name = "linear";
    static constexpr bool needs_commutative = false;
    COLLX_HD static constexpr int chunks(int n) { return n; }
    static constexpr int tmp_chunks(int n) { return n > 2 ? n : 0; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return ex.step(copy, in(0), out(0));
        for (int i = 1; i < n; ++i) ex.step(send, to((r + i) % n), in((r + i) % n));
        if (r > 1) ex.step(send, to(r), in(r));
        linear_reduce::take_in_turn(ex, r, n, r);
    }
};

// As linear_reduce_scatter; each rank then sends its chunk of the result to all others.
// Shape: n chunks.
// Cost: 2 (n - 1) messages of one chunk per rank, and one more to itself if r > 1;
// scratch n chunks if n > 2, of which one is used; slots >= 1.
// Order: as in a sequential loop: what deterministic{} asks for where ranks do not share memory.
struct linear_all_reduce {
    static constexpr collective op = collective::all_reduce;
    static constexpr const char* name = "linear";
    static constexpr bool needs_commutative = false;
    COLLX_HD static constexpr int chunks(int n) { return n; }
    static constexpr int tmp_chunks(int n) { return n > 2 ? n : 0; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        linear_reduce_scatter{}(ex, r, n);
        for (int i = 1; i < n; ++i) ex.step(send, to((r + i) % n), out(r));
        for (int i = 1; i < n; ++i) ex.step(recv | copy, from((r + n - i) % n), out((r + n - i) % n));
    }
};

// Shape: n chunks; rank r contributes chunk r.
// Cost: n - 1 messages of one chunk to the root; no scratch, slots >= 1.
struct linear_gather {
    static constexpr collective op = collective::gather;
    static constexpr const char* name = "linear";
    static constexpr int chunks(int n) { return n; }
    int root = 0;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (r != root) return ex.step(send, to(root), in(r));
        ex.step(copy, in(r), out(r));
        for (int i = 1; i < n; ++i) ex.step(recv | copy, from((root + i) % n), out((root + i) % n));
    }
};

// Shape: n chunks; chunk k of the root's input goes to rank k.
// Cost: n - 1 messages of one chunk from the root; no scratch, slots >= 1.
struct linear_scatter {
    static constexpr collective op = collective::scatter;
    static constexpr const char* name = "linear";
    static constexpr int chunks(int n) { return n; }
    int root = 0;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (r != root) return ex.step(recv | copy, from(root), out(r));
        for (int i = 1; i < n; ++i) ex.step(send, to((root + i) % n), in((root + i) % n));
        ex.step(copy, in(r), out(r));
    }
};

} // namespace algo
COLLX_END_NAMESPACE
