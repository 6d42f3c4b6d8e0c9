// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: elements travel between ranks as bytes, and this type has a destructor: what it owns lies elsewhere. Send its parts as buffers of their own, or objects by collx/interop/cereal.hpp.
// clang-format on
#include <collx/collx.hpp>

#include <string>
#include <vector>

int main() {
    collx::communicator world;
#ifdef COLLX_FAIL
    std::vector<std::string> words(3);
    collx::broadcast(world, words);
#else
    std::string letters(3, 'x');
    collx::broadcast(world, letters);
#endif
}
