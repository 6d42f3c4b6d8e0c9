// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: elements travel between ranks as bytes, and this type has a destructor: what it owns lies elsewhere. Send its parts as buffers of their own, or objects by collx/interop/cereal.hpp.
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
