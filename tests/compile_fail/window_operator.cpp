// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: collx: a window combines with operators that are called as op(const T&, const T&) on a const object and return what converts to T.
#include <collx/collx.hpp>
#include <collx/comm/window.hpp>

int main() {
    collx::communicator world;
    collx::window<float> x(world, 4);
#ifdef COLLX_FAIL
    const auto op = [](float a) { return a; };
#else
    const auto op = [](float a, float b) { return a + b; };
#endif
    x.accumulate(0, 0, 1.0f, op);
}
