// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Windows in device memory for CUDA: kernels of the program put into other ranks' memory, and signal.
//
//   collx::device_window<float> halo(world, 2 * width);
//   step<<<blocks, 256, 0, stream>>>(halo.on_device(), edge, width, left, right);
//
//   __global__ void step(collx::device_window_handle<float> window, const float* edge, std::size_t n,
//                        int left, int right) {
//       auto halo = window.block();            // by all threads of the block; its line is its number in the grid
//       halo.put_signal(right, 0, edge, n);
//       if (!halo.wait(left)) return;          // what left has put is here
//       …
//   }
#pragma once

#include <collx/exec/device/cuda_runtime.cuh>
#include <collx/gpu/device_window.hpp>

COLLX_BEGIN_NAMESPACE

// What a kernel takes to use a device_window, by value.
template <class T>
struct device_window_handle : device::window_handle<T> {
    // By all threads of a block, once at the kernel's beginning. Blocks of a grid have a line each, in their order;
    // what block k of one rank signals, block k of another waits for.
    __device__ auto block() const { return block(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)); }
    // The same on a line that the program names.
    __device__ auto block(unsigned line) const { return this->on_block(device::cuda_env<1>(), line); }
};

// basic_device_window on the current CUDA device. The program's kernels that use it wait for those of other ranks, so
// docs/gpu.md's rules hold for them: loaded before one of them runs, all blocks resident.
template <class T>
class device_window : public basic_device_window<T, device::cuda_runtime> {
    using base = basic_device_window<T, device::cuda_runtime>;

public:
    device_window(communicator& c, std::size_t n, const device_window_options& o = {})
        : base(c, n, device::cuda_runtime(), o) {}
    // For a kernel's arguments. Valid as long as the window.
    device_window_handle<T> on_device() const { return {this->handle()}; }
};

COLLX_END_NAMESPACE
