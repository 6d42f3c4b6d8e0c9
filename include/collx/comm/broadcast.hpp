// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// broadcast: every rank receives the root's buffer.
#pragma once

#include <collx/comm/device_call.hpp>
#include <collx/comm/layouts.hpp>
#include <collx/comm/rank_buffers.hpp>
#include <collx/comm/refusals.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <class Mode>
struct broadcast_fn : refusals<> {
    using refusals<>::operator();

    // All ranks of a fused team at once.
    template <FusedTeam Team, RankBuffers In, RankBuffers Out>
    requires std::is_same_v<Mode, blocking>
    void operator()(Team&& team, In&& in, Out&& out, int root, const team_options<Team>& o = {}) const {
        team.broadcast(in, out, root, o);
    }
    template <Communicates Comm, DeviceBuffer X>
    auto operator()(Comm&& comm, X&& x, const device_call_options& o = {}) const {
        return call_on_device<Mode, collective::broadcast>(comm, x, x, no_op{}, o, true);
    }
    template <Communicates Comm, HostBuffer X>
    auto operator()(Comm&& comm, X&& x, const call_options& o = {}) const {
        require_output<X>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, X>(x);
            const auto v = buffer(*kept.out);
            auto& c = base_of(comm).internals();
            require_root(c, o.root);
            require_memory(c, v, "broadcast");
            const std::size_t n = v.size();
            return run_call<Mode, collective::broadcast>(
                comm, v, v, no_op{}, {.root = o.root, .total_elems = n, .count = n, .timeout_ns = o.timeout.count()},
                [n](int chunks) {
                    const auto l = chunk_layout::even(n, chunks, 16);
                    return std::pair(l, l);
                },
                kept);
        });
    }
};

} // namespace detail

// Copies the root's x to every rank's x.
// Shape: the same number of elements on every rank.
// Cost: the root writes the buffer to shared memory once, the others read it once (docs/algorithms.md).
// Errors: as all_reduce; invalid_argument for a root that is no rank.
// Example: collx::broadcast(world, weights, {.root = 0});
inline constexpr detail::broadcast_fn<detail::blocking> broadcast{};
namespace async {
inline constexpr detail::broadcast_fn<detail::nonblocking> broadcast{};
}
namespace try_ {
inline constexpr detail::broadcast_fn<detail::tried> broadcast{};
}
namespace persistent {
inline constexpr detail::broadcast_fn<detail::repeated> broadcast{};
}

COLLX_END_NAMESPACE
