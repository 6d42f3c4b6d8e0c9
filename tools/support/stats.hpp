// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Statistics of a set of timings. The index rules are those of the comparison harness in bench/, so that a median or
// p95 printed by a tool means the same as one measured for another library. Independent of units.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

namespace collx::tools {

struct summary {
    std::size_t count = 0;
    double min = 0;
    double lower_quartile = 0; // less affected by other users of the machine than the median
    double median = 0;
    double p95 = 0;
    double p99 = 0;
    double max = 0;
    double mean = 0;
    double cv = 0; // standard deviation over mean, the noise; 0 for one sample
};

/// The middle value, or the mean of the two middle ones. Requires: ascending, not empty.
inline double median_of_sorted(std::span<const double> sorted) {
    if (sorted.empty()) throw std::invalid_argument("The median of no samples was asked for.");
    const std::size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : 0.5 * (sorted[half - 1] + sorted[half]);
}

/// The smallest sample that at least `fraction` of all samples do not exceed: index ceil(fraction * n) - 1.
/// Requires: ascending, not empty, 0 <= fraction <= 1.
inline double percentile_of_sorted(std::span<const double> sorted, double fraction) {
    if (sorted.empty()) throw std::invalid_argument("A percentile of no samples was asked for.");
    if (!(fraction >= 0 && fraction <= 1)) throw std::invalid_argument("A percentile's fraction must be from 0 to 1.");
    const double rank = std::ceil(fraction * static_cast<double>(sorted.size()));
    return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(std::max(rank, 1.0)) - 1)];
}

/// Index n / 4: for 4 samples the second. Requires: ascending, not empty.
inline double lower_quartile_of_sorted(std::span<const double> sorted) {
    if (sorted.empty()) throw std::invalid_argument("The quartile of no samples was asked for.");
    return sorted[sorted.size() / 4];
}

inline double median(std::vector<double> samples) {
    std::sort(samples.begin(), samples.end());
    return median_of_sorted(samples);
}

/// Errors: std::invalid_argument when there are no samples.
inline summary summarize(std::vector<double> samples) {
    if (samples.empty()) throw std::invalid_argument("A summary of no samples was asked for.");
    std::sort(samples.begin(), samples.end());
    summary s;
    s.count = samples.size();
    s.min = samples.front();
    s.lower_quartile = lower_quartile_of_sorted(samples);
    s.median = median_of_sorted(samples);
    s.p95 = percentile_of_sorted(samples, 0.95);
    s.p99 = percentile_of_sorted(samples, 0.99);
    s.max = samples.back();
    const auto n = static_cast<double>(samples.size());
    for (const double t : samples) s.mean += t / n;
    double squares = 0;
    for (const double t : samples) squares += (t - s.mean) * (t - s.mean);
    if (samples.size() > 1 && s.mean != 0) s.cv = std::sqrt(squares / (n - 1)) / std::fabs(s.mean);
    return s;
}

} // namespace collx::tools
