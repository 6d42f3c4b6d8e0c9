// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every kernel that a program may launch through a communicator is registered before main() begins, so that
// use_device() can load it. Runs without a GPU: the launches below are never made.
#include <cstdio>

#include <collx/exec/device/cuda_runtime.cuh>

namespace device = collx::device;

struct first {
    template <class Env>
    COLLX_HD void operator()(Env&, int, int) const {}
};
struct second : first {};
template <class Call>
struct array {
    int lanes = 1, first_rank = 0;
};
template <class Env, class Call>
COLLX_HD void run_calls(Env&, const array<Call>&, device::block_state&, int, int) {}
template <class Call>
__device__ void require_device_code_of(const array<Call>&) {}

int main(int argc, char**) {
    if (argc > 100) {
        const device::cuda_runtime r;
        r.launch_lanes(first(), 1, nullptr);
        r.launch_lanes(second(), 1, nullptr);
        r.launch_lanes(first(), 2, nullptr); // the same kernel again
        r.launch_array(array<int>(), 1, nullptr);
    }
    std::printf("%d kernels known\n", static_cast<int>(device::known_kernel::count()));
    return device::known_kernel::count() == 3 ? 0 : 1;
}
