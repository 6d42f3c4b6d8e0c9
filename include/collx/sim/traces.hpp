// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Exports a simulation as Chrome's trace events (core/chrome_trace.hpp), and a schedule as GOAL for another simulator,
// LogGOPSim (Hoefler, Schneider, Lumsdaine, "LogGOPSim", LSAP 2010).
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <collx/core/chrome_trace.hpp>
#include <collx/sim/recording.hpp>
#include <collx/sim/result.hpp>

COLLX_BEGIN_NAMESPACE
namespace sim {

// One line of events per rank of the machine, with the messages that it sends: each from its first byte's departure to
// its last byte's arrival. S: a schedule or a recording.
template <class S>
std::string to_chrome_trace(const S& s, const result& r) {
    std::vector<transfer> all = r.transfers;
    std::stable_sort(all.begin(), all.end(),
                     [](const transfer& a, const transfer& b) { return a.begin_ns < b.begin_ns; });
    int ranks = s.ranks;
    for (const transfer& t : all) ranks = std::max(ranks, t.from + 1);
    chrome_trace trace;
    trace.name_process(trace.simulated, "simulated");
    for (int k = 0; k < ranks; ++k) trace.name_rank(trace.simulated, k);
    std::vector<double> busy_until(static_cast<std::size_t>(ranks), 0);
    unsigned long long id = 0;
    char bytes[40];
    for (const transfer& t : all) {
        std::snprintf(bytes, sizeof bytes, "\"bytes\":%.0f", t.bytes);
        const std::string name = "to " + std::to_string(t.to);
        const double ns = t.end_ns - t.begin_ns;
        // A message may leave while the one before it still travels. Plain events of one line may not overlap.
        double& until = busy_until[static_cast<std::size_t>(t.from)];
        if (t.begin_ns >= until) trace.event(trace.simulated, t.from, name, t.begin_ns, ns, bytes);
        else trace.overlapping(trace.simulated, t.from, ++id, name, t.begin_ns, ns, bytes);
        until = std::max(until, t.end_ns);
    }
    return trace.text();
}

// The GOAL text of one call in one piece. A strand is a sequence; reductions are calc of `reduce_ns_per_byte`.
// Errors: unsupported for steps over windows, because GOAL has only messages.
inline std::string to_goal(const recording& s, double bytes, double reduce_ns_per_byte = 0) {
    constexpr sched::action messages = sched::recv | sched::reduce | sched::reduce_after | sched::copy | sched::send;
    std::string text = "num_ranks " + std::to_string(s.ranks) + "\n";
    int rank = -1, label = 0, cpu = 0;
    for (const short_strand& strand : s.strands) {
        if (strand.rank != rank) {
            text += std::string(rank < 0 ? "" : "}\n") + "\nrank " + std::to_string(strand.rank) + " {\n";
            rank = strand.rank;
            label = 0;
            cpu = 0;
        }
        int before = 0;
        const auto line = [&](const std::string& what) {
            const std::string name = "l" + std::to_string(++label);
            text += name + ": " + what + "\n";
            if (before > 0) text += name + " requires l" + std::to_string(before) + "\n";
            before = label;
        };
        for (std::size_t i = strand.begin; i < strand.end; ++i) {
            const short_step& st = s.steps[i];
            if ((st.what & ~messages) != 0)
                fail(errc::unsupported, rank, -1, "export an algorithm that sends messages, a ring for example",
                     "GOAL has messages only, and this schedule uses windows");
            const double size = bytes / (s.chunks > 0 ? s.chunks : 1) * st.chunks;
            const std::string b = std::to_string(static_cast<long long>(size + 0.5)) + "b";
            const std::string on = " tag 0 cpu " + std::to_string(cpu);
            const double ns = reduce_ns_per_byte * size;
            for (int k = 0; k < st.times; ++k) {
                if ((st.what & sched::recv) != 0) line("recv " + b + " from " + std::to_string(st.peer_from) + on);
                if ((st.what & (sched::reduce | sched::reduce_after)) != 0 && ns > 0)
                    line("calc " + std::to_string(static_cast<long long>(ns + 0.5)) + " cpu " + std::to_string(cpu));
                if ((st.what & sched::send) != 0) line("send " + b + " to " + std::to_string(st.peer_to) + on);
            }
        }
        ++cpu;
    }
    return text + (rank < 0 ? "" : "}\n");
}
inline std::string to_goal(const sched::schedule& s, double bytes, double reduce_ns_per_byte = 0) {
    return to_goal(recording_of(s), bytes, reduce_ns_per_byte);
}

} // namespace sim
COLLX_END_NAMESPACE
