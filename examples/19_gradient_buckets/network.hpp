// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A network of many small tensors that learns one sample at a time. Independent of ranks.
#pragma once

#include <cmath>
#include <span>
#include <vector>

using numbers = std::vector<float>;

struct shape {
    std::size_t layers = 48, width = 64;
    int parts = 12, steps = 40; // parts of a batch: 12 divide evenly among 1, 2, 3, 4, 6 or 12 ranks
};

// A chain of layers x -> tanh(Wx + b), trained to turn a sample into half its mirror image. Tensor 2l is W of layer l,
// n x n, and tensor 2l + 1 is its b. All weights are one array, and so are all gradients.
class network {
public:
    explicit network(const shape& s)
        : n(s.width), layers(s.layers), weights(layers * (n * n + n)), gradients(weights.size()) {
        for (std::size_t l = 0; l < layers; ++l)
            for (std::size_t i = 0; i < n * n; ++i)
                of(weights, 2 * l)[i] =
                    (static_cast<float>((i * 37 + l * 11) % 101) / 50 - 1) / std::sqrt(static_cast<float>(n));
    }
    std::size_t tensors() const { return 2 * layers; }
    std::span<float> gradient(std::size_t k) { return of(gradients, k); }
    // Adds the gradients of one sample. Calls is_ready(k) when the gradient of tensor k is complete.
    template <class Ready>
    void learn(int sample, Ready&& is_ready) {
        std::vector<numbers> x{numbers(n)};
        for (std::size_t i = 0; i < n; ++i)
            x[0][i] = std::sin(static_cast<float>(i + 1) * static_cast<float>(sample + 1));
        for (std::size_t l = 0; l < layers; ++l) x.push_back(forward(l, x[l]));
        numbers d(n);
        for (std::size_t i = 0; i < n; ++i) d[i] = x.back()[i] - 0.5f * x[0][n - 1 - i];
        for (std::size_t l = layers; l-- > 0;) {
            d = backward(l, x[l], x[l + 1], d);
            is_ready(2 * l + 1);
            is_ready(2 * l);
        }
    }
    void step(float rate) {
        for (std::size_t i = 0; i < weights.size(); ++i) {
            weights[i] -= rate * gradients[i];
            gradients[i] = 0;
        }
    }
    const std::size_t n, layers;
    numbers weights, gradients;

private:
    std::span<float> of(numbers& all, std::size_t k) const {
        const std::size_t begin = k / 2 * (n * n + n);
        return k % 2 == 0 ? std::span(all).subspan(begin, n * n) : std::span(all).subspan(begin + n * n, n);
    }
    numbers forward(std::size_t l, const numbers& x) {
        const std::span<float> w = of(weights, 2 * l), b = of(weights, 2 * l + 1);
        numbers y(b.begin(), b.end());
        for (std::size_t i = 0; i < n; ++i) {
            for (std::size_t j = 0; j < n; ++j) y[i] += w[i * n + j] * x[j];
            y[i] = std::tanh(y[i]);
        }
        return y;
    }
    numbers backward(std::size_t l, const numbers& x, const numbers& y, const numbers& d) {
        const std::span<float> w = of(weights, 2 * l), dw = gradient(2 * l), db = gradient(2 * l + 1);
        numbers before(n, 0.0f);
        for (std::size_t i = 0; i < n; ++i) {
            const float g = d[i] * (1 - y[i] * y[i]);
            db[i] += g;
            for (std::size_t j = 0; j < n; ++j) {
                dw[i * n + j] += g * x[j];
                before[j] += g * w[i * n + j];
            }
        }
        return before;
    }
};
