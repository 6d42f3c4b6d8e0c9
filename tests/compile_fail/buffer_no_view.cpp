// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx::buffer: the view that was made is no collx::BufferView. Return collx::view(pointer, count), collx::strided(...) or another view of collx.
// clang-format on
#include <collx/core/buffer.hpp>

struct tensor {
    float memory[4] = {};
#ifdef COLLX_FAIL
    float* collx_buffer() { return memory; }
#else
    auto collx_buffer() { return collx::view(memory, 4); }
#endif
};

int main() {
    tensor x;
    static_cast<void>(collx::buffer(x));
}
