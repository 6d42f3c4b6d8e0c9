// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gather, gather_v: the root receives the parts of all ranks, in rank order.
#pragma once

#include <collx/comm/device_call.hpp>
#include <collx/comm/layouts.hpp>
#include <collx/comm/refusals.hpp>
#include <collx/core/growing_array.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <class Mode>
struct gather_fn : refusals<> {
    using refusals<>::operator();

    template <Communicates Comm, Buffer In, DeviceBuffer Out>
    auto operator()(Comm&& comm, In&& in, Out&& out, const device_call_options& o = {}) const {
        return call_on_device<Mode, collective::gather>(comm, in, out, no_op{}, o, false);
    }
    template <Communicates Comm, Buffer In, HostBuffer Out>
    auto operator()(Comm&& comm, In&& in, Out&& out, const call_options& o = {}) const {
        require_output<Out>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, In, Out>(in, out);
            const auto a = buffer(*kept.in);
            const auto b = buffer(*kept.out);
            auto& c = base_of(comm).internals();
            require_root(c, o.root);
            const std::size_t part = a.size();
            if (c.net.rank() == o.root) {
                require_size(c, "output", b.size(), part * static_cast<std::size_t>(c.net.size()));
                require_memory(c, b, "output");
                require_apart(c, a, b, part * static_cast<std::size_t>(o.root));
            }
            require_memory(c, a, "input");
            return run_call<Mode, collective::gather>(
                comm, a, b, no_op{},
                {.root = o.root,
                 .total_elems = part * static_cast<std::size_t>(c.net.size()),
                 .count = part,
                 .timeout_ns = o.timeout.count()},
                [part](int chunks) {
                    const auto l = chunk_layout::blocks(part, chunks);
                    return std::pair(l.packed(), l);
                },
                kept);
        });
    }
};

template <class Mode>
struct gather_v_fn : refusals<> {
    using refusals<>::operator();

    // The root's table decides; the other ranks may pass an empty one.
    template <Communicates Comm, Buffer In, DeviceBuffer Out, CountList Counts = count_list,
              class Offsets = detail::growing_array<std::size_t>>
    auto operator()(Comm&& comm, In&& in, Out&& out, const Counts& counts, const Offsets& offsets = {},
                    const device_call_options& o = {}) const {
        return call_on_device<Mode, collective::gather>(comm, in, out, no_op{}, o, part_counts(counts, offsets));
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
            require_root(c, o.root);
            const bool is_root = c.net.rank() == o.root;
            const auto me = static_cast<std::size_t>(c.net.rank());
            count_tables& tables = kept.tables(c);
            if (is_root) {
                tables.first.assign(c.net.rank(), c.net.size(), counts, offsets, "gather_v");
                tables.first.require_disjoint(c.net.rank(), "gather_v");
                require_at_least(c, "output", b.size(), tables.first.end());
                require_size(c, "input", a.size(), tables.first.sizes()[me]);
                require_memory(c, b, "output");
                require_apart(c, a, b, tables.first.offsets()[me]);
            } else {
                detail::growing_array<std::size_t> mine(static_cast<std::size_t>(c.net.size()));
                mine[me] = a.size();
                tables.first.assign(c.net.rank(), c.net.size(), mine, "gather_v");
            }
            require_memory(c, a, "input");
            const count_table& t = tables.first;
            return run_call<Mode, collective::gather>(
                comm, a, b, no_op{}, {.root = o.root, .timeout_ns = o.timeout.count(), .private_counts = true},
                [&t](int) { return std::pair(t.layout().packed(), t.layout()); }, kept);
        });
    }
};

} // namespace detail

// Collects the parts of all ranks at the root.
// Shape: `in` has the same number of elements m on every rank; the root's `out` has n m, other ranks may pass an empty
//     one.
// Cost: n - 1 messages to the root.
// Errors: as all_reduce; invalid_argument for a root that is no rank; mismatch where a rank sends another count than
//     the root expects.
// Example: collx::gather(world, mine, all, {.root = 0});
inline constexpr detail::gather_fn<detail::blocking> gather{};
namespace async {
inline constexpr detail::gather_fn<detail::nonblocking> gather{};
}
namespace try_ {
inline constexpr detail::gather_fn<detail::tried> gather{};
}
namespace persistent {
inline constexpr detail::gather_fn<detail::repeated> gather{};
}

// The same with parts of different sizes.
// Shape: rank r's part has counts[r] elements at offsets[r] of the root's buffer, by default one after the other. The
//     root's tables count; the other ranks may pass empty ones.
// Errors: as gather.
inline constexpr detail::gather_v_fn<detail::blocking> gather_v{};
namespace async {
inline constexpr detail::gather_v_fn<detail::nonblocking> gather_v{};
}
namespace try_ {
inline constexpr detail::gather_v_fn<detail::tried> gather_v{};
}
namespace persistent {
inline constexpr detail::gather_v_fn<detail::repeated> gather_v{};
}

COLLX_END_NAMESPACE
