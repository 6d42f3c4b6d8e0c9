// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The recorded programs of all ranks together with what they are meant to do: the object that is verified, measured,
// drawn and simulated.
#pragma once

#include <cstdint>

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
    bool on_devices = false;    // no engine of the host runs it
    detail::growing_array<program> programs{};

    // Filled by survey(); everything that reads a schedule relies on them.
    action uses = 0;
    int max_lag = 0;
    int signals = 0;                                    // one more than the largest signal number named
    bool uses_windows = false, reaches_buffers = false; // reaches_buffers: `in` and `out` of peers
    bool shares_scratch = false;                        // two strands of a rank use the same chunks of tmp

    constexpr int tmp_chunks() const { return scratch > chunks ? scratch : chunks; }
    // The iterations of a call that a proof runs, and its calls. Channels are empty after an iteration, so every
    // further one repeats it. Windows, counters and scratch keep state: with signals it runs until each stage has been
    // reused, with scratch that strands share until a strand may be ahead on both sides of another. A call of a barrier
    // is one iteration, and must keep its promise alone.
    constexpr int iterations() const { return op == collective::barrier ? 1 : rounds(); }
    constexpr int calls() const { return op == collective::barrier ? rounds() : 1; }

private:
    constexpr int rounds() const {
        const int least = shares_scratch ? 3 : 1;
        if ((uses & (signal | wait)) == 0) return least;
        const int stages = (window_depth > max_lag ? window_depth : max_lag) + 2;
        return stages > least ? stages : least;
    }
};

// The chunks of scratch from the first to the last that a strand names. Sets that are no simple ranges count as all.
struct scratch_range {
    std::int64_t first = most, end = 0;
    constexpr void add(place where, const chunk_set& c, int chunks) {
        if (where != place::tmp || c.count <= 0) return;
        const bool is_range = c.run == c.period && c.size == 0 && c.order == nullptr && c.first >= 0 &&
                              std::int64_t{c.first} + c.count <= chunks;
        const std::int64_t from = is_range ? c.first : 0, to = is_range ? from + c.count : most;
        first = from < first ? from : first;
        end = to > end ? to : end;
    }
    constexpr bool overlaps(const scratch_range& o) const { return first < o.end && o.first < end; }

private:
    static constexpr std::int64_t most = std::int64_t{1} << 32;
};

// Whether two strands use the same scratch. Then one may already store the next piece's while the other still reads.
[[gnu::cold]] constexpr bool shares_scratch(const program& p, int chunks) {
    if (p.strands.size() < 2) return false;
    detail::growing_array<scratch_range> before;
    for (const auto& strand : p.strands) {
        scratch_range mine;
        for (const step& st : strand) {
            mine.add(st.src.where, st.src.chunks, chunks);
            mine.add(st.own, st.src.chunks, chunks);
            mine.add(st.dst.where, st.dst.chunks, chunks);
        }
        for (const scratch_range& other : before)
            if (mine.overlaps(other)) return true;
        before.push_back(mine);
    }
    return false;
}

constexpr void survey(schedule& s, const program& p) {
    for (const auto& strand : p.strands)
        for (const step& st : strand) {
            s.uses |= st.what;
            if ((st.what & (signal | wait)) != 0) {
                if (st.index + 1 > s.signals) s.signals = st.index + 1;
                if (st.lag > s.max_lag) s.max_lag = st.lag;
            } else if ((st.what & (get | fold)) != 0) {
                (is_window(st.src.where) ? s.uses_windows : s.reaches_buffers) = true;
                if ((st.what & to_all) != 0) s.reaches_buffers = true;
                if (st.also != place::none) s.uses_windows = true;
            } else if (is_window(st.dst.where)) {
                s.uses_windows = true;
            }
        }
    s.shares_scratch = s.shares_scratch || shares_scratch(p, s.chunks);
}

// Fills in what the programs use; call it after changing them by hand.
constexpr void survey(schedule& s) {
    s.uses = 0;
    s.max_lag = s.signals = 0;
    s.uses_windows = s.reaches_buffers = s.shares_scratch = false;
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
    s.on_devices = only_on_devices_v<A>;
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
