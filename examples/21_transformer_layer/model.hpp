// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The layer of the lesson and its input, whole, as the serial program has them, and a check of its gradients by
// differences of losses. Independent of communicators.
#pragma once

#include "../check.hpp"
#include "layer.hpp"

namespace lesson {

struct same_fn {
    const matrix& operator()(const matrix& m) const { return m; }
};

struct model {
    std::size_t heads, width = 8, hidden = width * heads, sequence = 2 * heads, tokens = 2 * sequence; // two sequences
    attention attend{width, sequence, weights(1, hidden), weights(2, hidden), weights(3, hidden), weights(4, hidden)};
    perceptron mlp{weights(5, 4 * hidden), numbers(4 * hidden, hidden, 6, 0.2)};
    matrix x = numbers(tokens, hidden, 7, 1), dy = numbers(tokens, hidden, 8, 1); // the loss is the sum of y * dy

    matrix weights(std::size_t seed, std::size_t cols) const { return numbers(hidden, cols, seed, 0.2); }
    layer<same_fn, same_fn> whole() { return {attend, mlp, {}, {}}; }
};

// Compares each gradient of the serial program with a difference of losses.
inline void check_by_differences(model m) {
    const auto loss = [&] {
        const matrix y = m.whole().forward(m.x);
        double sum = 0;
        for (std::size_t i = 0; i < y.x.size(); ++i) sum += y.x[i] * m.dy.x[i];
        return sum;
    };
    (void)loss();
    matrix dx = m.whole().backward(m.dy);
    const attention a = m.attend;
    const perceptron p = m.mlp;
    const auto check = [&](matrix& w, const matrix& gradient, const char* what) {
        double& one = w.x[w.x.size() / 3];
        const double was = one, epsilon = 1e-5;
        one = was + epsilon;
        const double above = loss();
        one = was - epsilon;
        const double slope = (above - loss()) / (2 * epsilon), said = gradient.x[w.x.size() / 3];
        one = was;
        example::expect(std::abs(slope - said) < 1e-6 * (1 + std::abs(said)), what);
    };
    check(m.x, dx, "the gradient of x");
    check(m.attend.q, a.dq, "of q");
    check(m.attend.k, a.dk, "of k");
    check(m.attend.v, a.dv, "of v");
    check(m.attend.o, a.d_o, "of o");
    check(m.mlp.a, p.da, "of a");
    check(m.mlp.b, p.db, "of b");
}

} // namespace lesson
