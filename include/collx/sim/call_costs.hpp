// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Predicts how long one call takes on the cores of one host: counts of what its ranks do, times the cost of each.
// Where ranks share cores, the cores are the bottleneck and not memory. simulate() has no cores, so the work of all
// ranks is divided among them here. The costs are alpha (call, task, round, step), beta (bytes, by where they come
// from) and gamma (bytes that are reduced), one set for each medium; collx_perf --fit measures them.
#pragma once

#include <algorithm>
#include <cstddef>

#include <collx/sched/facts.hpp>
#include <collx/sched/schedule.hpp>

COLLX_BEGIN_NAMESPACE
namespace sim {

// How bytes move between ranks: windows or channels in shared memory, sockets, or channels of ranks that also wait for
// sockets (mixed: each poll for a message also makes a system call).
enum class medium : unsigned char { windows, channels, sockets, mixed };
// The number of media.
inline constexpr int medium_count = 4;
// The name of a medium in machine files.
constexpr const char* name_of(medium w) {
    constexpr const char* names[] = {"windows", "channels", "sockets", "mixed"};
    return names[static_cast<int>(w)];
}

// The terms of a prediction. A count is that of the rank that has most or, if it is more, that of all ranks divided by
// the cores.
enum term : unsigned char {
    call,     // one
    task,     // one, unless the steps run straight through (a short call over windows)
    round,    // messages or signals that must follow one another, unless calls overlap
    step,     // sends, receives, signals, and waits for another rank's signal
    byte,     // moved
    l2_byte,  // of these, the share that does not fit the second-level caches
    far_byte, // of these, the share that does not fit the last-level cache
    reduced_byte
};
// The number of terms.
inline constexpr int term_count = 8;
constexpr const char* name_of(term t) {
    constexpr const char* names[] = {"call_ns", "task_ns",    "round_ns",    "step_ns",
                                     "byte_ns", "l2_byte_ns", "far_byte_ns", "reduced_byte_ns"};
    return names[t];
}
// The count of each term in a call.
struct work {
    double of[term_count] = {};
};

// The cores of one host and their caches.
struct cores {
    int count = 1;
    std::size_t l2_bytes = 1 << 20, last_bytes = 32 << 20; // of one core's second level, of the last level
};

// The share of the touched bytes that a cache does not hold.
constexpr double missing(double touched, std::size_t cache_bytes) {
    const auto holds = static_cast<double>(cache_bytes);
    return touched > holds ? 1 - holds / touched : 0;
}

// The facts of a call that are not in its schedule.
struct call_shape {
    double bytes = 0;      // of the whole buffer
    double pieces = 1;     // the steps are repeated for each piece
    bool is_short = false; // no task
};

// Whether no rank waits for a rank with a higher number, as in a scan. Then a rank continues with its next call while
// later ranks are in this one, and rounds overlap. False for rooted calls, where the next root may be any rank.
inline bool overlaps_next_call(const sched::schedule& s) {
    if (is_rooted(s.op)) return false;
    for (int r = 0; r < s.ranks; ++r)
        for (const auto& strand : s.programs[static_cast<unsigned>(r)].strands)
            for (const sched::step& st : strand) {
                const bool asks_a_window = (st.what & (sched::signal | sched::wait | sched::get | sched::fold)) != 0;
                if (asks_a_window || ((st.what & sched::send) != 0 && st.peer_to < r)) return false;
            }
    return true;
}

namespace detail {

// The work of a call as far as pass(from, to) holds for its messages. add(counts, rank, step, bytes) counts a step that
// moves so many bytes.
template <class Add, class Pass = sched::all_messages>
work summed(const sched::schedule& s, const call_shape& c, const cores& on, const Add& add, const Pass& pass = {}) {
    const double chunk = s.chunks > 0 ? c.bytes / s.chunks : 0;
    double most[term_count] = {}, all[term_count] = {};
    for (int r = 0; r < s.ranks; ++r) {
        double mine[term_count] = {};
        for (const auto& strand : s.programs[static_cast<unsigned>(r)].strands)
            for (const sched::step& st : strand)
                add(mine, r, st, chunk * (st.what == sched::send ? st.src : st.dst).chunks.count);
        for (int t = 0; t < term_count; ++t) {
            most[t] = std::max(most[t], mine[t]);
            all[t] += mine[t];
        }
    }
    const double sharing = std::max(1.0, static_cast<double>(s.ranks) / on.count);
    work w;
    for (int t = 0; t < term_count; ++t) w.of[t] = std::max(most[t], all[t] / on.count);
    w.of[call] = sharing;
    w.of[task] = c.is_short ? 0 : sharing;
    w.of[round] = overlaps_next_call(s) ? 0 : std::max(0, sched::rounds(s, pass)) * sharing;
    w.of[l2_byte] = w.of[byte] * missing(2 * c.bytes * sharing, on.l2_bytes);
    w.of[far_byte] = w.of[byte] * missing(2 * c.bytes * s.ranks, on.last_bytes);
    return w;
}

} // namespace detail

// The work of a schedule whose ranks are all on one host.
inline work work_of(const sched::schedule& s, const call_shape& c, const cores& on) {
    return sim::detail::summed(s, c, on, [&](double* mine, int, const sched::step& st, double bytes) {
        const bool waits_for_all = (st.what & sched::wait) != 0 && st.peer_from == sched::all_ranks;
        if ((st.what & (sched::signal | sched::wait)) != 0) {
            mine[step] += c.pieces * (waits_for_all ? s.ranks - 1 : 1);
            return;
        }
        const bool receives = (st.what & sched::recv) != 0, sends = (st.what & sched::send) != 0;
        const bool folds = (st.what & sched::fold) != 0;
        const double operands = folds ? st.peer_to - st.peer_from : 1;
        mine[step] += c.pieces * (receives + sends);
        mine[byte] += bytes * (folds                ? operands
                               : receives || !sends ? 1
                                                    : 0) +
                      bytes * sends + ((st.what & sched::to_all) != 0 ? bytes * (s.ranks - 1) : 0);
        if ((st.what & (sched::reduce | sched::reduce_after | sched::fold)) != 0)
            mine[reduced_byte] += bytes * (folds ? operands - 1 : 1);
    });
}

// Nanoseconds of each term.
struct costs {
    double of[term_count] = {};
    double residual = 0; // median of |predicted / measured - 1| over the points that it was fitted to
    int points = 0;
};
// Nanoseconds of a call: the sum of its terms.
inline double predicted_ns(const work& w, const costs& c) {
    double ns = 0;
    for (int t = 0; t < term_count; ++t) ns += w.of[t] * c.of[t];
    return ns;
}

} // namespace sim
COLLX_END_NAMESPACE
