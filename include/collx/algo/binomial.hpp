// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Binomial trees: in each round every rank that has the message passes it on, so that n ranks are reached in ceil(log2
// n) rounds. For short messages: fewest rounds, but the root sends the whole message repeatedly.
//
//   8 ranks:   0 ── 4 ── 6 ── 7        the subtree of a rank v is the interval [v, v + lowest bit of v),
//              │    └─ 5               so that gathered chunks are consecutive and reductions keep rank order
//              ├── 2 ── 3
//              └── 1
//
// Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA
// 19(1), 2005.
#pragma once

#include <collx/algo/power_of_two.hpp>
#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Shape: 1 chunk; the tree is rotated so that it starts at the root.
// Cost: ceil(log2 n) rounds, n - 1 messages, at most ceil(log2 n) from one rank; no scratch, slots >= 1.
struct binomial_broadcast {
    static constexpr collective op = collective::broadcast;
    static constexpr const char* name = "binomial";
    COLLX_HD static constexpr int chunks(int) { return 1; }
    int root = 0;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const int v = (r + n - root) % n;
        int span = v == 0 ? 2 * power_below(n) : lowest_bit(v);
        if (v > 0) ex.step(recv | copy, from((root + v - span) % n), out(0));
        while ((span /= 2) > 0)
            if (v + span < n) ex.step(send, to((root + v + span) % n), v == 0 ? in(0) : out(0));
        if (v == 0) ex.step(copy, in(0), out(0));
    }
};

// Two trees with a common root: one of the ranks above it, and one of the ranks below it, mirrored. With root 0 it is
// the pictured tree.
// Shape: 1 chunk.
// Cost: n - 1 messages, of which the root receives ceil(log2(root + 1)) + ceil(log2(n - root)); with root 0 it takes
// ceil(log2 n) rounds. Scratch 1 chunk if n > 2; slots >= 1.
// Order: rank order for every root; any associative operator.
struct binomial_reduce {
    static constexpr collective op = collective::reduce;
    static constexpr const char* name = "binomial";
    static constexpr bool needs_commutative = false;
    COLLX_HD static constexpr int chunks(int) { return 1; }
    static constexpr int tmp_chunks(int n) { return n > 2 ? 1 : 0; }
    int root = 0;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return ex.step(copy, in(0), out(0));
        const int v = r < root ? root - r : r - root;
        const int span = v == 0 ? n : lowest_bit(v);
        const int parent = r < root ? r + span : r - span; // not used at the root
        int children = 0;
        for (int d = 1; d < span; d *= 2) children += (r <= root && r - d >= 0) + (r >= root && r + d < n);
        if (children == 0) return ex.step(send, to(parent), in(0));
        ref partial = in(0);
        // side: reduce, where the child's operands stand before this rank's, else reduce_after.
        const auto take = [&](auto side, int child) {
            if (--children > 0) ex.step(recv | side | copy, from(child), partial, tmp(0));
            else if (r == root) ex.step(recv | side | copy, from(child), partial, out(0));
            else ex.step(recv | side | send, from(child), to(parent), partial);
            partial = tmp(0);
        };
        for (int d = 1; d < span; d *= 2) {
            if (r <= root && r - d >= 0) take(reduce, r - d);
            if (r >= root && r + d < n) take(reduce_after, r + d);
        }
    }
};

// Reduces to rank 0 (strand 0), broadcasts from there (strand 1; at rank 0 strand 0 continues). Both along one tree.
// Shape: 1 chunk.
// Cost: 2 ceil(log2 n) rounds, 2(n - 1) messages; scratch 1 chunk if n > 2; slots >= 1.
// Order: rank order, equal on all ranks; any associative operator.
struct binomial_all_reduce {
    static constexpr collective op = collective::all_reduce;
    static constexpr const char* name = "binomial";
    static constexpr bool needs_commutative = false;
    COLLX_HD static constexpr int chunks(int) { return 1; }
    static constexpr int tmp_chunks(int n) { return n > 2 ? 1 : 0; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return ex.step(copy, in(0), out(0));
        const int span = r == 0 ? 2 * power_below(n - 1) : lowest_bit(r), parent = r - span;
        int far = span / 2; // the last child to reduce and the first to send to
        while (far > 0 && r + far >= n) far /= 2;
        if (ex.strand(0)) {
            for (int d = 1; d < far; d *= 2)
                ex.step(recv | reduce_after | copy, from(r + d), d == 1 ? in(0) : tmp(0), tmp(0));
            const ref partial = far > 1 ? tmp(0) : in(0);
            if (r == 0) {
                ex.step(recv | reduce_after | copy | send, from(far), to(far), partial, out(0));
                tell(ex, r, far / 2);
            } else if (far > 0) {
                ex.step(recv | reduce_after | send, from(r + far), to(parent), partial);
            } else {
                ex.step(send, to(parent), in(0));
            }
        }
        if (ex.strand(1) && r > 0) {
            if (far > 0) ex.step(recv | copy | send, from(parent), to(r + far), out(0));
            else ex.step(recv | copy, from(parent), out(0));
            tell(ex, r, far / 2);
        }
    }

private:
    template <class Ex>
    COLLX_HD static constexpr void tell(Ex& ex, int r, int d) {
        for (; d > 0; d /= 2) ex.step(send, to(r + d), out(0));
    }
};

// One more than the largest chunk that passes through a rank other than the root, since chunk c is kept in tmp(c).
// Those of the root, of its first child and of a last rank that is the root's child do not.
COLLX_HD constexpr int subtree_scratch(int n, int root) {
    if (n < 4) return 0;
    if (root > 0 && root < n - 2) return n;
    const int end = power_below(n - 1) == n - 1 ? n - 1 : n;
    return (root + end - 1) % n + 1;
}

// Shape: n chunks; rank r contributes chunk r. The tree is rotated so that it starts at the root.
// Cost: ceil(log2 n) rounds, n - 1 messages of one subtree each; scratch up to n chunks; slots >= 1.
struct binomial_gather {
    static constexpr collective op = collective::gather;
    static constexpr const char* name = "binomial";
    COLLX_HD static constexpr int chunks(int n) { return n; }
    constexpr int tmp_chunks(int n) const { return subtree_scratch(n, root); }
    int root = 0;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const int v = (r + n - root) % n, span = v == 0 ? n : lowest_bit(v);
        const int size = span < n - v ? span : n - v; // ranks in this rank's subtree
        const int parent = (r + n - span) % n;
        if (v > 0 && size == 1) return ex.step(send, to(parent), in(r));
        ex.step(copy, in(r), v == 0 ? out(r) : tmp(r));
        for (int d = 1; d < size; d *= 2) {
            const int child = (r + d) % n;
            const chunk_set theirs{child, d < size - d ? d : size - d};
            ex.step(recv | copy, from(child), v == 0 ? out(theirs) : tmp(theirs));
        }
        if (v > 0) ex.step(send, to(parent), tmp({r, size}));
    }
};

// Shape: n chunks; chunk k of the root's input goes to rank k. The tree is rotated so that it starts at the root.
// Cost: ceil(log2 n) rounds, n - 1 messages of one subtree each; scratch up to n chunks; slots >= 1.
struct binomial_scatter {
    static constexpr collective op = collective::scatter;
    static constexpr const char* name = "binomial";
    COLLX_HD static constexpr int chunks(int n) { return n; }
    constexpr int tmp_chunks(int n) const { return subtree_scratch(n, root); }
    int root = 0;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const int v = (r + n - root) % n, span = v == 0 ? n : lowest_bit(v);
        const int size = span < n - v ? span : n - v;
        const int parent = (r + n - span) % n;
        if (v > 0 && size == 1) return ex.step(recv | copy, from(parent), out(r));
        if (v > 0) ex.step(recv | copy, from(parent), tmp({r, size}));
        for (int d = size > 1 ? power_below(size - 1) : 0; d > 0; d /= 2) {
            const int child = (r + d) % n;
            const chunk_set theirs{child, d < size - d ? d : size - d};
            ex.step(send, to(child), v == 0 ? in(theirs) : tmp(theirs));
        }
        ex.step(copy, v == 0 ? in(r) : tmp(r), out(r));
    }
};

} // namespace algo
COLLX_END_NAMESPACE
