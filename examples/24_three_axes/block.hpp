// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A stage of the network, x -> x + V tanh(U x), or the part of it that one of several ranks holds: some rows of U and
// the same columns of V. Nothing is exchanged between the two products. The parts of the result are summed after the
// second one (Shoeybi et al., "Megatron-LM", 2019). The code here does not communicate.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace three_axes {

using numbers = std::vector<double>;
inline constexpr std::size_t width = 32, all_hidden = 96;
inline constexpr double rate = 0.001;

class block {
public:
    block(int stage, int part, int parts)
        : hidden_(all_hidden / static_cast<std::size_t>(parts)), weights(2 * width * hidden_),
          gradient(weights.size()) {
        const std::size_t first = static_cast<std::size_t>(part) * hidden_;
        const auto number = [&](std::size_t i, std::size_t j, int of) {
            return std::sin(static_cast<double>(i * 7 + j * 3) + of + 10.0 * stage) / 8;
        };
        for (std::size_t i = 0; i < hidden_; ++i)
            for (std::size_t j = 0; j < width; ++j) {
                weights[u(i, j)] = number(first + i, j, 1);
                weights[v(j, i)] = number(first + i, j, 2);
            }
    }
    // Returns this part's share of V tanh(U x), and keeps `hidden` for the backward pass. Rows of x are samples.
    numbers forward(const numbers& x, numbers& hidden) const {
        numbers y(x.size());
        hidden.assign(x.size() / width * hidden_, 0);
        for (std::size_t s = 0; s < x.size() / width; ++s)
            for (std::size_t i = 0; i < hidden_; ++i) {
                double& h = hidden[s * hidden_ + i];
                for (std::size_t j = 0; j < width; ++j) h += weights[u(i, j)] * x[s * width + j];
                h = std::tanh(h);
                for (std::size_t j = 0; j < width; ++j) y[s * width + j] += weights[v(j, i)] * h;
            }
        return y;
    }
    // d: the gradient of the sum of all parts. Returns this part's share of the gradient of x.
    numbers backward(const numbers& x, const numbers& hidden, const numbers& d) {
        numbers before(x.size());
        for (std::size_t s = 0; s < x.size() / width; ++s)
            for (std::size_t i = 0; i < hidden_; ++i) {
                const double h = hidden[s * hidden_ + i];
                double g = 0;
                for (std::size_t j = 0; j < width; ++j) {
                    g += weights[v(j, i)] * d[s * width + j];
                    gradient[v(j, i)] += d[s * width + j] * h;
                }
                g *= 1 - h * h;
                for (std::size_t j = 0; j < width; ++j) {
                    gradient[u(i, j)] += g * x[s * width + j];
                    before[s * width + j] += g * weights[u(i, j)];
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
    // Returns the largest difference from the same part of the whole block.
    double distance(const block& whole, int part) const {
        const std::size_t first = static_cast<std::size_t>(part) * hidden_;
        double most = 0;
        for (std::size_t i = 0; i < hidden_; ++i)
            for (std::size_t j = 0; j < width; ++j)
                most = std::fmax(most, std::fmax(std::abs(weights[u(i, j)] - whole.weights[whole.u(first + i, j)]),
                                                 std::abs(weights[v(j, i)] - whole.weights[whole.v(j, first + i)])));
        return most;
    }

private:
    std::size_t hidden_;

public:
    numbers weights, gradient; // U, then V

private:
    std::size_t u(std::size_t i, std::size_t j) const { return i * width + j; }
    std::size_t v(std::size_t j, std::size_t i) const { return (hidden_ + i) * width + j; }
};

// The samples of a micro-batch in a step, from one of several parts of the data.
inline numbers samples_of(int step, int part, int micro, int count) {
    numbers x(static_cast<std::size_t>(count) * width);
    for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = std::sin(0.1 * static_cast<double>(i + 1) * (31 * step + 7 * part + micro + 1));
    return x;
}
// The gradient of (y - mirrored x)²/32.
inline numbers loss_gradient(const numbers& x, const numbers& y) {
    numbers d(y.size());
    for (std::size_t s = 0; s < y.size(); s += width)
        for (std::size_t i = 0; i < width; ++i) d[s + i] = (y[s + i] - x[s + width - 1 - i]) / 16;
    return d;
}
inline numbers added(numbers a, const numbers& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
}

// The serial program.
inline std::vector<block> serial(int stages, int parts_of_data, int steps, int micro_batches, int count) {
    std::vector<block> all;
    for (int s = 0; s < stages; ++s) all.emplace_back(s, 0, 1);
    for (int step = 0; step < steps; ++step) {
        for (int part = 0; part < parts_of_data; ++part)
            for (int k = 0; k < micro_batches; ++k) {
                std::vector<numbers> x{samples_of(step, part, k, count)}, hidden(all.size());
                for (std::size_t s = 0; s < all.size(); ++s) x.push_back(added(x[s], all[s].forward(x[s], hidden[s])));
                numbers d = loss_gradient(x.front(), x.back());
                for (std::size_t s = all.size(); s-- > 0;) d = added(d, all[s].backward(x[s], hidden[s], d));
            }
        for (block& b : all) b.descend();
    }
    return all;
}

} // namespace three_axes
