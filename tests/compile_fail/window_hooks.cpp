// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: collx: a window combines elements one by one, so its operators have no hooks (average, scaled sums, with_pre, with_post).
#include <collx/collx.hpp>
#include <collx/comm/window.hpp>

int main() {
    collx::communicator world;
    collx::window<float> x(world, 4);
#ifdef COLLX_FAIL
    const collx::average op;
#else
    const collx::plus op;
#endif
    x.accumulate(0, 0, 1.0f, op);
}
