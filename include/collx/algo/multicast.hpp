// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a switch that multicasts adds to the zero-copy texts. All-reduce and reduce-scatter need no text of their own:
// the `fold` over all ranks of zero_copy.hpp is the switch's reduction, its `to_all` the switch's multicast; the
// executor of a kernel decides (device::multicast_protocol). All-gather and broadcast are different: in zero_copy.hpp
// every rank fetches what it needs, here every element is read once and stored to all, which is also the least that
// ranks of one device can do.
//
// The host's engine has no switch; there these texts are for the proofs.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Shape: n chunks; rank r contributes chunk r.
// Cost: one chunk leaves each rank and n arrive.
struct multicast_all_gather {
    static constexpr collective op = collective::all_gather;
    static constexpr const char* name = "multicast";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int depth = 2;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int) const {
        ex.signal(0);
        ex.wait_all(0);
        ex.step(fold | to_all, at_ranks(r, r + 1, in(r)), out(r));
        ex.signal(1);
        ex.wait_all(1);
    }
};

// Shape: n chunks of the root's input, of which rank r moves chunk r to all: the ranks share the work.
// Cost: the input is read once, and stored n times.
struct multicast_broadcast {
    static constexpr collective op = collective::broadcast;
    static constexpr const char* name = "multicast";
    static constexpr int min_depth = 0;
    static constexpr int window_depth = 1;
    static constexpr int signals = 2;
    static constexpr bool needs_commutative = false;
    static constexpr int chunks(int n) { return n; }
    int depth = 2;
    int root = 0;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int) const {
        ex.signal(0);
        ex.wait_all(0);
        ex.step(fold | to_all, at_ranks(root, root + 1, in(r)), out(r));
        ex.signal(1);
        ex.wait_all(1);
    }
};

} // namespace algo
COLLX_END_NAMESPACE
