// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx::view: the elements cannot travel between ranks as bytes. Make the type trivially copyable, or say that its bytes suffice with collx::enable_wire<T> = true.
// clang-format on
#include <collx/core/views.hpp>

#include <array>
#include <string>

int main() {
#ifdef COLLX_FAIL
    std::string words[2];
#else
    std::array<char, 16> words[2] = {};
#endif
    return static_cast<int>(collx::view(words, 2).size());
}
