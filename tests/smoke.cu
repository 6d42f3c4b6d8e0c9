// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Everything a fused kernel may inline compiles under nvcc: the generated list holds each header of core/, sched/ and
// algo/. The kernel proves that the result also runs, where there is a device.
#include <collx/version.hpp>

#include <cstdio>

#include "collx_smoke_headers.hpp"

COLLX_BEGIN_NAMESPACE
COLLX_HD inline int smoke_value() { return COLLX_VERSION; }
COLLX_END_NAMESPACE

__global__ void smoke_kernel(int* out) { *out = collx::smoke_value(); }

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::printf("SKIPPED: no CUDA device; %d headers were compiled for the device only.\n", COLLX_SMOKE_HEADERS);
        return 77;
    }
    int* out = nullptr;
    int value = 0;
    if (cudaMalloc(&out, sizeof(int)) != cudaSuccess) return 1;
    smoke_kernel<<<1, 1>>>(out);
    const bool copied = cudaMemcpy(&value, out, sizeof(int), cudaMemcpyDeviceToHost) == cudaSuccess;
    cudaFree(out);
    std::printf("kernel wrote %d, expected %d\n", value, COLLX_VERSION);
    return copied && value == COLLX_VERSION ? 0 : 1;
}
