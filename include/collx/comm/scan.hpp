// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// scan, exclusive_scan: rank r receives the reduction of the buffers of ranks 0 … r, or 0 … r - 1.
#pragma once

#include <collx/comm/device_call.hpp>
#include <collx/comm/layouts.hpp>
#include <collx/comm/refusals.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Both verbs; Kind says which.
template <class Mode, collective Kind>
struct scan_fn : sums_by_default<scan_fn<Mode, Kind>> {
    using sums_by_default<scan_fn<Mode, Kind>>::operator();

    template <Communicates Comm, DeviceBuffer X, OpArgument Op = plus>
    auto operator()(Comm&& comm, X&& x, Op op = {}, const device_call_options& o = {}) const {
        return call_on_device<Mode, Kind>(comm, x, x, op, o, true);
    }
    template <Communicates Comm, Buffer In, DeviceBuffer Out, class Op = plus>
    auto operator()(Comm&& comm, In&& in, Out&& out, Op op = {}, const device_call_options& o = {}) const {
        return call_on_device<Mode, Kind>(comm, in, out, op, o, false);
    }
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
            auto& c = base_of(comm).internals();
            require_apart(c, a, b);
            require_size(c, "output", b.size(), a.size());
            require_memory(c, b, "output");
            return run(comm, a, b, op, o, kept);
        });
    }

private:
    template <class Comm, class In, class Out, class Op, class Kept>
    static auto run(Comm& comm, const In& in, const Out& out, const Op& op, const call_options& o, const Kept& kept) {
        require_reduce_op<Op, element_of<In>>();
        auto& c = base_of(comm).internals();
        require_memory(c, in, "input");
        const std::size_t n = in.size();
        return run_call<Mode, Kind>(
            comm, in, out, op, {.total_elems = n, .count = n, .timeout_ns = o.timeout.count()},
            [n](int chunks) {
                const auto l = chunk_layout::even(n, chunks, 16);
                return std::pair(l, l);
            },
            kept);
    }
};

} // namespace detail

// Reduces over the ranks up to this one.
// Shape: the same number of elements on every rank. Element i of rank r becomes x0[i] op x1[i] op … op xr[i].
// Order: rank order; any associative operator.
// Errors: as all_reduce.
// Example: collx::scan(world, collx::value(count));
inline constexpr detail::scan_fn<detail::blocking, collective::scan> scan{};
namespace async {
inline constexpr detail::scan_fn<detail::nonblocking, collective::scan> scan{};
}
namespace try_ {
inline constexpr detail::scan_fn<detail::tried, collective::scan> scan{};
}
namespace persistent {
inline constexpr detail::scan_fn<detail::repeated, collective::scan> scan{};
}

// As scan, without the rank's own operand. Rank 0 has nobody before it: its output keeps what it held.
// Example: collx::exclusive_scan(world, collx::value(count), collx::value(offset)); // where my part begins
inline constexpr detail::scan_fn<detail::blocking, collective::exclusive_scan> exclusive_scan{};
namespace async {
inline constexpr detail::scan_fn<detail::nonblocking, collective::exclusive_scan> exclusive_scan{};
}
namespace try_ {
inline constexpr detail::scan_fn<detail::tried, collective::exclusive_scan> exclusive_scan{};
}
namespace persistent {
inline constexpr detail::scan_fn<detail::repeated, collective::exclusive_scan> exclusive_scan{};
}

COLLX_END_NAMESPACE
