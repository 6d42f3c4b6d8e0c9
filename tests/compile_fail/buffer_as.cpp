// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx::as: this is neither a DLPack tensor nor like torch::Tensor. If its element type is known at compile time, pass it as it is; otherwise specialise collx::buffer_traits.
// clang-format on
#include <collx/core/as.hpp>
#include <collx/core/buffer.hpp>

#include <vector>

int main() {
    std::vector<float> x(3);
#ifdef COLLX_FAIL
    collx::as<float>(x);
#else
    return static_cast<int>(collx::buffer(x).size());
#endif
}
