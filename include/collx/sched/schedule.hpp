// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The recorded programs of all ranks together with what they are meant to do: the object that is verified, measured,
// drawn and simulated. An algorithm says what it is through members; only `op`, `name` and `chunks(n)` are required,
// this file knows the defaults of the others.
#pragma once

#include <collx/core/growing_array.hpp>
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
    int scratch = 0;            // chunks of tmp, where they are more than those of the buffers
    int window_depth = 1;       // stages of a window: iteration i uses stage i % window_depth
    bool in_rank_order = false; // promises that operands are reduced in rank order
    detail::growing_array<program> programs{};

    // Filled by survey(); everything that reads a schedule relies on them.
    action uses = 0;
    int max_lag = 0;
    int signals = 0; // one more than the largest signal number named

    constexpr int tmp_chunks() const { return scratch > chunks ? scratch : chunks; }
    // Channels left empty by one iteration make every further one a repetition. Windows and counters carry state
    // across, so a schedule with signals is run until each stage has been reused.
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

// Call after changing the programs by hand.
constexpr void survey(schedule& s) {
    s.uses = 0;
    s.max_lag = s.signals = 0;
    for (const program& p : s.programs) survey(s, p);
}

template <class Algorithm>
constexpr int root_of(const Algorithm& a) {
    if constexpr (requires { a.root; }) return a.root;
    else return 0;
}

// Stages of the windows: the algorithm's own choice if it has one, else the least it declares.
template <class Algorithm>
constexpr int window_depth_of(const Algorithm& a) {
    if constexpr (requires { a.depth; }) return a.depth;
    else if constexpr (requires { Algorithm::window_depth; }) return Algorithm::window_depth;
    else return 1;
}

template <class Algorithm>
constexpr int min_depth_of(const Algorithm&) {
    if constexpr (requires { Algorithm::min_depth; }) return Algorithm::min_depth;
    else return 1;
}

// Whether the algorithm wants a commutative operator: for this n and these parameters if it can say so, else in
// general.
template <class Algorithm>
constexpr bool needs_commutative_of(const Algorithm& a, int n) {
    if constexpr (requires { a.needs_commutative_for(n); }) return a.needs_commutative_for(n);
    else if constexpr (requires { Algorithm::needs_commutative; }) return Algorithm::needs_commutative;
    else return true;
}

template <class Algorithm>
constexpr bool declares_order(const Algorithm&) {
    return requires { Algorithm::needs_commutative; };
}

// chunks(n) may be static (a property of the shape) or a member (a property of the parameters).
template <class Algorithm>
constexpr int chunks_of(const Algorithm& a, int n) {
    return a.chunks(n);
}

// The programs of all `n` ranks, with channels as shallow as the algorithm declares possible.
template <class Algorithm>
constexpr schedule record_all(const Algorithm& a, int n) {
    schedule s{.op = Algorithm::op, .ranks = n, .chunks = chunks_of(a, n), .root = root_of(a)};
    s.depth = min_depth_of(a) > 0 ? min_depth_of(a) : 1;
    s.window_depth = window_depth_of(a) > 0 ? window_depth_of(a) : 1;
    if constexpr (requires { a.tmp_chunks(n); }) s.scratch = a.tmp_chunks(n);
    s.in_rank_order = declares_order(a) && !needs_commutative_of(a, n);
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
