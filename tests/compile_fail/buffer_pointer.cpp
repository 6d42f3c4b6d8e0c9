// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: collx::buffer: a pointer does not say how many elements it points to. Use collx::view(pointer, count).
#include <collx/core/buffer.hpp>

int main() {
    float x[3] = {};
    float* p = x;
#ifdef COLLX_FAIL
    return static_cast<int>(collx::buffer(p).size());
#else
    return static_cast<int>(collx::buffer(collx::view(p, 3)).size());
#endif
}
