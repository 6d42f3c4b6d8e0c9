// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// all_gather, all_gather_v: every rank receives the parts of all ranks, in rank order.
#pragma once

#include <collx/comm/device_call.hpp>
#include <collx/comm/layouts.hpp>
#include <collx/comm/rank_buffers.hpp>
#include <collx/comm/refusals.hpp>
#include <collx/core/growing_array.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <class Mode>
struct all_gather_fn : refusals<> {
    using refusals<>::operator();

    // In place: this rank's part already lies at its place in x.
    template <Communicates Comm, HostBuffer X>
    auto operator()(Comm&& comm, X&& x, const call_options& o = {}) const {
        require_output<X>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, X>(x);
            const auto v = buffer(*kept.out);
            auto& c = base_of(comm).internals();
            const std::size_t part = part_of(c, v.size());
            require_memory(c, v, "all_gather");
            return run_call<Mode, collective::all_gather>(
                comm, v, v, no_op{}, facts(part, c, o),
                [part](int chunks) {
                    const auto l = chunk_layout::blocks(part, chunks);
                    return std::pair(l, l);
                },
                kept);
        });
    }
    template <Communicates Comm, HostBuffer In, HostBuffer Out>
    auto operator()(Comm&& comm, In&& in, Out&& out, const call_options& o = {}) const {
        require_output<Out>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, In, Out>(in, out);
            const auto a = buffer(*kept.in);
            const auto b = buffer(*kept.out);
            auto& c = base_of(comm).internals();
            const std::size_t part = a.size();
            require_size(c, "output", b.size(), part * static_cast<std::size_t>(c.net.size()));
            require_memory(c, a, "input");
            require_memory(c, b, "output");
            require_apart(c, a, b, part * static_cast<std::size_t>(c.net.rank()));
            return run_call<Mode, collective::all_gather>(
                comm, a, b, no_op{}, facts(part, c, o),
                [part](int chunks) {
                    const auto l = chunk_layout::blocks(part, chunks);
                    return std::pair(l.packed(), l);
                },
                kept);
        });
    }
    template <Communicates Comm, DeviceBuffer X>
    auto operator()(Comm&& comm, X&& x, const device_call_options& o = {}) const {
        return call_on_device<Mode, collective::all_gather>(comm, x, x, no_op{}, o, true);
    }
    template <Communicates Comm, Buffer In, DeviceBuffer Out>
    auto operator()(Comm&& comm, In&& in, Out&& out, const device_call_options& o = {}) const {
        return call_on_device<Mode, collective::all_gather>(comm, in, out, no_op{}, o, false);
    }
    // All ranks of a fused team at once.
    template <FusedTeam Team, RankBuffers In, RankBuffers Out>
    requires std::is_same_v<Mode, blocking>
    void operator()(Team&& team, In&& in, Out&& out, const team_options<Team>& o = {}) const {
        team.all_gather(in, out, o);
    }

private:
    static call_facts facts(std::size_t part, const communicator_core& c, const call_options& o) {
        return {.total_elems = part * static_cast<std::size_t>(c.net.size()),
                .count = part,
                .timeout_ns = o.timeout.count()};
    }
};

template <class Mode>
struct all_gather_v_fn : refusals<> {
    using refusals<>::operator();

    template <Communicates Comm, Buffer In, DeviceBuffer Out, CountList Counts = count_list,
              class Offsets = detail::growing_array<std::size_t>>
    auto operator()(Comm&& comm, In&& in, Out&& out, const Counts& counts, const Offsets& offsets = {},
                    const device_call_options& o = {}) const {
        return call_on_device<Mode, collective::all_gather>(comm, in, out, no_op{}, o, part_counts(counts, offsets));
    }
    template <Communicates Comm, Buffer In, HostBuffer Out, CountList Counts = count_list,
              class Offsets = detail::growing_array<std::size_t>>
    auto operator()(Comm&& comm, In&& in, Out&& out, const Counts& counts, const Offsets& offsets = {},
                    const call_options& o = {}) const {
        require_output<Out>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, In, Out, true>(in, out);
            const auto a = buffer(*kept.in);
            const auto b = buffer(*kept.out);
            auto& c = base_of(comm).internals();
            count_tables& tables = kept.tables(c);
            tables.first.assign(c.net.rank(), c.net.size(), counts, offsets, "all_gather_v");
            tables.first.require_disjoint(c.net.rank(), "all_gather_v");
            const count_table& t = tables.first;
            require_size(c, "input", a.size(), t.sizes()[c.net.rank()]);
            require_at_least(c, "output", b.size(), t.end());
            require_memory(c, a, "input");
            require_memory(c, b, "output");
            require_apart(c, a, b, t.offsets()[c.net.rank()]);
            return run_call<Mode, collective::all_gather>(
                comm, a, b, no_op{},
                {.total_elems = t.total(), .counts_hash = t.hash(), .timeout_ns = o.timeout.count()},
                [&t](int) { return std::pair(t.layout().packed(), t.layout()); }, kept);
        });
    }
};

} // namespace detail

// Collects the parts of all ranks on every rank.
// Shape: `in` has the same number of elements m on every rank, `out` has n m; rank r's part is out[r m, (r + 1) m). One
//     buffer: in place.
// Cost: every rank writes its part to shared memory once and reads the n - 1 others.
// Errors: as all_reduce.
// Example: collx::all_gather(world, mine, everybodys);
inline constexpr detail::all_gather_fn<detail::blocking> all_gather{};
namespace async {
inline constexpr detail::all_gather_fn<detail::nonblocking> all_gather{};
}
namespace try_ {
inline constexpr detail::all_gather_fn<detail::tried> all_gather{};
}
namespace persistent {
inline constexpr detail::all_gather_fn<detail::repeated> all_gather{};
}

// The same with parts of different sizes.
// Shape: rank r contributes counts[r] elements (the same table on every rank); they land at offsets[r], by default one
//     part after the other. Counts may be zero.
// Errors: as all_reduce; mismatch (checked) if the tables differ.
// Example: collx::all_gather_v(world, mine, everybodys, counts);
inline constexpr detail::all_gather_v_fn<detail::blocking> all_gather_v{};
namespace async {
inline constexpr detail::all_gather_v_fn<detail::nonblocking> all_gather_v{};
}
namespace try_ {
inline constexpr detail::all_gather_v_fn<detail::tried> all_gather_v{};
}
namespace persistent {
inline constexpr detail::all_gather_v_fn<detail::repeated> all_gather_v{};
}

COLLX_END_NAMESPACE
