// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compares what an algorithm declares with what there is to run it: channels, windows and signals of the host's engine,
// or of kernels. Both ask here, so a mistake is one error message for both. Separate from schedule.hpp because kernels
// do not need the recorder.
#pragma once

#include <collx/core/error.hpp>
#include <collx/sched/traits.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// What an algorithm declares for n ranks. One that does not fit them has only its name here, for its members might look
// up ranks that are not in its tables.
struct declaration {
    const char* name = "";
    collective op = collective::barrier;
    int ranks = 0;
    bool fits = true;
    int chunks = 0, scratch = 0; // chunks of the buffers and of scratch
    int signals = 0;
    int window_depth = 1, least_window_depth = 1;
    int depth = 1; // messages that a channel must hold
};

// What `a` declares for n ranks.
template <class A>
constexpr declaration declaration_of(const A& a, int n) {
    declaration d{.name = A::name, .op = A::op, .ranks = n};
    if constexpr (requires { a.fits(n); }) d.fits = a.fits(n);
    if (!d.fits) return d;
    d.chunks = a.chunks(n);
    d.scratch = tmp_chunks_of(a, n);
    d.signals = signals_v<A>;
    d.window_depth = window_depth_of(a);
    d.least_window_depth = least_window_depth_v<A>;
    d.depth = min_depth_v<A>;
    return d;
}

inline constexpr int most_chunks = 1 << 24; // of a buffer

// What there is.
struct bounds {
    int chunks = most_chunks;
    int signals = 0, window_depth = 0;
    int depth = 0;                                                          // messages that a channel holds
    const char* remedy = "let ranks receive before they have sent so many"; // where a channel holds too few
};

// rank: the caller's; -1: not known.
// Errors: invalid_argument; the same on all ranks.
[[gnu::cold]] inline void require_bounds(const declaration& d, const bounds& b, int rank) {
    if (!d.fits)
        fail(errc::invalid_argument, rank, -1,
             "if it takes a node map or a rank order, that names each rank of this communicator once; otherwise choose "
             "another algorithm, or another number of ranks",
             "algorithm %s does not fit %d ranks as it was given (its member fits())", d.name, d.ranks);
    const bool by_rank = chunks_are_ranks(d.op);
    if (d.chunks < (d.op == collective::barrier ? 0 : 1) || d.chunks > b.chunks || (by_rank && d.chunks != d.ranks))
        fail(errc::invalid_argument, rank, -1, by_rank ? "give each rank one chunk" : "see chunks(n)",
             "algorithm %s cuts the buffer of %d ranks into %d chunks", d.name, d.ranks, d.chunks);
    if (d.scratch < 0 || d.scratch > most_chunks)
        fail(errc::invalid_argument, rank, -1, "see tmp_chunks(n)", "algorithm %s asks for scratch of %d chunks",
             d.name, d.scratch);
    if (d.signals > b.signals)
        fail(errc::invalid_argument, rank, -1, "wait for several things on one signal, or choose another algorithm",
             "algorithm %s has %d signals, and here are %d", d.name, d.signals, b.signals);
    if (d.signals != 0 && (d.window_depth < d.least_window_depth || d.window_depth > b.window_depth))
        fail(errc::invalid_argument, rank, -1,
             d.least_window_depth > b.window_depth ? "choose another algorithm"
                                                   : "leave .depth out, or give it a value in between",
             "algorithm %s with windows %d deep, and it works with %d to %d", d.name, d.window_depth,
             d.least_window_depth, b.window_depth);
    if (d.depth > b.depth)
        fail(errc::invalid_argument, rank, -1, b.remedy,
             "algorithm %s needs channels that hold %d messages (min_depth), and these hold %d", d.name, d.depth,
             b.depth);
}

} // namespace sched
COLLX_END_NAMESPACE
