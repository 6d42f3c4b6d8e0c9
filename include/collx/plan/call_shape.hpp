// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a call by an algorithm would be made of, without making it: what its bytes travel through, its pieces, its work.
// For predictions; calls need none of it.
#pragma once

#include <cstddef>

#include <collx/plan/problem.hpp>
#include <collx/sched/facts.hpp>
#include <collx/sim/call_costs.hpp>
#include <collx/transport/links.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Of a communicator whose ranks are all on one host, or each alone on its own; ranks of the latter may still share the
// cores of one machine.
struct predicted_call {
    sim::medium by;
    sim::work is;
};

template <class A>
predicted_call predict_call(const A& algorithm, const problem& p, std::size_t slot_bytes, const sim::cores& on) {
    const sched::schedule s = sched::record_all(algorithm, p.ranks);
    const bool has_window = s.signals != 0;
    const std::size_t chunk =
        s.chunks > 0 ? (p.bytes + static_cast<std::size_t>(s.chunks) - 1) / static_cast<std::size_t>(s.chunks) : 0;
    bool is_zero_copy = false;
    int most_chunks = 1;
    for (const auto& program : s.programs)
        for (const auto& strand : program.strands)
            for (const sched::step& st : strand) {
                if ((st.what & sched::get) != 0 && st.src.where == sched::place::in) is_zero_copy = true;
                if ((st.what & sched::fold) != 0 && st.src.where == sched::place::in) is_zero_copy = true;
                if ((st.what & sched::send) != 0)
                    most_chunks = std::max(most_chunks, (st.what == sched::send ? st.src : st.dst).chunks.count);
            }
    const std::size_t stage = s.chunks > 0 ? schedule_cache::ring_bytes / 2 / static_cast<std::size_t>(s.chunks) : 0;
    const std::size_t most = is_zero_copy ? SIZE_MAX
                             : has_window ? stage
                                          : slot_bytes / static_cast<std::size_t>(most_chunks);
    const std::size_t piece =
        is_zero_copy ? chunk : piece_bytes_of(has_window, most, chunk, p.oversubscribed, p.windows);
    sim::call_shape shape{.bytes = static_cast<double>(p.bytes)};
    shape.pieces = piece != 0 && chunk > piece ? static_cast<double>((chunk + piece - 1) / piece) : 1;
    shape.is_short = has_window && !is_zero_copy && chunk <= most_short_bytes && is_short_form(s.programs[0]);
    return {!p.windows   ? sim::medium::sockets
            : has_window ? sim::medium::windows
                         : sim::medium::channels,
            sim::work_of(s, shape, on)};
}

} // namespace detail
COLLX_END_NAMESPACE
