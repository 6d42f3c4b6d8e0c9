// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: this buffer lies in device memory. Make the call in a .cu file that includes <collx/gpu/calls.cuh>, or bind a runtime: comm.with(collx::gpus{runtime}).
// clang-format on
#include <collx/comm/broadcast.hpp>

void call(collx::communicator& world, float* p) {
#ifdef COLLX_FAIL
    collx::broadcast(world, collx::device_view<float>(p, 10));
#else
    collx::broadcast(world, collx::view(p, 10));
#endif
}

int main() { return 0; }
