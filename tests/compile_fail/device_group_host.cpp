// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory of the host in a group of calls on device memory.
// clang-format off
// expect: collx: a device_group takes buffers in device memory
// expect-gcc: group_verbs<Group, OnDevice>::all_reduce(X&&
// clang-format on
#include <collx/gpu/device_group.hpp>

void f(collx::communicator& world, float* x) {
    collx::device_group g(world);
#ifdef COLLX_FAIL
    g.all_reduce(collx::view(x, 3));
#else
    g.send(collx::device_view<float>(x, 3), 0);
#endif
}
