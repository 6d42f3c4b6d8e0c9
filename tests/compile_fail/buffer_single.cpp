// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx::buffer: this is a single element, not a range. Use collx::value(x) to send it alone, or specialise collx::buffer_traits if it is a tensor of your own.
// clang-format on
#include <collx/core/buffer.hpp>

int main() {
    double x = 1;
#ifdef COLLX_FAIL
    return static_cast<int>(collx::buffer(x).size());
#else
    return static_cast<int>(collx::buffer(collx::value(x)).size());
#endif
}
