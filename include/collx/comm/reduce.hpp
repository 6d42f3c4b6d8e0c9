// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// reduce: the root receives the reduction of all ranks' buffers.
#pragma once

#include <collx/comm/device_call.hpp>
#include <collx/comm/layouts.hpp>
#include <collx/comm/rank_buffers.hpp>
#include <collx/comm/refusals.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <class Mode>
struct reduce_fn : sums_by_default<reduce_fn<Mode>> {
    using sums_by_default<reduce_fn<Mode>>::operator();

    template <Communicates Comm, HostBuffer X, OpArgument Op = plus>
    auto operator()(Comm&& comm, X&& x, Op op = {}, const call_options& o = {}) const {
        require_output<X>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, X>(x);
            const auto v = buffer(*kept.out);
            return run(comm, v, v, op, o, kept);
        });
    }
    // All ranks of a fused team at once.
    template <FusedTeam Team, RankBuffers In, RankBuffers Out, class Op = plus>
    requires std::is_same_v<Mode, blocking>
    void operator()(Team&& team, In&& in, Out&& out, int root, const Op& op = {},
                    const team_options<Team>& o = {}) const {
        team.reduce(in, out, root, op, o);
    }
    template <Communicates Comm, DeviceBuffer X, OpArgument Op = plus>
    auto operator()(Comm&& comm, X&& x, Op op = {}, const device_call_options& o = {}) const {
        return call_on_device<Mode, collective::reduce>(comm, x, x, op, o, true);
    }
    template <Communicates Comm, Buffer In, DeviceBuffer Out, class Op = plus>
    auto operator()(Comm&& comm, In&& in, Out&& out, Op op = {}, const device_call_options& o = {}) const {
        return call_on_device<Mode, collective::reduce>(comm, in, out, op, o, false);
    }
    template <Communicates Comm, HostBuffer In, HostBuffer Out, class Op = plus>
    auto operator()(Comm&& comm, In&& in, Out&& out, Op op = {}, const call_options& o = {}) const {
        require_output<Out>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, In, Out>(in, out);
            const auto a = buffer(*kept.in);
            const auto b = buffer(*kept.out);
            auto& c = base_of(comm).internals();
            if (c.net.rank() == o.root) {
                require_apart(c, a, b);
                require_size(c, "output", b.size(), a.size());
                require_memory(c, b, "output");
            }
            return run(comm, a, b, op, o, kept);
        });
    }

private:
    template <class Comm, class In, class Out, class Op, class Kept>
    static auto run(Comm& comm, const In& in, const Out& out, const Op& op, const call_options& o, const Kept& kept) {
        require_reduce_op<Op, element_of<In>>();
        auto& c = base_of(comm).internals();
        require_root(c, o.root);
        require_memory(c, in, "input");
        const std::size_t n = in.size();
        return run_call<Mode, collective::reduce>(
            comm, in, out, op, {.root = o.root, .total_elems = n, .count = n, .timeout_ns = o.timeout.count()},
            [n](int chunks) {
                const auto l = chunk_layout::even(n, chunks, 16);
                return std::pair(l, l);
            },
            kept);
    }
};

} // namespace detail

// Reduces the ranks' buffers into the root's, in place (one buffer) or from `in` to the root's `out` (which the other
// ranks may leave empty). In place, the other ranks' buffers keep their contents.
// Shape: the same number of elements on every rank.
// Order: rank order by default; any associative operator.
// Errors: as all_reduce; invalid_argument for a root that is no rank.
// Example: collx::reduce(world, losses, totals, {.root = 0});
inline constexpr detail::reduce_fn<detail::blocking> reduce{};
namespace async {
inline constexpr detail::reduce_fn<detail::nonblocking> reduce{};
}
namespace try_ {
inline constexpr detail::reduce_fn<detail::tried> reduce{};
}
namespace persistent {
inline constexpr detail::reduce_fn<detail::repeated> reduce{};
}

COLLX_END_NAMESPACE
