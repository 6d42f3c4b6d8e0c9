// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The layer of the lesson: a matrix that all ranks have, a gate and experts, each with its backward pass. Also which
// tokens an expert takes, and the tokens, whose kinds are not equally frequent. Independent of communicators. All
// arithmetic is in functions that are not inlined, so that the serial program has the same bits.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../text.hpp"

namespace lesson {

constexpr std::size_t hidden = 16, inner = 16;
using row = std::array<double, hidden>;
using matrix = std::vector<row>;

inline double dot(const row& a, const row& b) {
    double sum = 0;
    for (std::size_t i = 0; i < hidden; ++i) sum += a[i] * b[i];
    return sum;
}
inline void add(row& sum, double factor, const row& x) {
    for (std::size_t i = 0; i < hidden; ++i) sum[i] += factor * x[i];
}
// A number between -1 and 1, the same on all ranks.
inline double random(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15 + b * 0xbf58476d1ce4e5b9 + c * 0x94d049bb133111eb + 1;
    for (int k = 0; k < 3; ++k) {
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
        x ^= x >> 27;
    }
    return static_cast<double>(x >> 11) / (1ull << 52) - 1;
}
inline matrix numbers(std::size_t rows, std::uint64_t seed, double scale) {
    matrix m(rows);
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t k = 0; k < hidden; ++k) m[i][k] = scale * random(seed, i, k);
    return m;
}
[[gnu::noinline]] inline void descend(matrix& w, const matrix& gradient, double rate) {
    for (std::size_t i = 0; i < w.size(); ++i) add(w[i], -rate, gradient[i]);
}

// y = B max(Ax, 0). B is stored by columns: row k of `b` is what inner number k adds to y.
struct expert {
    matrix a, b;

    [[gnu::noinline]] row forward(const row& x) const {
        row y{};
        for (std::size_t k = 0; k < inner; ++k) add(y, std::max(dot(a[k], x), 0.0), b[k]);
        return y;
    }
    // Adds to the gradients of a and b, returns the gradient of x.
    [[gnu::noinline]] row backward(const row& x, const row& dy, expert& gradient) const {
        row dx{};
        for (std::size_t k = 0; k < inner; ++k) {
            const double u = dot(a[k], x);
            if (u <= 0) continue;
            const double du = dot(b[k], dy);
            add(gradient.b[k], u, dy);
            add(gradient.a[k], du, x);
            add(dx, du, a[k]);
        }
        return dx;
    }
};
inline expert zero_expert() { return {matrix(inner), matrix(inner)}; }
inline expert begin_expert(std::size_t e) { return {numbers(inner, 100 + e, 0.4), numbers(inner, 200 + e, 0.4)}; }

// The weights that every rank has: x = in * u, and a row of the gate for each expert.
struct shared {
    matrix in, gate;
};
inline shared begin_shared(std::size_t experts) {
    shared w{numbers(hidden, 1, 0.05), numbers(experts, 2, 0.3)};
    for (std::size_t i = 0; i < hidden; ++i) w.in[i][i] += 1;
    return w;
}

struct token {
    row u{}, target{};
    row x{};               // input of gate and expert
    std::vector<double> p; // the gate's probability of each expert
    std::size_t expert = 0;
    bool is_kept = false;
    row y{}, dx{}; // from the expert: its answer, and the gradient of x; 0 for a dropped token
    row d{};       // the gradient of the layer's output
};

// Makes a token near the place of a letter of the text. Its target is its mirror image, by axes that the letter gives.
inline token make_token(const example::text& from, std::size_t step, std::size_t number) {
    const double where = (random(3, step, number) + 1) / 2;
    const std::size_t at = static_cast<std::size_t>(where * static_cast<double>(from.words.size()));
    const std::uint32_t letter = from.words[std::min(at, from.words.size() - 1)];
    token t;
    for (std::size_t i = 0; i < hidden; ++i) t.u[i] = random(5, letter, i) + 0.4 * random(6 + step, number, i);
    for (std::size_t i = 0; i < hidden; ++i) t.target[i] = random(7, letter, i) > 0 ? t.u[i] : -t.u[i];
    return t;
}

// Runs the forward pass up to the choice of the expert.
[[gnu::noinline]] inline void choose(const shared& w, token& t) {
    t.x = {};
    for (std::size_t i = 0; i < hidden; ++i) t.x[i] = dot(w.in[i], t.u);
    double sum = 0;
    t.p.resize(w.gate.size());
    for (std::size_t e = 0; e < t.p.size(); ++e) sum += t.p[e] = std::exp(dot(w.gate[e], t.x));
    for (double& p : t.p) p /= sum;
    t.expert = static_cast<std::size_t>(std::max_element(t.p.begin(), t.p.end()) - t.p.begin());
}

// [doc:route]
// The tokens of one rank. An expert takes the first `capacity` of them; the others bypass it.
inline std::vector<int> route(const shared& w, std::vector<token>& tokens, int capacity) {
    std::vector<int> asked(w.gate.size());
    for (token& t : tokens) {
        choose(w, t);
        t.is_kept = asked[t.expert]++ < capacity;
    }
    return asked;
}
// [doc:end]

// Adds the loss |out - target|² / (2 tokens) of a token, and returns its gradient at the layer's output.
[[gnu::noinline]] inline row loss_of(const token& t, std::size_t tokens, double& loss) {
    row d = t.x;
    add(d, t.p[t.expert], t.y);
    add(d, -1, t.target);
    loss += dot(d, d) / (2 * static_cast<double>(tokens));
    for (double& v : d) v /= static_cast<double>(tokens);
    return d;
}

// The gradient of the answer of a token's expert.
inline row gradient_of_answer(const token& t) {
    row dy{};
    add(dy, t.p[t.expert], t.d);
    return dy;
}

// [doc:balance]
// The loss for balance is alpha * experts * Σ f P. f[e] is the share of tokens that ask expert e, P[e] is the gate's
// mean probability of it. Only P has a gradient. It grows with f, so the gate turns away from busy experts.
inline double balance_gradient(double alpha, const std::vector<int>& asked, std::size_t e, std::size_t tokens) {
    const double f = asked[e] / static_cast<double>(tokens);
    return alpha * static_cast<double>(asked.size()) * f / static_cast<double>(tokens);
}
// [doc:end]

// The backward pass of the gate and `in`, after that of the experts.
[[gnu::noinline]] inline void backward(const shared& w, const token& t, double alpha, const std::vector<int>& asked,
                                       std::size_t tokens, shared& gradient) {
    std::vector<double> dp(t.p.size());
    row d = t.d;
    double mean = 0;
    for (std::size_t e = 0; e < dp.size(); ++e) {
        dp[e] = balance_gradient(alpha, asked, e, tokens);
        if (e == t.expert) dp[e] += dot(d, t.y);
        mean += t.p[e] * dp[e];
    }
    add(d, 1, t.dx);
    for (std::size_t e = 0; e < dp.size(); ++e) {
        const double slope = t.p[e] * (dp[e] - mean);
        add(gradient.gate[e], slope, t.x);
        add(d, slope, w.gate[e]);
    }
    for (std::size_t i = 0; i < hidden; ++i) add(gradient.in[i], d[i], t.u);
}

} // namespace lesson
