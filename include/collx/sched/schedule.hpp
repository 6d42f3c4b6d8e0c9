// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The recorded programs of all ranks together with what they are meant to do: the object that is verified, measured,
// drawn and simulated.
#pragma once

#include <collx/core/growing_array.hpp>
#include <collx/sched/algorithm.hpp>
#include <collx/sched/collective.hpp>
#include <collx/sched/recorder.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

struct schedule {
    collective op = collective::all_reduce;
    int ranks = 0;
    int chunks = 1;
    int root = 0;
    int depth = 1;              // messages a channel holds
    int scratch = -1;           // chunks of tmp; -1: as many as those of the buffers
    int declared_signals = -1;  // -1: as many as the steps name
    int window_depth = 1;       // stages of a window: iteration i uses stage i % window_depth
    bool in_rank_order = false; // promises that operands are reduced in rank order
    detail::growing_array<program> programs{};

    // Filled by survey(); everything that reads a schedule relies on them.
    action uses = 0;
    int max_lag = 0;
    int signals = 0; // one more than the largest signal number named

    constexpr int tmp_chunks() const { return scratch > chunks ? scratch : chunks; }
    // The iterations that a proof runs. Channels are empty after an iteration, so every further one repeats it. Windows
    // and counters keep state, so a schedule with signals is run until each stage has been reused.
    constexpr int iterations() const {
        if ((uses & (signal | wait)) == 0) return 1;
        return (window_depth > max_lag ? window_depth : max_lag) + 2;
    }
};

constexpr void survey(schedule& s, const program& p) {
    for (const auto& strand : p.strands)
        for (const step& st : strand) {
            s.uses |= st.what;
            if ((st.what & (signal | wait)) == 0) continue;
            if (st.index + 1 > s.signals) s.signals = st.index + 1;
            if (st.lag > s.max_lag) s.max_lag = st.lag;
        }
}

// Fills in what the programs use; call it after changing them by hand.
constexpr void survey(schedule& s) {
    s.uses = 0;
    s.max_lag = s.signals = 0;
    for (const program& p : s.programs) survey(s, p);
}

// A schedule without programs, as the algorithm declares it.
template <class A>
constexpr schedule declared_schedule(const A& a, int n) {
    schedule s{.op = A::op, .ranks = n, .chunks = a.chunks(n), .root = root_of(a)};
    s.depth = min_depth_v<A> > 0 ? min_depth_v<A> : 1;
    s.window_depth = window_depth_of(a) > 0 ? window_depth_of(a) : 1;
    s.scratch = tmp_chunks_of(a, n);
    s.declared_signals = signals_v<A>;
    s.in_rank_order = !needs_commutative_of(a, n);
    return s;
}

// Records the programs of all `n` ranks, with channels as shallow as the algorithm declares possible.
template <class A>
constexpr schedule record_all(const A& a, int n) {
    schedule s = declared_schedule(a, n);
    s.programs.reserve(static_cast<unsigned>(n));
    for (int r = 0; r < n; ++r) {
        if (r == 0) s.programs.push_back(record(a, r, n));
        else s.programs.push_back(record(a, r, n, s.programs.back()));
        survey(s, s.programs.back());
    }
    return s;
}

} // namespace sched
COLLX_END_NAMESPACE
