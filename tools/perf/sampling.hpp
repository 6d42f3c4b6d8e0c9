// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How often a call is made and what its time is: warm-up and estimate, then samples between two barriers. One rule for
// collx_perf and for the programs of bench/ that measure other libraries, so that their numbers may be put side by
// side. Knows no collective and no library: what is timed is a function that makes so many calls.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "harness.hpp"
#include "support/stats.hpp"

namespace collx::tools::perf {

struct sampling_rules {
    double budget_ms = 150; // timed part of one point
    double sample_us = 200; // a sample lasts at least this long
    int min_samples = 7, max_samples = 200;
    int iterations = 0; // timed calls; 0: from the budget
    int warmups = 0;    // untimed calls; 0: four batches and 2 ms
};

// Filled on rank 0 only.
struct timing {
    int batch = 0, samples = 0;
    summary us = {};
    // A cache line from core to core, before the warm-up and after the last sample (harness::line_ns).
    double line_at_start_ns = std::numeric_limits<double>::quiet_NaN();
    double line_at_end_ns = std::numeric_limits<double>::quiet_NaN();
};

// `Wait` is the barrier between batches: meeting.barrier(), or one that keeps a library's traffic going.
template <class Wait>
class sampler {
public:
    sampler(harness& meeting, const sampling_rules& rules, Wait wait)
        : meeting_(meeting), rules_(rules), wait_(std::move(wait)) {}

    /// All ranks together: run(k) makes k calls. Times are multiplied by `scale` (a ping-pong counts half).
    template <class Run>
    timing measure(Run&& run, double scale) {
        const double line_at_start_ns = meeting_.line_ns(wait_);
        const auto [batch, samples] = plan(run);
        for (int s = 0; s < samples; ++s) run_batch(run, batch, s);
        timing out{.batch = batch, .samples = samples, .line_at_start_ns = line_at_start_ns};
        out.line_at_end_ns = meeting_.line_ns(wait_);
        if (meeting_.rank() == 0) {
            std::vector<double> us;
            for (int s = 0; s < samples; ++s) us.push_back(scale * meeting_.span_ns(s) / batch / 1e3);
            out.us = summarize(us);
        }
        wait_();
        return out;
    }

private:
    template <class Run>
    void run_batch(Run& run, int count, int sample) {
        wait_();
        const auto start = monotonic_ns();
        run(count);
        const auto end = monotonic_ns();
        meeting_.stamp(sample, start, end);
        wait_();
    }

    struct shape {
        int batch, samples;
    };
    // Warms up, estimates one call, and decides on rank 0 for all how many calls make a sample and how many samples
    // there are.
    template <class Run>
    shape plan(Run& run) {
        int count = 1, called = 0;
        double estimate = 1e18, spent = 0;
        for (int round = 1;; ++round) {
            run_batch(run, count, 0);
            called += count;
            if (meeting_.rank() == 0) {
                const double t = meeting_.span_ns(0);
                estimate = std::min(estimate, t / count);
                spent += t;
                const bool enough =
                    rules_.warmups > 0 ? called >= rules_.warmups : (spent >= 2e6 && round >= 4) || spent >= 100e6;
                const int next = std::clamp(static_cast<int>(1e6 / estimate), 1, std::min(count * 4, 4096));
                meeting_.plan(0) = enough ? 0 : rules_.warmups > 0 ? std::min(next, rules_.warmups - called) : next;
            }
            wait_();
            if (meeting_.plan(0) == 0) break;
            count = static_cast<int>(meeting_.plan(0));
        }
        if (meeting_.rank() == 0) {
            auto batch = static_cast<int>(std::clamp(std::ceil(rules_.sample_us * 1e3 / estimate), 1.0, 4096.0));
            const double fit = rules_.budget_ms * 1e6 / (batch * estimate);
            auto samples = static_cast<int>(std::clamp(fit, double(rules_.min_samples), double(rules_.max_samples)));
            if (samples * (batch * estimate) > 20e9) samples = std::min(samples, 3);
            if (rules_.iterations > 0) {
                batch = std::min(batch, rules_.iterations);
                samples = (rules_.iterations + batch - 1) / batch;
            }
            meeting_.plan(1) = batch;
            meeting_.plan(2) = std::min(samples, harness::sample_limit);
        }
        wait_();
        return {static_cast<int>(meeting_.plan(1)), static_cast<int>(meeting_.plan(2))};
    }

    harness& meeting_;
    sampling_rules rules_;
    Wait wait_;
};

} // namespace collx::tools::perf
