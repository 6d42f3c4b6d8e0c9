// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: the result cannot be written into this buffer: it is const, or computed as it is read. Pass a buffer of your own that is not const, for example a std::vector.
// clang-format on
#include <collx/core/buffer.hpp>

#include <vector>

int main() {
#ifdef COLLX_FAIL
    const std::vector<float> result(3);
#else
    std::vector<float> result(3);
#endif
    return static_cast<int>(collx::in_place(result).view.size());
}
