// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// all_to_all, all_to_all_v: every rank sends a separate part to every rank.
#pragma once

#include <collx/call/count_faults.hpp>
#include <collx/comm/verb_fronts.hpp>
#include <collx/job/call_end.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// In checked calls each rank learns the counts that its peers are about to send. Unchecked calls find a wrong count at
// the first message; where messages are aggregated, it comes from a carrier, not from the rank that is wrong. A
// template, so that only programs with such a call compile the exchange of counts.
template <class Comm>
void compare_counts(Comm& comm, call_facts& f) {
    auto& c = comm.internals();
    const call_end end(f.timeout_ns);
    growing_array<std::size_t>& announced = f.tables->relayed; // not in use yet
    announced.assign(static_cast<std::size_t>(c.net.size()), 0);
    moving_fn<blocking_mode, verb::all_to_all>{}(
        comm, contiguous_view<const std::size_t>(f.tables->first.sizes(), announced.size()), announced,
        {.timeout = duration::from_ns(f.timeout_ns)});
    count_fault mine;
    for (std::size_t k = 0; k < announced.size() && mine.from < 0; ++k)
        if (announced[k] != f.tables->second.sizes()[k])
            mine = {static_cast<int>(k), c.net.rank(), announced[k], f.tables->second.sizes()[k]};
    refuse_first_fault(c, mine, end.left_ns());
    f.timeout_ns = end.left_ns();
}

template <class Mode>
struct all_to_all_v_fn : takes<call_form::counted> {
    using takes<call_form::counted>::operator();

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
        require_output<Out, In>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, In, Out, true>(in, out);
            auto& c = base_of(comm).internals();
            count_tables& tables = kept.tables(c);
            tables.first.assign(c.net.rank(), c.net.size(), send_counts, send_offsets, "send");
            tables.second.assign(c.net.rank(), c.net.size(), recv_counts, recv_offsets, "receive");
            return run_out_of_place<Mode, verb::all_to_all_v>(comm, buffer(*kept.in), buffer(*kept.out), no_op{}, o,
                                                              kept, &tables);
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
            auto& c = base_of(comm).internals();
            count_tables& tables = kept.tables(c);
            tables.first.assign(c.net.rank(), c.net.size(), counts, offsets, "all_to_all_v");
            tables.second.assign(c.net.rank(), c.net.size(), counts, offsets, "all_to_all_v");
            return run_in_place<Mode, verb::all_to_all_v>(comm, buffer(*kept.out), no_op{}, o, kept, &tables);
        });
    }
    template <Communicates Comm, DeviceBuffer X, CountList Counts = count_list>
    void operator()(Comm&&, X&&, const Counts&, const device_call_options& = {}) const {
        refuse_device_in_place<X>();
    }
};

} // namespace detail

// Sends a part to every rank and receives one from every rank.
// Shape: `in` and `out` have n m elements; part d of `in` goes to rank d, part k of `out` comes from rank k. One
//     buffer: in place; part k goes to rank k and is replaced by the part that comes from there.
// Cost: n - 1 parts of m elements per rank, each sent once. Without common memory, short parts of 6 ranks or more are
//     sent on in log2(n) rounds (docs/algorithms.md). In place, the buffer is first copied into memory that the
//     communicator keeps (an async call: its handle).
// Errors: as all_reduce.
// Example: collx::all_to_all(world, outgoing, incoming);
//     collx::all_to_all(world, columns);
COLLX_VERB_BY(all_to_all, moving_fn)

// The same with parts of different sizes.
// Shape: send_counts[d] elements go to rank d, recv_counts[k] come from rank k. A rank knows only its own counts; a
//     count may be zero. Optional offsets say where each part begins; by default one part follows the other. One
//     buffer and one table: in place; counts[k] elements go to rank k and are replaced by as many from there.
// Cost: n - 1 messages per rank. Across N hosts that have several ranks each, short parts go through one rank of each
//     host (N - 1 messages per host) and long ones directly; bound to aggregated_all_to_all, N - 1 messages of each
//     rank leave its host. A rank that passes parts on learns their counts from short messages inside the host.
// Errors: as all_reduce; mismatch naming the peer if it sends another count than this rank expects (where messages are
//     aggregated and calls are not checked: naming the rank that passes the parts on).
// Example: collx::all_to_all_v(world, tokens, send_counts, received, recv_counts);
COLLX_VERB(all_to_all_v)

COLLX_END_NAMESPACE
