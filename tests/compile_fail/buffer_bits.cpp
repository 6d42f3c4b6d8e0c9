// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx::buffer: std::vector<bool> packs its elements into bits, so no bool can be pointed to. Use std::vector<char> or std::vector<std::uint8_t> with logical_and or logical_or.
// clang-format on
#include <collx/core/buffer.hpp>

#include <vector>

int main() {
#ifdef COLLX_FAIL
    std::vector<bool> flags(3);
#else
    std::vector<char> flags(3);
#endif
    return static_cast<int>(collx::buffer(flags).size());
}
