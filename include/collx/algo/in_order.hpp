// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs any algorithm over channels with its ranks in another order: a ring along existing links, a tree of ranks that
// are close. The order matters most to rings; topo/member_order.hpp finds one for them.
#pragma once

#include <cstdint>

#include <collx/sched/rank_order.hpp>
#include <collx/sched/schedule.hpp>
#include <collx/sched/sub_executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Shape, Cost: those of Inner, whose strands become one.
// Order: operands are combined in the order of the positions: reductions need a commutative operator. Scans are
// refused.
//   comm.with(in_order<ring_all_reduce>{order})
template <class Inner>
struct in_order {
    static_assert(!is_rooted(Inner::op), "collx: in_order is for collectives without a root; use rooted_in_order.");
    static_assert(Inner::op != collective::scan && Inner::op != collective::exclusive_scan,
                  "collx: in_order changes the order of the ranks, and a scan is of the ranks before each, in theirs. "
                  "Run the scan without in_order.");
    static constexpr collective op = Inner::op;
    static constexpr const char* name = Inner::name;
    static constexpr int min_depth = sched::min_depth_v<Inner>;
    static constexpr bool needs_commutative = reduces(op);
    order_view order{}; // of as many ranks as the communicator has

    constexpr bool fits(int n) const { return order.fits(n); }
    constexpr std::uint64_t parameter_bits() const { return order.hash(); }
    COLLX_HD constexpr int chunks(int n) const { return Inner{}.chunks(n); }
    constexpr int tmp_chunks(int n) const requires sched::has_scratch_v<Inner> {
        const int kept = sched::tmp_chunks_of(Inner{}, n);
        return moves_chunks && kept > 0 ? chunks(n) : kept;
    }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const int all = chunks(n);
        sched::run_inside(ex, Inner{}, order.position_of(r), n, team{.list = order.ranks()},
                          {all, all, 0, all, moves_chunks ? order.ranks() : nullptr});
    }

private:
    // Chunks that belong to ranks follow them to their positions.
    static constexpr bool moves_chunks =
        op == collective::all_gather || op == collective::reduce_scatter || op == collective::all_to_all;
};

// The same for broadcast and reduce: a chain along the links, a tree of ranks that are close. Gather and scatter are
// left out, since their chunks belong to ranks.
//   comm.with(rooted_in_order<chain_broadcast>{order})
template <class Inner>
struct rooted_in_order {
    static_assert(Inner::op == collective::broadcast || Inner::op == collective::reduce,
                  "collx: rooted_in_order is for broadcast and reduce.");
    static constexpr collective op = Inner::op;
    static constexpr const char* name = Inner::name;
    static constexpr int min_depth = sched::min_depth_v<Inner>;
    static constexpr bool needs_commutative = reduces(op);
    order_view order{};
    int root = 0;

    constexpr bool fits(int n) const { return order.fits(n); }
    constexpr std::uint64_t parameter_bits() const {
        return order.hash() ^ static_cast<std::uint64_t>(root) * 0x9e37'79b9'7f4a'7c15;
    }
    COLLX_HD constexpr int chunks(int n) const { return inner().chunks(n); }
    constexpr int tmp_chunks(int n) const requires sched::has_scratch_v<Inner> {
        return sched::tmp_chunks_of(inner(), n);
    }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const int all = chunks(n);
        sched::run_inside(ex, inner(), order.position_of(r), n, team{.list = order.ranks()}, {all, all, 0, all});
    }

private:
    COLLX_HD constexpr Inner inner() const {
        Inner a{};
        a.root = order.position_of(root);
        return a;
    }
};

} // namespace algo
COLLX_END_NAMESPACE
