// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: this buffer lies in device memory and another one of this call in the host's, or this form of the call does not take device memory: collx::device_group is group for it.
// clang-format on
#include <collx/comm/group.hpp>

void call(collx::communicator& world, float* p) {
    collx::group g(world);
#ifdef COLLX_FAIL
    g.all_reduce(collx::device_view<float>(p, 10));
#else
    g.all_reduce(collx::view(p, 10));
#endif
    g.launch();
}

int main() { return 0; }
