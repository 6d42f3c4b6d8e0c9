// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How often a call is made and what its time is: warm-up and estimate, then samples between two barriers. collx_perf
// and the programs of bench/ that measure other libraries share this rule, so that their numbers can be compared.
// Independent of collectives and libraries: what is timed is a function that makes a number of calls.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <span>
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
    // Time of a cache line from core to core, before the warm-up and after the last sample (harness::line_ns).
    double line_at_start_ns = std::numeric_limits<double>::quiet_NaN();
    double line_at_end_ns = std::numeric_limits<double>::quiet_NaN();
};

// `Wait` is the barrier between batches: meeting.barrier(), or one that keeps a library's traffic going.
template <class Wait>
class sampler {
public:
    sampler(harness& meeting, const sampling_rules& rules, Wait wait)
        : meeting_(meeting), rules_(rules), wait_(std::move(wait)) {}

    /// Called by all ranks together. run(k) makes k calls. Times are multiplied by `scale` (a ping-pong counts half).
    template <class Run>
    timing measure(Run&& run, double scale) {
        return measure_in_turn(std::span(&run, 1), scale).front();
    }

    /// Called by all ranks together. Measures each of `runs`, one sample of each in turn, so that a change on the
    /// machine affects all alike. All have as many samples as the slowest fits into the budget. The order changes in
    /// each round. If there are several, an untimed call precedes each sample, because a call finds in the caches what
    /// the one before it left there.
    template <class Run>
    std::vector<timing> measure_in_turn(std::span<Run> runs, double scale) {
        const double line_at_start_ns = meeting_.line_ns(wait_);
        const std::size_t many = runs.size();
        std::vector<int> batch(many);
        int samples = harness::sample_limit / static_cast<int>(many);
        for (std::size_t k = 0; k < many; ++k) {
            const shape planned = plan(runs[k]);
            batch[k] = planned.batch;
            samples = std::min(samples, planned.samples);
        }
        const auto place_of = [&](std::size_t k, int s) { return static_cast<int>(k) * samples + s; };
        std::vector<std::size_t> order(many);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::minstd_rand same_on_all_ranks;
        for (int s = 0; s < samples; ++s) {
            if (many > 1) std::shuffle(order.begin(), order.end(), same_on_all_ranks);
            for (const std::size_t k : order) {
                if (many > 1) runs[k](1);
                run_batch(runs[k], batch[k], place_of(k, s));
            }
        }
        const double line_at_end_ns = meeting_.line_ns(wait_);
        std::vector<timing> all;
        for (std::size_t k = 0; k < many; ++k) {
            all.push_back({.batch = batch[k],
                           .samples = samples,
                           .line_at_start_ns = line_at_start_ns,
                           .line_at_end_ns = line_at_end_ns});
            if (meeting_.rank() != 0) continue;
            std::vector<double> us;
            for (int s = 0; s < samples; ++s) us.push_back(scale * meeting_.span_ns(place_of(k, s)) / batch[k] / 1e3);
            all.back().us = summarize(us);
        }
        wait_();
        return all;
    }

private:
    template <class Run>
    void run_batch(Run& run, int count, int sample) {
        wait_();
        const auto start = now_ns();
        run(count);
        const auto end = now_ns();
        meeting_.stamp(sample, start, end);
        wait_();
    }

    struct shape {
        int batch, samples;
    };
    // Warms up and estimates one call. Rank 0 decides for all how many calls make a sample and how many samples there
    // are.
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
                samples = std::clamp(rules_.iterations / batch, 1, harness::sample_limit);
                batch = (rules_.iterations - 1) / samples + 1; // at most one call too many in each sample
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
