// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a call by an algorithm would take, without making it: medium, pieces and work. For predictions only.
#pragma once

#include <cstddef>

#include <collx/exec/short_call.hpp>
#include <collx/exec/single_copy.hpp>
#include <collx/plan/problem.hpp>
#include <collx/sched/facts.hpp>
#include <collx/sim/host_costs.hpp>
#include <collx/transport/links.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// A predicted call of a communicator whose ranks are all on one host, or each alone on its own; the latter may still
// share the cores of one machine.
struct predicted_call {
    sim::medium by;
    sim::work is;
};

// The most chunks of one message, and whether peers read each other's buffers.
struct schedule_shape {
    int message_chunks = 1;
    bool is_zero_copy = false;
};
inline schedule_shape shape_of(const sched::schedule& s) {
    schedule_shape shape;
    for (const auto& program : s.programs)
        for (const auto& strand : program.strands)
            for (const sched::step& st : strand) {
                const bool reads = (st.what & (sched::get | sched::fold)) != 0;
                if (reads && st.src.where == sched::place::in) shape.is_zero_copy = true;
                const int count = (st.what == sched::send ? st.src : st.dst).chunks.count;
                if ((st.what & sched::send) != 0 && count > shape.message_chunks) shape.message_chunks = count;
            }
    return shape;
}

// slot_bytes: those of the communicator's channels.
inline sim::call_shape call_shape_of(const sched::schedule& s, const problem& p, std::size_t slot_bytes) {
    const schedule_shape of = shape_of(s);
    const bool has_window = s.signals != 0;
    const auto chunks = static_cast<std::size_t>(s.chunks > 0 ? s.chunks : 1);
    const std::size_t chunk = (p.bytes + chunks - 1) / chunks;
    const std::size_t most =
        has_window ? schedule_cache::ring_bytes / 2 / chunks : slot_bytes / static_cast<std::size_t>(of.message_chunks);
    const std::size_t piece =
        of.is_zero_copy ? chunk : piece_bytes_of(s.op, has_window, most, chunk, p.oversubscribed, p.windows);
    sim::call_shape call{.bytes = static_cast<double>(p.bytes)};
    call.pieces = piece != 0 && chunk > piece ? static_cast<double>((chunk + piece - 1) / piece) : 1;
    call.is_short = has_window ? !of.is_zero_copy && chunk <= most_short_bytes && is_short_form(s.programs[0])
                               : p.windows && chunk < least_measured_bytes && is_short_exchange(s.programs[0]);
    return call;
}

// Of a communicator whose ranks are all on one host, or each alone on its own.
template <class A>
predicted_call predict_call(const A& algorithm, const problem& p, std::size_t slot_bytes, const sim::cores& on) {
    const sched::schedule s = sched::record_all(algorithm, p.ranks);
    const sim::call_shape call = call_shape_of(s, p, slot_bytes);
    const bool has_window = s.signals != 0;
    return {!p.windows   ? sim::medium::sockets
            : has_window ? sim::medium::windows
                         : sim::medium::channels,
            sim::work_of(s, call, on)};
}

// Predicts for a communicator whose hosts have several ranks; they may all be one machine.
// Requires: p.hosts, an algorithm without windows.
template <class A>
sim::work_by_hosts predict_among_hosts(const A& algorithm, const problem& p, std::size_t slot_bytes,
                                       const sim::cores& on) {
    const sched::schedule s = sched::record_all(algorithm, p.ranks);
    return sim::work_of_hosts(s, call_shape_of(s, p, slot_bytes), on, p.hosts->view());
}

} // namespace detail
COLLX_END_NAMESPACE
