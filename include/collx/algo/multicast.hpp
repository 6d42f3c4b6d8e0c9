// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Zero-copy algorithms for a switch that multicasts. All-reduce and reduce-scatter need none of their own: the `fold`
// over all ranks of zero_copy.hpp is the switch's reduction, its `to_all` the switch's multicast; the executor of a
// kernel decides (device::multicast_protocol). All-gather and broadcast are different: in zero_copy.hpp every rank
// fetches what it needs. Here every element is read once and stored to all, also the least that ranks of one device can
// do.
//
// The host has no switch: a communicator of ranks on hosts refuses these algorithms.
#pragma once

#include <collx/algo/zero_copy.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// all_gather: rank r contributes chunk r. broadcast: rank r moves chunk r of the root's input.
// Shape: n chunks.
// Cost: all_gather: one chunk leaves each rank and n arrive. broadcast: the input is read once and stored n times.
template <collective C>
struct multicast {
    using moves = window_moves<C>;
    static constexpr collective op = C;
    static constexpr const char* name = "multicast";
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr bool only_on_devices = true; // the host's engine folds with an operator only
    static constexpr int chunks(int n) { return n; }
    root_member<C> root{};
    int depth = 2;

    constexpr std::uint64_t parameter_bits() const { return moves::bits_of(moves::rank_of(root), depth); }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int) const {
        const int owner = moves::has_root ? moves::rank_of(root) : r;
        store_to_all(ex, r, owner, owner + 1);
    }
};

// multicast, for each collective that it supports.
using multicast_all_gather = multicast<collective::all_gather>;
using multicast_broadcast = multicast<collective::broadcast>;

} // namespace algo
COLLX_END_NAMESPACE
