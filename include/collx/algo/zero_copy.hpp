// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Collectives on buffers that lie in windows themselves (collx's shared allocator, registered memory): nothing is
// staged, and every byte is read once from its owner's buffer.
#pragma once

#include <collx/algo/window_moves.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// There are no stages: peers access the program's own buffers, so every verb has two signals:
//   signal 0   this rank's input may be read, its output overwritten  (waited for before a peer's buffer is touched)
//   signal 1   this rank touches no peer's buffer any more  (waited for at the end, from ranks that touch its own)
// All ranks give both signals in every call, so that calls may follow each other whatever their collective and root.
//
// Shape: chunks as in window_moves.hpp.
// Cost: what the table there says is read, each part as soon as its owner has entered; nothing is copied on the way.
// With a root, one side waits at the end: the ranks whose buffers were read.
// Order: rank order; any associative operator. May be in place where the verb allows it: no peer reads what a rank
// overwrites.
template <collective C>
struct zero_copy {
    using moves = window_moves<C>;
    static constexpr collective op = C;
    static constexpr const char* name = "zero_copy";
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return moves::chunks(n); }
    root_member<C> root{};
    int depth = 2;

    constexpr std::uint64_t parameter_bits() const { return moves::bits_of(moves::rank_of(root), depth); }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const int root_rank = moves::rank_of(root);
        ex.signal(0);
        moves::template take<unstaged>(ex, r, n, root_rank);
        ex.signal(1);
        if (!moves::puts(r, n, root_rank)) return;
        if (moves::to_root) ex.wait(1, root_rank);
        else ex.wait_all(1);
    }
};

// Rank r stores chunk r, reduced over the ranks [first, last), into the outputs of all ranks. Two synchronisations of
// all.
COLLX_EXEC_CHECK_DISABLE
template <class Ex>
COLLX_HD constexpr void store_to_all(Ex& ex, int r, int first, int last) {
    ex.signal(0);
    ex.wait_all(0);
    ex.step(fold | to_all, at_ranks(first, last, in(r)), out(r));
    ex.signal(1);
    ex.wait_all(1);
}

// Rank r reduces chunk r of all inputs and stores it into all outputs.
// Shape: n chunks.
// Cost: n S read and n S written by all ranks together, the least any all-reduce can move.
template <>
struct zero_copy<collective::all_reduce> {
    static constexpr collective op = collective::all_reduce;
    static constexpr const char* name = "zero_copy";
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int depth = 2;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        store_to_all(ex, r, 0, n);
    }
};

// zero_copy, for each collective that it supports.
using zero_copy_all_reduce = zero_copy<collective::all_reduce>;
using zero_copy_reduce = zero_copy<collective::reduce>;
using zero_copy_broadcast = zero_copy<collective::broadcast>;
using zero_copy_all_gather = zero_copy<collective::all_gather>;
using zero_copy_reduce_scatter = zero_copy<collective::reduce_scatter>;
using zero_copy_all_to_all = zero_copy<collective::all_to_all>;
// For fused teams; the host's selector does not use them.
using zero_copy_gather = zero_copy<collective::gather>;
using zero_copy_scatter = zero_copy<collective::scatter>;

} // namespace algo
COLLX_END_NAMESPACE
