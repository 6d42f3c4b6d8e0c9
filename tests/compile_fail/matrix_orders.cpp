// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: one of these matrices is stored by rows and the other by columns, so the result would be transposed. Copy one into a matrix of the other's storage order.
// clang-format on
#include <collx/collx.hpp>

// What collx asks of an Eigen matrix.
template <bool ByRows>
struct matrix {
    using Scalar = float;
    using PlainObject = matrix;
    static constexpr bool IsRowMajor = ByRows, IsVectorAtCompileTime = false;
    static constexpr int SizeAtCompileTime = -1;
    float* at;
    float* data() const { return at; }
    long rows() const { return 2; }
    long cols() const { return 3; }
    long innerStride() const { return 1; }
    long outerStride() const { return ByRows ? 3 : 2; }
};

int main() {
    float a[6] = {}, b[6] = {};
    matrix<false> x{a};
#ifdef COLLX_FAIL
    matrix<true> y{b};
#else
    matrix<false> y{b};
#endif
    collx::communicator world;
    collx::all_reduce(world, x, y);
    return static_cast<int>(b[0]);
}
