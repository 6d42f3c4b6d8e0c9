// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a switch that multicasts adds to the zero-copy texts. All-reduce and reduce-scatter need no text of their own:
// the `fold` over all ranks of zero_copy.hpp is the switch's reduction, its `to_all` the switch's multicast; the
// executor of a kernel decides (device::multicast_protocol). Only an all-gather is different: zero_copy_all_gather
// fetches from every rank, here every rank sends once and the switch copies.
//
// The host's engine has no switch; there this text is for the proofs.
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
        ex.template step<fold | to_all>(at_ranks(r, r + 1, in(r)), out(r));
        ex.signal(1);
        ex.wait_all(1);
    }
};

} // namespace algo
COLLX_END_NAMESPACE
