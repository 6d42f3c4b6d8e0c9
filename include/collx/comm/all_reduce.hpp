// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// all_reduce: every rank receives the reduction of all ranks' buffers.
#pragma once

#include <collx/comm/device_call.hpp>
#include <collx/comm/rank_buffers.hpp>
#include <collx/comm/refusals.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <class Mode>
struct all_reduce_fn : sums_by_default<all_reduce_fn<Mode>> {
    using sums_by_default<all_reduce_fn<Mode>>::operator();

    template <Communicates Comm, HostBuffer X, OpArgument Op = plus>
    auto operator()(Comm&& comm, X&& x, Op op = {}, const call_options& o = {}) const {
        require_output<X>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, X>(x);
            const auto v = buffer(*kept.out);
            return run(comm, v, v, op, o, kept);
        });
    }
    template <Communicates Comm, HostBuffer In, HostBuffer Out, class Op = plus>
    auto operator()(Comm&& comm, In&& in, Out&& out, Op op = {}, const call_options& o = {}) const {
        require_output<Out>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, In, Out>(in, out);
            const auto a = buffer(*kept.in);
            const auto b = buffer(*kept.out);
            require_apart(base_of(comm).internals(), a, b);
            if (a.size() != b.size())
                fail(errc::invalid_argument, base_of(comm).rank(), -1, "give both the same number of elements",
                     "input has %zu elements, output %zu", a.size(), b.size());
            return run(comm, a, b, op, o, kept);
        });
    }
    template <Communicates Comm, DeviceBuffer X, OpArgument Op = plus>
    auto operator()(Comm&& comm, X&& x, Op op = {}, const device_call_options& o = {}) const {
        return call_on_device<Mode, collective::all_reduce>(comm, x, x, op, o, true);
    }
    template <Communicates Comm, Buffer In, DeviceBuffer Out, class Op = plus>
    auto operator()(Comm&& comm, In&& in, Out&& out, Op op = {}, const device_call_options& o = {}) const {
        return call_on_device<Mode, collective::all_reduce>(comm, in, out, op, o, false);
    }
    // All ranks of a fused team at once.
    template <FusedTeam Team, RankBuffers X, class Op = plus>
    requires(std::is_same_v<Mode, blocking> && !RankBuffers<Op>) void
    operator()(Team&& team, X&& x, const Op& op = {}, const team_options<Team>& o = {}) const {
        team.all_reduce(x, x, op, o);
    }
    template <FusedTeam Team, RankBuffers In, RankBuffers Out, class Op = plus>
    requires std::is_same_v<Mode, blocking>
    void operator()(Team&& team, In&& in, Out&& out, const Op& op = {}, const team_options<Team>& o = {}) const {
        team.all_reduce(in, out, op, o);
    }

private:
    template <class Comm, class In, class Out, class Op, class Kept>
    static auto run(Comm& comm, const In& in, const Out& out, const Op& op, const call_options& o, const Kept& kept) {
        require_reduce_op<Op, element_of<In>>();
        auto& c = base_of(comm).internals();
        require_memory(c, in, "input");
        require_memory(c, out, "output");
        const std::size_t n = in.size();
        return run_call<Mode, collective::all_reduce>(
            comm, in, out, op, {.total_elems = n, .count = n, .timeout_ns = o.timeout.count()},
            [n](int chunks) {
                const auto l = chunk_layout::even(n, chunks, 16);
                return std::pair(l, l);
            },
            kept);
    }
};

} // namespace detail

// Reduces x over all ranks, in place, or from `in` to `out`.
// Shape: the same number of elements on every rank.
// Cost: one synchronisation up to 4 to 16 KiB, two above; 2(n - 1)/n of the buffer staged (docs/algorithms.md). No
//     allocation after the first call.
// Order: the default algorithms combine operands in rank order, so any associative operator is right. All ranks hold
//     the same bits.
// Errors: invalid_argument (null, overlapping, sizes), mismatch (checked), peer_failed, timed_out, aborted.
// Example: collx::all_reduce(world, gradient);
//     collx::all_reduce(world, in, out, collx::max{}, {.timeout = 5s});
inline constexpr detail::all_reduce_fn<detail::blocking> all_reduce{};
namespace async {
inline constexpr detail::all_reduce_fn<detail::nonblocking> all_reduce{};
}
namespace try_ {
inline constexpr detail::all_reduce_fn<detail::tried> all_reduce{};
}
namespace persistent {
inline constexpr detail::all_reduce_fn<detail::repeated> all_reduce{};
}

COLLX_END_NAMESPACE
