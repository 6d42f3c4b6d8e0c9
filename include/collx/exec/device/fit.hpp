// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whether kernels can run an algorithm: whether they have as many signals, stages, slots and chunks as it declares, and
// whether all that it reads travels with the launch. Knows no buffers and no machine.
#pragma once

#include <collx/core/error.hpp>
#include <collx/exec/device/usage.hpp>
#include <collx/sched/bounds.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// What an algorithm reads in the host's memory while it runs, null: nothing. A kernel gets a copy of the algorithm's
// members, and no table that they refer to.
template <class Algorithm>
constexpr const char* host_table_of(const Algorithm& a) {
    if constexpr (requires { a.nodes.by_node(); })
        if (a.nodes.by_node() != nullptr && a.nodes.nodes() != 1 && a.nodes.largest() != 1) return "a map of nodes";
    if constexpr (requires { a.order.ranks(); })
        if (a.order.ranks() != nullptr) return "an order of ranks";
    if constexpr (requires { a.orders->ranks(); }) return "orders of ranks";
    if constexpr (requires { a.route.stop_of(0); }) return "a route";
    return nullptr;
}

// Errors: invalid_argument for an algorithm that does not fit the ranks, or needs more than there is · unsupported for
//     one that reads the host's memory.
template <class Algorithm>
void require_bounds(Algorithm a, const exchange_shape& s, int most_chunks) {
    sched::set_window_depth(a, static_cast<int>(s.stages)); // as deep as the team's
    sched::require_bounds(sched::declaration_of(a, s.ranks),
                          {.chunks = most_chunks,
                           .signals = max_signals,
                           .window_depth = static_cast<int>(s.stages),
                           .depth = static_cast<int>(s.slots)},
                          -1);
    if (const char* table = host_table_of(a); table != nullptr)
        fail(errc::unsupported, -1, -1, "use its inner algorithm",
             "algorithm %s reads %s, which lies in the host's memory, where no kernel can read it", Algorithm::name,
             table);
}

// Refuses an algorithm whose scratch has no room beside buffers of so many chunks, or whose kernel was compiled without
// what it needs.
template <class Protocol, class Algorithm>
void require_scratch(const Algorithm& algorithm, const usage& u, int ranks, int chunks) {
    const int kept = sched::tmp_chunks_of(algorithm, ranks);
    if (kept > 1 && kept > chunks)
        fail(errc::unsupported, -1, -1, "use another algorithm: the ranks of a team are one node",
             "this algorithm's scratch has %d chunks, its buffers %d, and kernels have room for as many", kept, chunks);
    if (u.scratch && kept == 0)
        fail(errc::unsupported, -1, -1, "declare it: constexpr int tmp_chunks(int n) const",
             "algorithm %s uses scratch (tmp) for %d ranks, of which it declares no chunk", Algorithm::name, ranks);
    if constexpr (Protocol::flags_words && sched::signals_v<Algorithm> != 0)
        if (u.copies && !may_copy_v<Algorithm>)
            fail(errc::unsupported, -1, -1, "give the algorithm a constructor with arguments",
                 "this algorithm's kernel was compiled without copies, which it makes for %d ranks as its members "
                 "are set",
                 ranks);
}

} // namespace device
COLLX_END_NAMESPACE
