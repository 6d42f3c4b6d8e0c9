// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A ring algorithm along several rings at once, each with its part of the buffer and its own order of the ranks: links
// that one ring leaves idle carry another, such as the other direction of each link. topo/member_order.hpp finds rings.
#pragma once

#include <cstdint>

#include <collx/sched/rank_order.hpp>
#include <collx/sched/schedule.hpp>
#include <collx/sched/sub_executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Shape: the chunks of Inner for each ring; ring j has the j-th of `count` equal parts, on its own strand.
// Cost: bytes and scratch of Inner, in `count` times as many messages.
// Requires: no rank has the same next rank on two rings, as a channel belongs to one strand; the verifier detects it.
// Order: along the ring, a different order in each part: reductions need a commutative operator.
//   comm.with(on_rings<ring_all_reduce>{orders.data(), 2})
template <class Inner>
struct on_rings {
    static_assert(Inner::op == collective::all_reduce,
                  "collx: on_rings is for all_reduce; the chunks of other collectives belong to ranks. Use in_order.");
    static constexpr collective op = Inner::op;
    static constexpr const char* name = "rings";
    static constexpr int min_depth = sched::min_depth_v<Inner>;
    static constexpr bool needs_commutative = true;
    const order_view* orders = nullptr; // must live as long as this value and the recorded steps
    int count = 0;

    constexpr bool fits(int n) const {
        bool all = count > 0;
        for (int j = 0; j < count; ++j) all = all && orders[j].fits(n);
        return all;
    }
    constexpr std::uint64_t parameter_bits() const {
        std::uint64_t h = static_cast<std::uint64_t>(count);
        for (int j = 0; j < count; ++j) h = (h ^ orders[j].hash()) * 0x9e37'79b9'7f4a'7c15;
        return h;
    }
    COLLX_HD constexpr int chunks(int n) const { return count * Inner{}.chunks(n); }
    constexpr int tmp_chunks(int n) const requires sched::has_scratch_v<Inner> {
        return count * sched::tmp_chunks_of(Inner{}, n);
    }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const int each = Inner{}.chunks(n);
        for (int j = 0; j < count; ++j)
            if (ex.strand(j))
                sched::run_inside(ex, Inner{}, orders[j].position_of(r), n, team{.list = orders[j].ranks()},
                                  {each, count * each, j * each, each});
    }
};

} // namespace algo
COLLX_END_NAMESPACE
