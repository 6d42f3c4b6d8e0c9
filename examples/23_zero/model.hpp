// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The model: a chain of layers x -> x + tanh(W x) that learns to mirror its input, and Adam. Independent of ranks, and
// of where a layer's weights come from: the four ways of the lesson differ in that.
#pragma once

#include <cmath>

#include "memory.hpp"

namespace zero {

using numbers = std::vector<float>;

// Gradients of a layer exceed 48 KiB. Shorter sums may be made in one step in shared memory, where each rank reads all
// data of the others (docs/algorithms.md).
struct shape {
    std::size_t layers = 32, width = 160, samples = 4; // samples of a rank in a step
    std::size_t layer = 0;                             // weights of a layer, rounded up to a multiple of the ranks
    int ranks = 1, steps = 4;
    shape(int n, bool is_short) : ranks(n) {
        const auto wide = static_cast<std::size_t>(n);
        if (is_short) {
            layers = 16;
            samples = 1;
            steps = 2;
        }
        layers = std::max(layers, 5 * wide); // so that one whole layer is small beside a rank's share
        layer = (width * width + wide - 1) / wide * wide;
    }
    std::size_t all() const { return layers * layer; } // the Ψ of the formulas
};

inline float first_weight(const shape& s, std::size_t l, std::size_t i) {
    if (i >= s.width * s.width) return 0; // padding
    return std::sin(static_cast<float>(i * 7 + l * 13)) / static_cast<float>(s.width);
}

inline std::vector<numbers> samples_of(const shape& s, int step, int rank) {
    std::vector<numbers> x(s.samples, numbers(s.width));
    for (std::size_t k = 0; k < s.samples; ++k)
        for (std::size_t i = 0; i < s.width; ++i)
            x[k][i] = std::sin(static_cast<float>(i + 1) *
                               static_cast<float>(static_cast<std::size_t>(step * s.ranks + rank) * s.samples + k + 1));
    return x;
}

// One pass forward and backward over a rank's samples. with_weights('F' or 'B', l, f) calls f with the weights of
// layer l. In put_gradient(l, g), g(i) is the slope of weight i.
template <class With, class Put>
void pass(const shape& s, int step, int rank, With&& with_weights, Put&& put_gradient) {
    const std::size_t n = s.width;
    std::vector<std::vector<numbers>> x{samples_of(s, step, rank)}, hidden(s.layers);
    for (std::size_t l = 0; l < s.layers; ++l) {
        x.push_back(x.back());
        hidden[l] = x.back();
        with_weights('F', l, [&](const weights& w) {
            for (std::size_t k = 0; k < s.samples; ++k)
                for (std::size_t i = 0; i < n; ++i) {
                    float sum = 0;
                    for (std::size_t j = 0; j < n; ++j) sum += static_cast<float>(w[i * n + j]) * x[l][k][j];
                    hidden[l][k][i] = std::tanh(sum);
                    x[l + 1][k][i] += hidden[l][k][i];
                }
        });
    }
    std::vector<numbers> d = x.back();
    for (std::size_t k = 0; k < s.samples; ++k)
        for (std::size_t i = 0; i < n; ++i) d[k][i] -= x[0][k][n - 1 - i];
    for (std::size_t l = s.layers; l-- > 0;) {
        std::vector<numbers> g = d;
        for (std::size_t k = 0; k < s.samples; ++k)
            for (std::size_t i = 0; i < n; ++i) g[k][i] *= 1 - hidden[l][k][i] * hidden[l][k][i];
        with_weights('B', l, [&](const weights& w) {
            for (std::size_t k = 0; k < s.samples; ++k)
                for (std::size_t i = 0; i < n; ++i)
                    for (std::size_t j = 0; j < n; ++j) d[k][j] += static_cast<float>(w[i * n + j]) * g[k][i];
        });
        put_gradient(l, [&](std::size_t i) {
            float sum = 0;
            if (i < n * n)
                for (std::size_t k = 0; k < s.samples; ++k) sum += g[k][i / n] * x[l][k][i % n];
            return collx::bf16(sum / static_cast<float>(s.samples * static_cast<std::size_t>(s.ranks)));
        });
    }
}

// Adam's states for some weights, in float: the weights themselves and two means.
struct adam {
    explicit adam(std::size_t n) : master(n), mean(n), square(n) {}
    // Updates weight i with its gradient, in step 0, 1, …
    collx::bf16 step(std::size_t i, collx::bf16 gradient, int step_number) {
        const auto g = static_cast<float>(gradient), t = static_cast<float>(step_number + 1);
        mean[i] = 0.9f * mean[i] + 0.1f * g;
        square[i] = 0.999f * square[i] + 0.001f * g * g;
        const float m = mean[i] / (1 - std::pow(0.9f, t)), v = square[i] / (1 - std::pow(0.999f, t));
        master[i] -= 0.01f * m / (std::sqrt(v) + 1e-6f);
        return collx::bf16(master[i]);
    }
    states master, mean, square;
};

// The serial program. It sums the gradients of all samples as the ranks do: part after part, in rank order. rounds:
// after each addition, as sums that travel in bf16 do; otherwise at the end, as in shared memory.
inline numbers serial(const shape& s, bool rounds) {
    std::vector<weights> w;
    std::vector<adam> state;
    for (std::size_t l = 0; l < s.layers; ++l) {
        w.emplace_back(s.layer);
        state.emplace_back(s.layer);
        for (std::size_t i = 0; i < s.layer; ++i) w[l][i] = collx::bf16(state[l].master[i] = first_weight(s, l, i));
    }
    for (int step = 0; step < s.steps; ++step) {
        std::vector<numbers> sum(s.layers, numbers(s.layer));
        for (int r = 0; r < s.ranks; ++r)
            pass(
                s, step, r, [&](char, std::size_t l, auto&& f) { f(w[l]); },
                [&](std::size_t l, auto&& slope) {
                    for (std::size_t i = 0; i < s.layer; ++i) {
                        const float both = (r == 0 ? 0 : sum[l][i]) + static_cast<float>(slope(i));
                        sum[l][i] = rounds ? static_cast<float>(collx::bf16(both)) : both;
                    }
                });
        for (std::size_t l = 0; l < s.layers; ++l)
            for (std::size_t i = 0; i < s.layer; ++i) w[l][i] = state[l].step(i, collx::bf16(sum[l][i]), step);
    }
    numbers all;
    for (const adam& a : state) all.insert(all.end(), a.master.begin(), a.master.end());
    return all;
}

} // namespace zero
