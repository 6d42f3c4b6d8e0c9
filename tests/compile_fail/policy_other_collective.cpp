// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An algorithm is bound for another collective than the call's.
// expect: collx: with() binds algorithms here, and none for this collective.
#include <collx/algo/ring.hpp>
#include <collx/collx.hpp>

void f(collx::communicator& world, float (&x)[4]) {
#ifdef COLLX_FAIL
    collx::broadcast(world.with(collx::algo::ring_all_reduce{}), collx::view(x, 4));
#else
    collx::all_reduce(world.with(collx::algo::ring_all_reduce{}), collx::view(x, 4));
#endif
}
