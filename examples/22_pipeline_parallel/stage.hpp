// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The network that is cut into stages: a chain of layers x -> tanh(x W), one per stage, that learns half its mirrored
// input. Independent of ranks.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace pipelined {

using numbers = std::vector<double>;
inline constexpr std::size_t width = 16;
inline constexpr double rate = 0.05;

struct stage {
    explicit stage(int place) : weights(width * width), gradient(weights.size()) {
        for (std::size_t i = 0; i < weights.size(); ++i)
            weights[i] = std::sin(static_cast<double>(i * 7 + static_cast<std::size_t>(place) * 13)) / 4;
    }
    // Rows of x are samples.
    numbers forward(const numbers& x) const {
        numbers y(x.size());
        for (std::size_t s = 0; s < x.size(); s += width)
            for (std::size_t i = 0; i < width; ++i) {
                for (std::size_t j = 0; j < width; ++j) y[s + i] += weights[i * width + j] * x[s + j];
                y[s + i] = std::tanh(y[s + i]);
            }
        return y;
    }
    // d: the gradient of y. Adds the gradient of the weights, returns the gradient of x.
    numbers backward(const numbers& x, const numbers& y, const numbers& d) {
        numbers before(x.size());
        for (std::size_t s = 0; s < x.size(); s += width)
            for (std::size_t i = 0; i < width; ++i) {
                const double g = d[s + i] * (1 - y[s + i] * y[s + i]);
                for (std::size_t j = 0; j < width; ++j) {
                    gradient[i * width + j] += g * x[s + j];
                    before[s + j] += g * weights[i * width + j];
                }
            }
        return before;
    }
    void descend() {
        for (std::size_t i = 0; i < weights.size(); ++i) {
            weights[i] -= rate * gradient[i];
            gradient[i] = 0;
        }
    }
    numbers weights, gradient;
};

// The samples of a micro-batch of a step.
inline numbers samples_of(int step, int micro, int count) {
    numbers x(static_cast<std::size_t>(count) * width);
    for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = std::sin(0.1 * static_cast<double>(i + 1) * static_cast<double>(31 * step + micro + 1));
    return x;
}

// The gradient of (y - mirrored x / 2)²/2.
inline numbers loss_gradient(const numbers& x, const numbers& y) {
    numbers d(y.size());
    for (std::size_t s = 0; s < y.size(); s += width)
        for (std::size_t i = 0; i < width; ++i) d[s + i] = y[s + i] - 0.5 * x[s + width - 1 - i];
    return d;
}

// The serial program: all stages, micro-batch after micro-batch.
inline std::vector<stage> serial(int p, int steps, int m, int count) {
    std::vector<stage> all;
    for (int r = 0; r < p; ++r) all.emplace_back(r);
    for (int step = 0; step < steps; ++step) {
        for (int k = 0; k < m; ++k) {
            std::vector<numbers> x{samples_of(step, k, count)};
            for (const stage& s : all) x.push_back(s.forward(x.back()));
            numbers d = loss_gradient(x.front(), x.back());
            for (std::size_t r = all.size(); r-- > 0;) d = all[r].backward(x[r], x[r + 1], d);
        }
        for (stage& s : all) s.descend();
    }
    return all;
}

} // namespace pipelined
