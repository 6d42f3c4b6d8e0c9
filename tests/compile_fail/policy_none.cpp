// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is bound is no policy.
// expect: collx: with() takes policies: an algorithm, wire<T>{}, deterministic{}, piece{bytes}
#include <collx/collx.hpp>

void f(collx::communicator& world) {
#ifdef COLLX_FAIL
    (void)world.with(42);
#else
    (void)world.with(collx::piece{42});
#endif
}
