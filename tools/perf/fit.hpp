// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fits costs to measured times: non-negative least squares of relative errors, by coordinate descent. Large errors
// count less in each round (iteratively reweighted), so that a few bad points do not bend the rest. Measures nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <collx/sim/call_costs.hpp>

#include "support/stats.hpp"

namespace collx::tools::perf {

struct fitted_point {
    sim::work is;
    double measured_ns = 0;
    double known_ns = 0; // the part of it that previously fitted costs explain
};

inline double error_of(const fitted_point& p, const sim::costs& c) {
    return std::fabs((p.known_ns + sim::predicted_ns(p.is, c)) / p.measured_ns - 1);
}
inline double median_error(const std::vector<fitted_point>& points, const sim::costs& c) {
    std::vector<double> errors;
    for (const fitted_point& p : points) errors.push_back(error_of(p, c));
    return errors.empty() ? 0 : median(std::move(errors));
}

namespace detail {

// One pass over all terms: each takes the value that is best for what the other terms leave.
inline void descend(const std::vector<fitted_point>& points, const std::vector<double>& weights, sim::costs& c) {
    for (int t = 0; t < sim::term_count; ++t) {
        double with = 0, square = 0;
        for (std::size_t i = 0; i < points.size(); ++i) {
            const double x = points[i].is.of[t] / points[i].measured_ns;
            if (x == 0) continue;
            const double others =
                points[i].known_ns + sim::predicted_ns(points[i].is, c) - points[i].is.of[t] * c.of[t];
            const double left = 1 - others / points[i].measured_ns;
            with += weights[i] * x * left;
            square += weights[i] * x * x;
        }
        c.of[t] = square > 0 ? std::max(0.0, with / square) : 0;
    }
}

} // namespace detail

inline sim::costs fit(const std::vector<fitted_point>& points) {
    sim::costs c;
    std::vector<double> weights(points.size(), 1);
    for (int round = 0; round < 12; ++round) {
        for (int pass = 0; pass < 400; ++pass) detail::descend(points, weights, c);
        for (std::size_t i = 0; i < points.size(); ++i) weights[i] = 1 / std::max(0.02, error_of(points[i], c));
    }
    for (double& ns : c.of)
        if (ns < 1e-6) ns = 0; // the rest of a cost that went to another
    c.points = static_cast<int>(points.size());
    c.residual = median_error(points, c);
    return c;
}

} // namespace collx::tools::perf
