// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A group of a communicator with policies.
// expect: collx: a group takes no policies, because all its calls share one exchange.
#include <collx/collx.hpp>

void f(collx::communicator& world, float (&x)[4]) {
#ifdef COLLX_FAIL
    collx::group g(world.with(collx::deterministic{}));
#else
    collx::group g(world);
#endif
    g.all_reduce(collx::view(x, 4));
    g.launch();
}
