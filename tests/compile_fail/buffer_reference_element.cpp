// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: elements travel between ranks as bytes, and this type is an address in this process's memory. Send what it refers to: a buffer of its own, or std::vector<char> for texts.
// clang-format on
#include <collx/core/buffer.hpp>

#include <array>
#include <string_view>
#include <vector>

int main() {
#ifdef COLLX_FAIL
    std::vector<std::string_view> words(2);
#else
    std::vector<std::array<char, 16>> words(2);
#endif
    return static_cast<int>(collx::buffer(words).size());
}
