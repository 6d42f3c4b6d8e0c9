// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two messages of one call on device memory whose elements have different types.
// clang-format off
// expect: collx: both messages of a sendrecv on device memory have elements of one type
// clang-format on
#include <collx/comm/send_recv.hpp>
#include <collx/gpu/device_group.hpp>
#include <collx/testing/fake_runtime.hpp>

void f(collx::communicator& world, collx::device::fake_runtime runtime, float* x, int* n) {
    auto comm = world.with(collx::gpus{runtime});
    const collx::device_view<const float> sent(x, 3);
#ifdef COLLX_FAIL
    collx::sendrecv(comm, sent, 0, collx::device_view<int>(n, 3), 0);
#else
    static_cast<void>(n);
    collx::sendrecv(comm, sent, 0, collx::device_view<float>(x, 3), 0);
#endif
}
