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

// The argument by which a kernel uses a device_window; passed by value.
template <class T>
struct device_window_handle : device::window_handle<T> {
    // The window for one block. All threads of the block call it once, at the beginning of the kernel. Block k of the
    // grid has line k: it waits for the signals of block k of another rank.
    __device__ auto block() const { return block(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)); }
    // The same on a line that the program names.
    __device__ auto block(unsigned line) const { return this->on_block(device::cuda_env<1>(), line); }
};

// basic_device_window on the current CUDA device. Kernels that use it wait for kernels of other ranks, so the rules of
// docs/gpu.md hold: they are loaded before one of them runs, and all their blocks are resident.
template <class T>
class device_window : public basic_device_window<T, device::cuda_runtime> {
    using base = basic_device_window<T, device::cuda_runtime>;

public:
    device_window(communicator& c, std::size_t n, const device_window_options& o = {})
        : base(c, n, device::cuda_runtime(), o) {}
    // The window as a kernel's argument. Valid as long as the window.
    device_window_handle<T> on_device() const { return {this->handle()}; }
};

COLLX_END_NAMESPACE
