// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The product of two matrices: Eigen's where the build has found it, otherwise three loops. A separate source, because
// Eigen's headers take as long to compile as the lesson.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized" // g++ 12 reports it in its own AVX-512 header, through Eigen
#endif
#include "matrix.hpp"

#if COLLX_HAS_EIGEN
#include <Eigen/Core>
#endif

namespace lesson {

#if COLLX_HAS_EIGEN
matrix operator*(const matrix& a, const matrix& b) {
    using by_rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    using in = Eigen::Map<const by_rows>;
    const auto size = [](std::size_t n) { return static_cast<Eigen::Index>(n); };
    matrix c(a.rows, b.cols);
    Eigen::Map<by_rows>(c.x.data(), size(c.rows), size(c.cols)).noalias() =
        in(a.x.data(), size(a.rows), size(a.cols)) * in(b.x.data(), size(b.rows), size(b.cols));
    return c;
}
#else
matrix operator*(const matrix& a, const matrix& b) {
    matrix c(a.rows, b.cols);
    for (std::size_t i = 0; i < a.rows; ++i)
        for (std::size_t k = 0; k < a.cols; ++k)
            for (std::size_t j = 0; j < b.cols; ++j) c.x[i * c.cols + j] += a.x[i * a.cols + k] * b.x[k * b.cols + j];
    return c;
}
#endif

} // namespace lesson
