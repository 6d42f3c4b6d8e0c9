// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// reduce_scatter, reduce_scatter_v: the reduction of all ranks' buffers, each rank receives its part.
#pragma once

#include <collx/comm/device_call.hpp>
#include <collx/comm/layouts.hpp>
#include <collx/comm/rank_buffers.hpp>
#include <collx/comm/refusals.hpp>
#include <collx/core/growing_array.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <class Mode>
struct reduce_scatter_fn : sums_by_default<reduce_scatter_fn<Mode>> {
    using sums_by_default<reduce_scatter_fn<Mode>>::operator();

    // In place: the result lies at this rank's part of x.
    template <Communicates Comm, HostBuffer X, OpArgument Op = plus>
    auto operator()(Comm&& comm, X&& x, Op op = {}, const call_options& o = {}) const {
        require_output<X>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, X>(x);
            const auto v = buffer(*kept.out);
            return run(comm, v, v, op, o, false, kept);
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
            const std::size_t part = part_of(c, a.size());
            require_size(c, "output", b.size(), part);
            require_memory(c, b, "output");
            require_apart(c, a, b, part * static_cast<std::size_t>(c.net.rank()));
            return run(comm, a, b, op, o, true, kept);
        });
    }

    template <Communicates Comm, DeviceBuffer X, OpArgument Op = plus>
    auto operator()(Comm&& comm, X&& x, Op op = {}, const device_call_options& o = {}) const {
        return call_on_device<Mode, collective::reduce_scatter>(comm, x, x, op, o, true);
    }
    template <Communicates Comm, Buffer In, DeviceBuffer Out, class Op = plus>
    auto operator()(Comm&& comm, In&& in, Out&& out, Op op = {}, const device_call_options& o = {}) const {
        return call_on_device<Mode, collective::reduce_scatter>(comm, in, out, op, o, false);
    }

    // All ranks of a fused team at once.
    template <FusedTeam Team, RankBuffers In, RankBuffers Out, class Op = plus>
    requires std::is_same_v<Mode, blocking>
    void operator()(Team&& team, In&& in, Out&& out, const Op& op = {}, const team_options<Team>& o = {}) const {
        team.reduce_scatter(in, out, op, o);
    }

private:
    template <class Comm, class In, class Out, class Op, class Kept>
    static auto run(Comm& comm, const In& in, const Out& out, const Op& op, const call_options& o, bool packed,
                    const Kept& kept) {
        require_reduce_op<Op, element_of<In>>();
        auto& c = base_of(comm).internals();
        require_memory(c, in, "input");
        const std::size_t part = part_of(c, in.size());
        return run_call<Mode, collective::reduce_scatter>(
            comm, in, out, op, {.total_elems = in.size(), .count = in.size(), .timeout_ns = o.timeout.count()},
            [part, packed](int chunks) {
                const auto l = chunk_layout::blocks(part, chunks);
                return std::pair(l, packed ? l.packed() : l);
            },
            kept);
    }
};

template <class Mode>
struct reduce_scatter_v_fn : refusals<> {
    using refusals<>::operator();

    template <Communicates Comm, Buffer In, DeviceBuffer Out, CountList Counts = count_list, class Op = plus>
    auto operator()(Comm&& comm, In&& in, Out&& out, const Counts& counts, Op op = {},
                    const device_call_options& o = {}) const {
        return call_on_device<Mode, collective::reduce_scatter>(
            comm, in, out, op, o, part_counts(counts, detail::growing_array<std::size_t>()));
    }
    // In place: the result lies at this rank's part of x.
    template <Communicates Comm, HostBuffer X, CountList Counts = count_list, OpArgument Op = plus>
    auto operator()(Comm&& comm, X&& x, const Counts& counts, Op op = {}, const call_options& o = {}) const {
        require_output<X>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, X, true>(x);
            const auto v = buffer(*kept.out);
            count_table& t = kept.tables(base_of(comm).internals()).first;
            return run(comm, v, v, counts, t, op, o, false, kept);
        });
    }
    template <Communicates Comm, DeviceBuffer X, CountList Counts = count_list, OpArgument Op = plus>
    void operator()(Comm&&, X&&, const Counts&, Op = {}, const device_call_options& = {}) const {
        refuse_device_in_place<X>();
    }
    template <Communicates Comm, Buffer In, HostBuffer Out, CountList Counts = count_list, class Op = plus>
    auto operator()(Comm&& comm, In&& in, Out&& out, const Counts& counts, Op op = {},
                    const call_options& o = {}) const {
        require_output<Out>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, In, Out, true>(in, out);
            count_table& t = kept.tables(base_of(comm).internals()).first;
            return run(comm, buffer(*kept.in), buffer(*kept.out), counts, t, op, o, true, kept);
        });
    }

private:
    template <class Comm, class In, class Out, class Counts, class Op, class Kept>
    static auto run(Comm& comm, const In& in, const Out& out, const Counts& counts, count_table& t, const Op& op,
                    const call_options& o, bool packed, const Kept& kept) {
        require_reduce_op<Op, element_of<In>>();
        auto& c = base_of(comm).internals();
        t.assign(c.net.rank(), c.net.size(), counts, "reduce_scatter_v");
        require_at_least(c, "input", in.size(), t.end());
        require_memory(c, in, "input");
        if (packed) {
            require_size(c, "output", out.size(), t.sizes()[c.net.rank()]);
            require_memory(c, out, "output");
            require_apart(c, in, out, t.offsets()[c.net.rank()]);
        }
        return run_call<Mode, collective::reduce_scatter>(
            comm, in, out, op, {.total_elems = t.total(), .counts_hash = t.hash(), .timeout_ns = o.timeout.count()},
            [&t, packed](int) { return std::pair(t.layout(), packed ? t.layout().packed() : t.layout()); }, kept);
    }
};

} // namespace detail

// Reduces the ranks' buffers and gives each rank a part of the result.
// Shape: `in` has n m elements on every rank, `out` has m; rank r receives the reduction of part r. One buffer: in
//     place, at part r.
// Cost: n - 1 parts written to shared memory per rank, as many read.
// Order: rank order by default; any associative operator.
// Errors: as all_reduce; invalid_argument where the size does not divide by the ranks.
// Example: collx::reduce_scatter(world, gradient, my_shard);
inline constexpr detail::reduce_scatter_fn<detail::blocking> reduce_scatter{};
namespace async {
inline constexpr detail::reduce_scatter_fn<detail::nonblocking> reduce_scatter{};
}
namespace try_ {
inline constexpr detail::reduce_scatter_fn<detail::tried> reduce_scatter{};
}
namespace persistent {
inline constexpr detail::reduce_scatter_fn<detail::repeated> reduce_scatter{};
}

// The same with parts of different sizes.
// Shape: rank r receives counts[r] elements of the reduction (the same table on every rank); parts lie one after the
//     other in `in`. One buffer: in place, at part r, as in reduce_scatter (MPI_IN_PLACE would move it to the front).
// Errors: as all_reduce; mismatch (checked) if the tables differ.
// Example: collx::reduce_scatter_v(world, gradient, shard_sizes);
inline constexpr detail::reduce_scatter_v_fn<detail::blocking> reduce_scatter_v{};
namespace async {
inline constexpr detail::reduce_scatter_v_fn<detail::nonblocking> reduce_scatter_v{};
}
namespace try_ {
inline constexpr detail::reduce_scatter_v_fn<detail::tried> reduce_scatter_v{};
}
namespace persistent {
inline constexpr detail::reduce_scatter_v_fn<detail::repeated> reduce_scatter_v{};
}

COLLX_END_NAMESPACE
