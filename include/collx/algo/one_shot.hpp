// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Small messages in one phase over windows: each rank publishes what others need and takes what it needs. One strand
// and one synchronisation per iteration instead of the two synchronisations of direct.hpp and two_shot.hpp; putting
// does not run ahead of taking.
#pragma once

#include <collx/algo/window_moves.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Private buffers, staged through windows.
//
// Why one signal is enough: the signal of iteration i says two things: this rank's data for i may be read, and it has
// finished iteration i - 1. A rank that has seen all signals of one iteration may therefore reuse the stages of earlier
// ones, so windows are >= 2 deep (checked). A rank that puts for a root, or is the root, sees signals only by waiting
// for old ones, and may be `depth` - 1 iterations ahead of its readers.
//
// Shape: chunks as in window_moves.hpp; window segment 0 has what others read.
// Cost: data are written to a window once, and read as that table says: all_reduce reads n - 1 buffers per rank,
// all_gather, reduce_scatter and all_to_all n - 1 chunks; one synchronisation.
// Order: rank order, equal on all ranks; any associative operator.
template <collective C>
struct one_shot {
    using moves = window_moves<C>;
    static constexpr collective op = C;
    static constexpr const char* name = "one_shot";
    static constexpr int window_depth = 2;
    static constexpr int signals = 1;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return moves::chunks(n); }
    root_member<C> root{};
    int depth = moves::has_root ? 4 : 2;

    constexpr std::uint64_t parameter_bits() const { return moves::bits_of(moves::rank_of(root), depth); }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const int root_rank = moves::rank_of(root);
        if (moves::puts(r, n, root_rank)) {
            if (moves::has_root) ex.wait_all(0, depth - 1);
            moves::put(ex, r, n);
        }
        ex.signal(0);
        moves::template take<staged>(ex, r, n, root_rank);
    }
};

// one_shot, for each collective that it supports.
using one_shot_all_reduce = one_shot<collective::all_reduce>;
using one_shot_reduce = one_shot<collective::reduce>;
using one_shot_broadcast = one_shot<collective::broadcast>;
using one_shot_all_gather = one_shot<collective::all_gather>;
using one_shot_reduce_scatter = one_shot<collective::reduce_scatter>;
using one_shot_all_to_all = one_shot<collective::all_to_all>;
using one_shot_scan = one_shot<collective::scan>;
using one_shot_exclusive_scan = one_shot<collective::exclusive_scan>;

} // namespace algo
COLLX_END_NAMESPACE
