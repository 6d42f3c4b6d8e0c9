// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: this verb does not take device memory yet. Copy to the host, or use all_reduce, reduce, reduce_scatter, all_gather, all_to_all or broadcast.
// clang-format on
#include <collx/comm/scan.hpp>

void call(collx::communicator& world, float* p) {
#ifdef COLLX_FAIL
    collx::scan(world, collx::device_view<float>(p, 10));
#else
    collx::scan(world, collx::view(p, 10));
#endif
}

int main() { return 0; }
