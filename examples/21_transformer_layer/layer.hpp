// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The two halves of a transformer layer, attention and a two-layer perceptron, forward and backward. Each object is
// the whole or one rank's part: some heads, or some columns of the first matrix with the same rows of the second. The
// results of a part are partial sums. Independent of communicators. (Layer norms and dropout are left out.)
// Source: Shoeybi et al., "Megatron-LM", 2019.
#pragma once

#include <algorithm>
#include <cmath>

#include "matrix.hpp"

namespace lesson {

// The cumulative normal distribution at u.
inline double below(double u) { return 0.5 * std::erfc(-u / std::sqrt(2.0)); }

inline matrix gelu(matrix u) {
    for (double& v : u.x) v *= below(v);
    return u;
}

// y = gelu(x a) b. Gradients are those of the last backward().
struct perceptron {
    matrix a, b; // [hidden, f], [f, hidden]
    matrix da, db;

    // Takes columns of the first matrix and the same rows of the second. gelu needs complete elements, and has them.
    // [doc:perceptron]
    perceptron part(std::size_t rank, std::size_t ranks) const {
        const std::size_t f = a.cols / ranks;
        return {a.block(0, rank * f, a.rows, f), b.block(rank * f, 0, f, b.cols), {}, {}};
    }
    matrix forward(const matrix& x) {
        x_ = x;
        u_ = x * a;
        g_ = gelu(u_);
        return g_ * b;
    }
    matrix backward(const matrix& dy) {
        db = transposed(g_) * dy;
        matrix du = dy * transposed(b);
        for (std::size_t i = 0; i < du.x.size(); ++i) {
            const double u = u_.x[i];
            du.x[i] *= below(u) + u * std::exp(-u * u / 2) * 0.3989422804014327; // the density, 1/√(2π) e^(-u²/2)
        }
        da = transposed(x_) * du;
        return du * transposed(a);
    }
    // [doc:end]
    matrix x_, u_, g_; // kept for backward()
};

// Heads of `width` columns each. A token attends to all tokens of its sequence.
struct attention {
    std::size_t width, sequence;
    matrix q, k, v, o; // [hidden, heads * width] three times, [heads * width, hidden]
    matrix dq, dk, dv, d_o;

    // Takes whole heads: columns of the first three matrices, the same rows of the last.
    attention part(std::size_t rank, std::size_t ranks) const {
        const std::size_t c = q.cols / ranks;
        const auto columns = [&](const matrix& m) { return m.block(0, rank * c, m.rows, c); };
        return {width, sequence, columns(q), columns(k), columns(v), o.block(rank * c, 0, c, o.cols), {}, {}, {}, {}};
    }
    matrix forward(const matrix& x) {
        x_ = x;
        xq_ = x * q;
        xk_ = x * k;
        xv_ = x * v;
        mixed_ = matrix(x.rows, q.cols);
        shares_.clear();
        each_head(x.rows, [&](std::size_t row, std::size_t col) {
            matrix s = head(xq_, row, col) * transposed(head(xk_, row, col));
            for (std::size_t i = 0; i < s.rows; ++i) soften(&s.at(i, 0), s.cols);
            mixed_.put(row, col, s * head(xv_, row, col));
            shares_.push_back(std::move(s));
        });
        return mixed_ * o;
    }
    matrix backward(const matrix& dy) {
        d_o = transposed(mixed_) * dy;
        const matrix dmixed = dy * transposed(o);
        matrix gq = xq_, gk = xk_, gv = xv_;
        std::size_t at = 0;
        each_head(x_.rows, [&](std::size_t row, std::size_t col) {
            const matrix d = head(dmixed, row, col), &s = shares_[at++];
            gv.put(row, col, transposed(s) * d);
            matrix ds = d * transposed(head(xv_, row, col));
            for (std::size_t i = 0; i < s.rows; ++i) {
                double dot = 0;
                for (std::size_t j = 0; j < s.cols; ++j) dot += ds.at(i, j) * s.at(i, j);
                for (std::size_t j = 0; j < s.cols; ++j) ds.at(i, j) = s.at(i, j) * (ds.at(i, j) - dot) * scale();
            }
            gq.put(row, col, ds * head(xk_, row, col));
            gk.put(row, col, transposed(ds) * head(xq_, row, col));
        });
        const matrix x = transposed(x_);
        dq = x * gq;
        dk = x * gk;
        dv = x * gv;
        return gq * transposed(q) + gk * transposed(k) + gv * transposed(v);
    }
    matrix x_, xq_, xk_, xv_, mixed_;
    std::vector<matrix> shares_; // softmax of each sequence and head

private:
    double scale() const { return 1 / std::sqrt(static_cast<double>(width)); }
    matrix head(const matrix& m, std::size_t row, std::size_t col) const { return m.block(row, col, sequence, width); }
    template <class F>
    void each_head(std::size_t tokens, F&& f) const {
        for (std::size_t row = 0; row < tokens; row += sequence)
            for (std::size_t col = 0; col < q.cols; col += width) f(row, col);
    }
    void soften(double* s, std::size_t n) const {
        const double most = *std::max_element(s, s + n);
        double sum = 0;
        for (std::size_t j = 0; j < n; ++j) sum += s[j] = std::exp((s[j] - most) * scale());
        for (std::size_t j = 0; j < n; ++j) s[j] /= sum;
    }
};

// Computes x + attention(x), then the same with the perceptron. `in` and `out` are what a rank does before and after
// each half; in the serial program they do nothing.
// [doc:layer]
template <class In, class Out>
struct layer {
    attention& attend;
    perceptron& mlp;
    In in;   // makes the input of a half from what this rank keeps
    Out out; // makes what this rank keeps from the partial sums of a half

    matrix forward(const matrix& x) {
        const matrix z = x + out(attend.forward(in(x)));
        return z + out(mlp.forward(in(z)));
    }
    matrix backward(const matrix& dy) {
        const matrix dz = dy + out(mlp.backward(in(dy)));
        return dz + out(attend.backward(in(dz)));
    }
};
// [doc:end]

} // namespace lesson
