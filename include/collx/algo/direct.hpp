// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Direct exchange over windows: a rank puts what other ranks need into its own window, and these fetch it. One hop.
#pragma once

#include <collx/algo/window_moves.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Private buffers, staged through windows. For every collective all ranks give both signals in every iteration, so that
// any of them may follow any other on the same windows, with any root:
//   signal 0   the data that this rank put into this stage may be read
//   signal 1   this rank has read all it needs from this stage
// Strand 0, which puts, runs up to `depth` iterations ahead of strand 1, which fetches. It waits for all ranks before
// it reuses a stage: a rank that only puts, such as the root of a broadcast, has no other way to learn of its readers.
//
// Shape: chunks as in window_moves.hpp; window segment 0 has what others read.
// Cost: data are written to a window once. In all_gather, reduce_scatter and all_to_all a rank reads n - 1 chunks; the
// root of a gather or reduce reads the parts of all other ranks. Two synchronisations, which overlap the moves.
// Order: rank order; any associative operator.
template <collective C>
struct direct {
    using moves = window_moves<C>;
    static constexpr collective op = C;
    static constexpr const char* name = "direct";
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return moves::chunks(n); }
    root_member<C> root{};
    int depth = 4;

    constexpr std::uint64_t parameter_bits() const { return moves::bits_of(moves::rank_of(root), depth); }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const int root_rank = moves::rank_of(root);
        if (ex.strand(0)) {
            if (moves::puts(r, n, root_rank)) {
                ex.wait_all(1, depth);
                moves::put(ex, r, n);
            }
            ex.signal(0);
        }
        if (ex.strand(1)) {
            moves::template take<staged>(ex, r, n, root_rank);
            ex.signal(1);
        }
    }
};

// direct, for each collective that it supports.
using direct_reduce = direct<collective::reduce>;
using direct_broadcast = direct<collective::broadcast>;
using direct_all_gather = direct<collective::all_gather>;
using direct_reduce_scatter = direct<collective::reduce_scatter>;
using direct_all_to_all = direct<collective::all_to_all>;
using direct_gather = direct<collective::gather>;
using direct_scatter = direct<collective::scatter>;

} // namespace algo
COLLX_END_NAMESPACE
