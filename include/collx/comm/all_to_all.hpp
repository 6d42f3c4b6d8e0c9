// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// all_to_all, all_to_all_v: every rank sends a part of its own to every rank.
#pragma once

#include <collx/comm/device_call.hpp>
#include <collx/comm/layouts.hpp>
#include <collx/comm/rank_buffers.hpp>
#include <collx/comm/refusals.hpp>
#include <collx/core/growing_array.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// What an exchange in place sends from while parts arrive: the first `count` elements, in memory of the call.
template <class View, class T = element_of<View>>
contiguous_view<const T> copy_of(const View& v, std::size_t count, growing_array<std::byte>& memory) {
    memory.reserve(count * sizeof(T) + alignof(T)); // the elements are written over what is there
    const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
    auto* const to = reinterpret_cast<T*>((at + alignof(T) - 1) / alignof(T) * alignof(T));
    if constexpr (View::is_contiguous) {
        if (count != 0) std::memcpy(static_cast<void*>(to), v.data(), count * sizeof(T));
    } else {
        for (std::size_t i = 0; i < count; ++i) {
            const T element = v[i];
            std::memcpy(static_cast<void*>(to + i), &element, sizeof(T));
        }
    }
    return {to, count};
}

template <class Mode>
struct all_to_all_fn : refusals<> {
    using refusals<>::operator();

    // All ranks of a fused team at once.
    template <FusedTeam Team, RankBuffers In, RankBuffers Out>
    requires std::is_same_v<Mode, blocking>
    void operator()(Team&& team, In&& in, Out&& out, const team_options<Team>& o = {}) const {
        team.all_to_all(in, out, o);
    }
    template <Communicates Comm, Buffer In, DeviceBuffer Out>
    auto operator()(Comm&& comm, In&& in, Out&& out, const device_call_options& o = {}) const {
        return call_on_device<Mode, collective::all_to_all>(comm, in, out, no_op{}, o, false);
    }
    template <Communicates Comm, HostBuffer In, HostBuffer Out>
    auto operator()(Comm&& comm, In&& in, Out&& out, const call_options& o = {}) const {
        require_output<Out>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, In, Out>(in, out);
            const auto a = buffer(*kept.in);
            const auto b = buffer(*kept.out);
            auto& c = base_of(comm).internals();
            require_memory(c, a, "input");
            require_memory(c, b, "output");
            require_apart(c, a, b, SIZE_MAX);
            return run(comm, a, b, o, kept);
        });
    }
    // In place.
    template <Communicates Comm, HostBuffer X>
    auto operator()(Comm&& comm, X&& x, const call_options& o = {}) const {
        require_output<X>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, X, true>(x);
            const auto v = buffer(*kept.out);
            auto& c = base_of(comm).internals();
            require_memory(c, v, "all_to_all");
            (void)part_of(c, v.size()); // before anything is copied
            auto& copied = kept.tables(c).copied;
            return run(comm, copy_of(v, v.size(), copied), v, o, kept, [v, &copied] { copy_of(v, v.size(), copied); });
        });
    }
    template <Communicates Comm, DeviceBuffer X>
    void operator()(Comm&&, X&&, const device_call_options& = {}) const {
        refuse_device_in_place<X>();
    }

private:
    template <class Comm, class In, class Out, class Kept, class Refresh = no_refresh>
    static auto run(Comm& comm, const In& in, const Out& out, const call_options& o, const Kept& kept,
                    const Refresh& refresh = {}) {
        auto& c = base_of(comm).internals();
        const std::size_t part = part_of(c, in.size());
        require_size(c, "output", out.size(), in.size());
        return run_call<Mode, collective::all_to_all>(
            comm, in, out, no_op{}, {.total_elems = in.size(), .count = part, .timeout_ns = o.timeout.count()},
            [part](int chunks) {
                const auto l = chunk_layout::blocks(part, chunks);
                return std::pair(l, l);
            },
            kept, refresh);
    }
};

// What arrives is not what was expected. The peer hears of it, too.
[[noreturn, gnu::cold]] inline void fail_for_counts(communicator_core& c, int peer, std::size_t sent,
                                                    std::size_t expected) {
    c.net.report(failure(errc::mismatch, peer));
    c.net.announce_failure();
    fail(errc::mismatch, c.net.rank(), peer, "what a rank sends its peer must expect",
         "rank %d sends %zu elements, the receive counts here say %zu", peer, sent, expected);
}

// Checked calls: everybody hears what its peers are about to send. Without, a wrong count is found at the first
// message, and where messages are aggregated that one comes from a carrier, not from whoever is wrong. A template,
// so that only programs with such a call compile the exchange of counts.
template <class Comm>
[[gnu::cold]] void compare_counts(Comm& comm, count_tables& t, const call_options& o) {
    auto& c = comm.internals();
    detail::growing_array<std::size_t>& announced = t.relayed; // not in use yet
    announced.assign(static_cast<std::size_t>(c.net.size()), 0);
    all_to_all_fn<blocking>{}(comm, contiguous_view<const std::size_t>(t.first.sizes(), announced.size()), announced,
                              o);
    for (std::size_t k = 0; k < announced.size(); ++k)
        if (announced[k] != t.second.sizes()[k])
            fail_for_counts(c, static_cast<int>(k), announced[k], t.second.sizes()[k]);
}

template <class Mode>
struct all_to_all_v_fn : refusals<> {
    using refusals<>::operator();

    template <Communicates Comm, Buffer In, CountList SendCounts = count_list, DeviceBuffer Out,
              CountList RecvCounts = count_list>
    auto operator()(Comm&& comm, In&& in, const SendCounts& send_counts, Out&& out, const RecvCounts& recv_counts,
                    const device_call_options& o = {}) const {
        const detail::growing_array<std::size_t> packed;
        return (*this)(comm, in, send_counts, packed, out, recv_counts, packed, o);
    }
    template <Communicates Comm, Buffer In, CountList SendCounts = count_list, CountList SendOffsets = count_list,
              DeviceBuffer Out, CountList RecvCounts = count_list, CountList RecvOffsets = count_list>
    auto operator()(Comm&& comm, In&& in, const SendCounts& send_counts, const SendOffsets& send_offsets, Out&& out,
                    const RecvCounts& recv_counts, const RecvOffsets& recv_offsets,
                    const device_call_options& o = {}) const {
        return call_on_device<Mode, collective::all_to_all>(
            comm, in, out, no_op{}, o, part_counts(send_counts, send_offsets), part_counts(recv_counts, recv_offsets));
    }
    template <Communicates Comm, Buffer In, CountList SendCounts = count_list, HostBuffer Out,
              CountList RecvCounts = count_list>
    auto operator()(Comm&& comm, In&& in, const SendCounts& send_counts, Out&& out, const RecvCounts& recv_counts,
                    const call_options& o = {}) const {
        const detail::growing_array<std::size_t> packed;
        return (*this)(comm, std::forward<In>(in), send_counts, packed, std::forward<Out>(out), recv_counts, packed, o);
    }
    template <Communicates Comm, Buffer In, CountList SendCounts = count_list, CountList SendOffsets = count_list,
              HostBuffer Out, CountList RecvCounts = count_list, CountList RecvOffsets = count_list>
    auto operator()(Comm&& comm, In&& in, const SendCounts& send_counts, const SendOffsets& send_offsets, Out&& out,
                    const RecvCounts& recv_counts, const RecvOffsets& recv_offsets, const call_options& o = {}) const {
        require_output<Out>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, In, Out, true>(in, out);
            const auto a = buffer(*kept.in);
            const auto b = buffer(*kept.out);
            auto& c = base_of(comm).internals();
            count_tables& tables = kept.tables(c);
            tables.first.assign(c.net.rank(), c.net.size(), send_counts, send_offsets, "send");
            tables.second.assign(c.net.rank(), c.net.size(), recv_counts, recv_offsets, "receive");
            tables.second.require_disjoint(c.net.rank(), "receive");
            require_at_least(c, "input", a.size(), tables.first.end());
            require_at_least(c, "output", b.size(), tables.second.end());
            require_memory(c, a, "input");
            require_memory(c, b, "output");
            require_apart(c, a, b, SIZE_MAX);
            return run(comm, a, b, tables, o, kept);
        });
    }
    // In place.
    template <Communicates Comm, HostBuffer X, CountList Counts = count_list>
    auto operator()(Comm&& comm, X&& x, const Counts& counts, const call_options& o = {}) const {
        return (*this)(comm, std::forward<X>(x), counts, detail::growing_array<std::size_t>(), o);
    }
    template <Communicates Comm, HostBuffer X, CountList Counts, CountList Offsets>
    auto operator()(Comm&& comm, X&& x, const Counts& counts, const Offsets& offsets,
                    const call_options& o = {}) const {
        require_output<X>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, X, true>(x);
            const auto v = buffer(*kept.out);
            auto& c = base_of(comm).internals();
            count_tables& tables = kept.tables(c);
            tables.first.assign(c.net.rank(), c.net.size(), counts, offsets, "all_to_all_v");
            tables.second.assign(c.net.rank(), c.net.size(), counts, offsets, "all_to_all_v");
            tables.second.require_disjoint(c.net.rank(), "all_to_all_v");
            require_at_least(c, "only", v.size(), tables.first.end());
            require_memory(c, v, "only");
            return run(comm, copy_of(v, tables.first.end(), tables.copied), v, tables, o, kept,
                       [v, &tables] { copy_of(v, tables.first.end(), tables.copied); });
        });
    }
    template <Communicates Comm, DeviceBuffer X, CountList Counts = count_list>
    void operator()(Comm&&, X&&, const Counts&, const device_call_options& = {}) const {
        refuse_device_in_place<X>();
    }

private:
    template <class Comm, class In, class Out, class Kept, class Refresh = no_refresh>
    static auto run(Comm& comm, const In& in, const Out& out, count_tables& tables, const call_options& o,
                    const Kept& kept, const Refresh& refresh = {}) {
        auto& c = base_of(comm).internals();
        const count_table &s = tables.first, &r = tables.second;
        const int me = c.net.rank();
        if (s.sizes()[me] != r.sizes()[me])
            fail(errc::invalid_argument, me, me, "what a rank sends itself it also receives",
                 "the counts of a rank for itself differ: %zu and %zu", s.sizes()[me], r.sizes()[me]);
        if (c.settings.checked != 0) compare_counts(base_of(comm), tables, o);
        return run_call<Mode, collective::all_to_all, true>(
            comm, in, out, no_op{}, {.timeout_ns = o.timeout.count(), .private_counts = true, .tables = &tables},
            [&s, &r](int) { return std::pair(s.layout(), r.layout()); }, kept, refresh);
    }
};

} // namespace detail

// Sends a part to every rank and receives one from every rank.
// Shape: `in` and `out` have n m elements; part d of `in` goes to rank d, part k of `out` comes from rank k. One
// buffer:
//     in place, part k goes to rank k and is replaced by what comes from there.
// Cost: n - 1 messages of m elements per rank. In place the buffer is copied before, into memory that the communicator
//     keeps (an async call: its handle).
// Errors: as all_reduce.
// Example: collx::all_to_all(world, outgoing, incoming);
//     collx::all_to_all(world, columns);
inline constexpr detail::all_to_all_fn<detail::blocking> all_to_all{};
namespace async {
inline constexpr detail::all_to_all_fn<detail::nonblocking> all_to_all{};
}
namespace try_ {
inline constexpr detail::all_to_all_fn<detail::tried> all_to_all{};
}
namespace persistent {
inline constexpr detail::all_to_all_fn<detail::repeated> all_to_all{};
}

// The same with parts of different sizes.
// Shape: send_counts[d] elements go to rank d, recv_counts[k] come from rank k. A rank knows only its own counts; zero
//     is a count. Optional offsets say where each part begins; by default one part follows the other. One buffer and
//     one table: in place, counts[k] elements go to rank k and are replaced by as many from there.
// Cost: n - 1 messages per rank. Across N hosts that have several ranks each, short parts go through one rank of each
//     host (N - 1 messages per host) and long ones directly; bound to aggregated_all_to_all, N - 1 messages of each
//     rank leave its host. Whoever passes parts on learns their counts by short messages inside the host.
// Errors: as all_reduce; mismatch naming the peer where what it sends differs from what this rank expects (where
//     messages are aggregated and calls are not checked, the rank that passes the parts on).
// Example: collx::all_to_all_v(world, tokens, send_counts, received, recv_counts);
inline constexpr detail::all_to_all_v_fn<detail::blocking> all_to_all_v{};
namespace async {
inline constexpr detail::all_to_all_v_fn<detail::nonblocking> all_to_all_v{};
}
namespace try_ {
inline constexpr detail::all_to_all_v_fn<detail::tried> all_to_all_v{};
}
namespace persistent {
inline constexpr detail::all_to_all_v_fn<detail::repeated> all_to_all_v{};
}

COLLX_END_NAMESPACE
