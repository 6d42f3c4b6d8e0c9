// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Micro-batches through p stages of a pipeline: when each stage is busy. With m micro-batches, stages of equal length
// are idle for (p - 1) / (m + p - 1) of the time in either order (Huang et al. 2019; Narayanan et al. 2021).
#pragma once

#include <algorithm>
#include <vector>

#include <collx/sim/training_model.hpp>

COLLX_BEGIN_NAMESPACE
namespace sim {

// One pass of one micro-batch through one stage.
struct pass {
    int stage = 0, micro_batch = 0;
    bool is_back = false;
    double begin_ns = 0, end_ns = 0;
};

// The times of a stage. Sending to a neighbour occupies neither of the two.
struct stage_times {
    double forward_ns = 0, back_ns = 0;
};

// The passes of stage `stage` of `stages`, in order.
inline std::vector<pass> passes_of(pipeline_order order, int stage, int stages, int micro_batches) {
    std::vector<pass> all;
    const int ahead = order == pipeline_order::gpipe ? micro_batches : std::min(micro_batches, stages - stage);
    for (int i = 0; i < ahead; ++i) all.push_back({stage, i, false});
    for (int i = 0; i < micro_batches; ++i) {
        all.push_back({stage, i, true});
        if (ahead + i < micro_batches) all.push_back({stage, ahead + i, false});
    }
    return all;
}

// All passes with their times: stage after stage, each in the order of time. `hop_ns`: from one stage to the next.
// Cost: stages times micro-batches. Errors: invalid_argument for no stage, no micro-batch, or a negative time.
inline std::vector<std::vector<pass>> run_pipeline(pipeline_order order, const std::vector<stage_times>& stages,
                                                   int micro_batches, double hop_ns) {
    const int p = static_cast<int>(stages.size()), m = micro_batches;
    bool is_good = p >= 1 && m >= 1 && hop_ns >= 0;
    for (const stage_times& s : stages) is_good = is_good && s.forward_ns >= 0 && s.back_ns >= 0;
    if (!is_good)
        fail(errc::invalid_argument, -1, -1, "give at least one of each, and times of 0 or more",
             "a pipeline of %d stages, %d micro-batches and hops of %g ns", p, m, hop_ns);
    const auto at = [&](int stage, int i) {
        return static_cast<std::size_t>(stage) * static_cast<std::size_t>(m) + static_cast<std::size_t>(i);
    };
    std::vector<double> forward(at(p, 0), -1), back(at(p, 0), -1); // ends, -1: not yet
    std::vector<std::vector<pass>> all;
    std::vector<std::size_t> next(stages.size(), 0);
    std::vector<double> free(stages.size(), 0);
    for (int s = 0; s < p; ++s) all.push_back(passes_of(order, s, p, m));
    for (bool moves = true; moves;) {
        moves = false;
        for (int s = 0; s < p; ++s)
            for (auto& n = next[static_cast<std::size_t>(s)]; n < all[static_cast<std::size_t>(s)].size(); ++n) {
                pass& one = all[static_cast<std::size_t>(s)][n];
                const int i = one.micro_batch;
                double ready = 0;
                if (one.is_back) ready = s == p - 1 ? forward[at(s, i)] : back[at(s + 1, i)];
                else if (s > 0) ready = forward[at(s - 1, i)];
                if (ready < 0) break;
                const bool is_sent = one.is_back ? s < p - 1 : s > 0;
                double& when = free[static_cast<std::size_t>(s)];
                const stage_times& t = stages[static_cast<std::size_t>(s)];
                one.begin_ns = std::max(when, ready + (is_sent ? hop_ns : 0));
                when = one.end_ns = one.begin_ns + (one.is_back ? t.back_ns : t.forward_ns);
                (one.is_back ? back : forward)[at(s, i)] = when;
                moves = true;
            }
    }
    return all;
}

// When the last pass ends.
inline double end_of(const std::vector<std::vector<pass>>& stages) {
    double last = 0;
    for (const auto& s : stages)
        for (const pass& one : s) last = std::max(last, one.end_ns);
    return last;
}
// The share of the time of all stages, until the last pass ends, in which a stage is idle.
inline double bubble_of(const std::vector<std::vector<pass>>& stages) {
    double busy = 0;
    for (const auto& s : stages)
        for (const pass& one : s) busy += one.end_ns - one.begin_ns;
    const double all = end_of(stages) * static_cast<double>(stages.size());
    return all > 0 ? 1 - busy / all : 0;
}

} // namespace sim
COLLX_END_NAMESPACE
