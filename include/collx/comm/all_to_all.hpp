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
        require_staying<Mode, In, Out>();
        const auto a = buffer(in);
        const auto b = buffer(out);
        return in_mode<Mode>(comm, [&] {
            auto& c = base_of(comm).internals();
            const std::size_t part = part_of(c, a.size());
            require_size(c, "output", b.size(), a.size());
            require_memory(c, a, "input");
            require_memory(c, b, "output");
            require_apart(c, a, b, SIZE_MAX);
            return run_call<Mode, collective::all_to_all>(
                comm, a, b, no_op{}, {.total_elems = a.size(), .count = part, .timeout_ns = o.timeout.count()},
                [part](int chunks) {
                    const auto l = chunk_layout::blocks(part, chunks);
                    return std::pair(l, l);
                });
        });
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
        require_staying<Mode, In, Out>(); // here one still sees what is a temporary
        const detail::growing_array<std::size_t> packed;
        return (*this)(comm, in, send_counts, packed, out, recv_counts, packed, o);
    }
    template <Communicates Comm, Buffer In, CountList SendCounts = count_list, CountList SendOffsets = count_list,
              HostBuffer Out, CountList RecvCounts = count_list, CountList RecvOffsets = count_list>
    auto operator()(Comm&& comm, In&& in, const SendCounts& send_counts, const SendOffsets& send_offsets, Out&& out,
                    const RecvCounts& recv_counts, const RecvOffsets& recv_offsets, const call_options& o = {}) const {
        require_output<Out>();
        require_staying<Mode, In, Out>();
        const auto a = buffer(in);
        const auto b = buffer(out);
        return in_mode<Mode>(comm, [&] {
            auto& c = base_of(comm).internals();
            const auto held = tables_for<Mode>();
            count_tables& tables = tables_of(c, held);
            tables.first.assign(c.net.rank(), c.net.size(), send_counts, send_offsets, "send");
            tables.second.assign(c.net.rank(), c.net.size(), recv_counts, recv_offsets, "receive");
            const count_table &s = tables.first, &r = tables.second;
            require_at_least(c, "input", a.size(), s.end());
            require_at_least(c, "output", b.size(), r.end());
            require_memory(c, a, "input");
            require_memory(c, b, "output");
            require_apart(c, a, b, SIZE_MAX);
            const int me = c.net.rank();
            if (s.sizes()[me] != r.sizes()[me])
                fail(errc::invalid_argument, me, me, "what a rank sends itself it also receives",
                     "the counts of a rank for itself differ: %zu and %zu", s.sizes()[me], r.sizes()[me]);
            if (c.settings.checked != 0) compare_counts(base_of(comm), tables, o);
            return run_call<Mode, collective::all_to_all, true>(
                comm, a, b, no_op{}, {.timeout_ns = o.timeout.count(), .private_counts = true, .tables = &tables},
                [&s, &r](int) { return std::pair(s.layout(), r.layout()); }, held);
        });
    }
};

} // namespace detail

// Sends a part to every rank and receives one from every rank.
// Shape: `in` and `out` have n m elements; part d of `in` goes to rank d, part k of `out` comes from rank k. Not in
//     place.
// Cost: n - 1 messages of m elements per rank.
// Errors: as all_reduce.
// Example: collx::all_to_all(world, outgoing, incoming);
inline constexpr detail::all_to_all_fn<detail::blocking> all_to_all{};
namespace async {
inline constexpr detail::all_to_all_fn<detail::nonblocking> all_to_all{};
}
namespace try_ {
inline constexpr detail::all_to_all_fn<detail::tried> all_to_all{};
}

// The same with parts of different sizes.
// Shape: send_counts[d] elements go to rank d, recv_counts[k] come from rank k. A rank knows only its own counts; zero
//     is a count. Optional offsets say where each part begins; by default one part follows the other.
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

COLLX_END_NAMESPACE
