// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: collx: a window takes contiguous buffers of its element type.
#include <collx/collx.hpp>
#include <collx/comm/window.hpp>

int main() {
    collx::communicator world;
    collx::window<float> x(world, 4);
#ifdef COLLX_FAIL
    const double out[2] = {1, 2};
#else
    const float out[2] = {1, 2};
#endif
    x.put(0, 0, out);
}
