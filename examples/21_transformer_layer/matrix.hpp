// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Dense matrices in double, stored by rows: products, blocks of rows and columns. Independent of layers and ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace lesson {

struct matrix {
    std::size_t rows = 0, cols = 0;
    std::vector<double> x;

    matrix() = default;
    matrix(std::size_t r, std::size_t c) : rows(r), cols(c), x(r * c) {}
    double& at(std::size_t i, std::size_t j) { return x[i * cols + j]; }
    double at(std::size_t i, std::size_t j) const { return x[i * cols + j]; }

    matrix block(std::size_t row, std::size_t col, std::size_t r, std::size_t c) const {
        matrix b(r, c);
        for (std::size_t i = 0; i < r; ++i)
            for (std::size_t j = 0; j < c; ++j) b.at(i, j) = at(row + i, col + j);
        return b;
    }
    void put(std::size_t row, std::size_t col, const matrix& b) {
        for (std::size_t i = 0; i < b.rows; ++i)
            for (std::size_t j = 0; j < b.cols; ++j) at(row + i, col + j) = b.at(i, j);
    }
    matrix& operator+=(const matrix& o) {
        for (std::size_t i = 0; i < x.size(); ++i) x[i] += o.x[i];
        return *this;
    }
};

inline matrix operator+(matrix a, const matrix& b) { return a += b; }

inline matrix transposed(const matrix& a) {
    matrix t(a.cols, a.rows);
    for (std::size_t i = 0; i < a.rows; ++i)
        for (std::size_t j = 0; j < a.cols; ++j) t.at(j, i) = a.at(i, j);
    return t;
}

matrix operator*(const matrix& a, const matrix& b); // product.cpp

// The largest difference between two elements.
inline double distance(const matrix& a, const matrix& b) {
    double most = a.rows == b.rows && a.cols == b.cols ? 0 : INFINITY;
    for (std::size_t i = 0; i < a.x.size() && i < b.x.size(); ++i) most = std::max(most, std::abs(a.x[i] - b.x[i]));
    return most;
}

// Numbers around zero, the same on all ranks.
inline matrix numbers(std::size_t rows, std::size_t cols, std::size_t seed, double scale) {
    matrix m(rows, cols);
    for (std::size_t i = 0; i < m.x.size(); ++i)
        m.x[i] = scale * std::sin(1.7 * static_cast<double>(i * (seed + 3) + seed));
    return m;
}

} // namespace lesson
