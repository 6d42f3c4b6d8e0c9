// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two binary trees, each for one half of the message. In a single binary tree the inner ranks send everything twice and
// the leaves send nothing. Here every rank is inner in one tree and a leaf in the other, so that all links are busy and
// the depth is still logarithmic.
//
//   9 ranks, root 0      tree 0:  0 ─ 8 ─ 4 ─┬ 2 ─┬ 1        tree 1:  0 ─ 7 ─┬ 3 ─┬ 1 ─ 2
//                                            │    └ 3                         │    └ 5 ─┬ 4
//                                            └ 6 ─┬ 5                         │         └ 6
//                                                 └ 7                         └ 8
//
// Both trees are in rank order (all of the left subtree < the rank < all of the right one), so that reductions keep
// rank order. Tree 1 is tree 0 of n + 1 ranks in which rank v stands at place v + 1 and place 1, a leaf, is empty.
//
// Source: Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
// Computing 35(12), 2009.
#pragma once

#include <collx/algo/power_of_two.hpp>
#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// The parent and the children of one rank in a tree; -1: there is none.
struct tree_links {
    int parent = -1, left = -1, right = -1;
};

// One of the two trees, over ranks counted from the root. The root is not part of the binary tree: it stands above it,
// with a right child only. A place is odd if and only if it is a leaf.
class in_order_tree {
public:
    COLLX_HD constexpr in_order_tree(int n, int tree) : shift_(tree), last_(n - 1 + tree) {}

    COLLX_HD constexpr tree_links links(int v) const {
        if (v == 0) return {-1, -1, power_below(last_) - shift_};
        const int place = v + shift_, low = lowest_bit(place);
        int below = low / 2; // distance to the right child, which is nearer where the tree is cut off
        while (below > 0 && place + below > last_) below /= 2;
        const int left = place - low / 2;
        return {parent_of(place), low > 1 && left > shift_ ? left - shift_ : -1, below > 0 ? v + below : -1};
    }

    // The links of the tree with its leaves moved on by two leaves: no leaf has the same parent as in links().
    // Requires: at least four leaves.
    COLLX_HD constexpr tree_links links_with_moved_leaves(int v) const {
        if (v > 0 && is_leaf(v)) return {links(moved(v, -2)).parent, -1, -1};
        tree_links l = links(v);
        if (l.left > 0 && is_leaf(l.left)) l.left = moved(l.left, 2);
        if (l.right > 0 && is_leaf(l.right)) l.right = moved(l.right, 2);
        return l;
    }

private:
    COLLX_HD constexpr int parent_of(int place) const {
        const int low = lowest_bit(place);
        const bool is_right = (place & (2 * low)) != 0 || place + low > last_;
        const int parent = is_right ? place - low : place + low;
        return parent == 0 ? 0 : parent - shift_;
    }
    COLLX_HD constexpr bool is_leaf(int v) const { return (v + shift_) % 2 == 1; }
    COLLX_HD constexpr int moved(int v, int by) const {
        const int first = 1 + shift_, leaves = (last_ - shift_ - first) / 2 + 1;
        return first + 2 * (((v - first) / 2 + by + leaves) % leaves);
    }

    int shift_, last_; // last_: the last place
};

// The steps of one rank in one tree; the links name real ranks.
struct tree_walk {
    // For ranks other than the root.
    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD static constexpr void up(Ex& ex, const tree_links& l, chunk_set c) {
        if (l.left < 0 && l.right < 0) return ex.step(send, to(l.parent), in(c));
        if (l.right < 0) return ex.step(recv | reduce | send, from(l.left), to(l.parent), in(c));
        if (l.left >= 0) ex.step(recv | reduce | copy, from(l.left), in(c), tmp(c));
        ex.step(recv | reduce_after | send, from(l.right), to(l.parent), l.left >= 0 ? tmp(c) : in(c));
    }
    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD static constexpr void down(Ex& ex, const tree_links& l, chunk_set c) {
        const int first = l.left >= 0 ? l.left : l.right;
        if (first < 0) return ex.step(recv | copy, from(l.parent), out(c));
        ex.step(recv | copy | send, from(l.parent), to(first), out(c));
        if (l.left >= 0 && l.right >= 0) ex.step(send, to(l.right), out(c));
    }
    // Converts ranks relative to the root to real ranks.
    COLLX_HD static constexpr tree_links real(tree_links l, int root, int n) {
        const auto rank = [=](int v) { return v < 0 ? -1 : (root + v) % n; };
        return {rank(l.parent), rank(l.left), rank(l.right)};
    }
};

// Shape: 2 chunks, one per tree (2 ranks: one tree for both). Strand t is tree t.
// Cost: 2(n - 1) messages of one chunk (2 ranks: 1 of both), at most 2 per rank; about log2 n rounds; no scratch, slots
// >= 1.
struct double_tree_broadcast {
    static constexpr collective op = collective::broadcast;
    static constexpr const char* name = "double_tree";
    static constexpr int chunks(int) { return 2; }
    int root = 0;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const int trees = n > 2 ? 2 : 1, v = (r + n - root) % n;
        for (int t = 0; t < trees; ++t) {
            if (!ex.strand(t)) continue;
            const chunk_set c = trees == 2 ? chunk_set(t) : chunk_set(0, 2);
            const tree_links l = tree_walk::real(in_order_tree(n, t).links(v), root, n);
            if (v > 0) {
                tree_walk::down(ex, l, c);
            } else {
                if (n > 1) ex.step(send, to(l.right), in(c));
                ex.step(copy, in(c), out(c));
            }
        }
    }
};

// Shape: 2 chunks, one per tree (2 ranks: one tree for both). Strand t is tree t.
// Cost: 2(n - 1) messages of one chunk, 2 per rank (2 ranks: 1 of both chunks); scratch up to 2 chunks; slots >= 1.
// Order: root, root + 1, …, n - 1, 0, …: rank order with root 0, otherwise it needs a commutative operator.
struct double_tree_reduce {
    static constexpr collective op = collective::reduce;
    static constexpr const char* name = "double_tree";
    static constexpr bool needs_commutative = false;
    constexpr bool needs_commutative_for(int n) const { return root != 0 && n > 1; }
    static constexpr int chunks(int) { return 2; }
    static constexpr int tmp_chunks(int n) { return n > 4 ? 2 : n == 4 ? 1 : 0; }
    int root = 0;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return ex.step(copy, in({0, 2}), out({0, 2}));
        const int trees = n > 2 ? 2 : 1, v = (r + n - root) % n;
        for (int t = 0; t < trees; ++t) {
            if (!ex.strand(t)) continue;
            const chunk_set c = trees == 2 ? chunk_set(t) : chunk_set(0, 2);
            const tree_links l = tree_walk::real(in_order_tree(n, t).links(v), root, n);
            if (v > 0) tree_walk::up(ex, l, c);
            else ex.step(recv | reduce_after | copy, from(l.right), in(c), out(c));
        }
    }
};

// Reduces up both trees and broadcasts down, with rank 0 above them. At rank 0 both directions are one strand,
// elsewhere two, so that pieces follow one another without waiting for earlier ones to come back.
//
// A rank that sends up to some rank in one tree would send down to the same rank in the other tree, and two strands
// cannot share a channel. So the trees on the way down have other leaves. That takes four leaves in each; below 9 ranks
// one tree carries both halves.
// Shape: 2 chunks, one per tree (below 9 ranks: one tree for both).
// Cost: 4(n - 1) messages of one chunk, at most 4 per rank (below 9 ranks: 2(n - 1) of both chunks, at most 3 per
// rank); scratch 2 chunks if n > 3; slots >= 1. Order: rank order, equal on all ranks; any associative operator.
struct double_tree_all_reduce {
    static constexpr collective op = collective::all_reduce;
    static constexpr const char* name = "double_tree";
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int) { return 2; }
    static constexpr int tmp_chunks(int n) { return n > 3 ? 2 : 0; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return ex.step(copy, in({0, 2}), out({0, 2}));
        const int trees = n > 8 ? 2 : 1;
        for (int t = 0; t < trees; ++t) {
            const chunk_set c = trees == 2 ? chunk_set(t) : chunk_set(0, 2);
            const in_order_tree tree(n, t);
            const tree_links l = tree.links(r);
            if (ex.strand(t)) {
                if (r > 0) tree_walk::up(ex, l, c);
                else ex.step(recv | reduce_after | copy | send, from(l.right), to(l.right), in(c), out(c));
            }
            if (ex.strand(trees + t) && r > 0) tree_walk::down(ex, trees == 2 ? tree.links_with_moved_leaves(r) : l, c);
        }
    }
};

} // namespace algo
COLLX_END_NAMESPACE
