// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fused kernels: one launch does a whole collective for all ranks of a team on one device, and reads, reduces,
// exchanges and stores each rank's data in one pass. Also the machine that launches them: memory by cudaMalloc, reports
// in mapped host memory, and one cooperative launch, because blocks that wait for each other must all be resident.
// Needs nvcc. The executor itself is exec/device/executor.hpp, the host's twin of this file testing/twin.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include <collx/exec/device/callable.cuh>
#include <collx/exec/device/cuda_env.cuh>
#include <collx/exec/device/cuda_host.cuh>
#include <collx/exec/device/team.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

inline constexpr unsigned block_threads = 512; // of a fused kernel

// Blocks: x is the lane, y the rank.
template <class Protocol, int Groups, class Algorithm, class Types>
__global__ void __launch_bounds__(block_threads, 1)
    fused_kernel(const __grid_constant__ fused_args<Algorithm, Types> args) {
    if (false) require_device_code_of(args);
    __shared__ block_state shared;
    cuda_env<Groups> env;
    executor<executor_kind<cuda_env<Groups>, Algorithm, Types, Protocol, Groups>>(
        env, args, shared, args.first_rank + static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x))
        .run();
}

// Several calls in one launch (exec/device/group.hpp).
__device__ inline void require_device_code_of(const call_list<>&) {}
template <class First, class... Rest>
__device__ void require_device_code_of(const call_list<First, Rest...>& calls) {
    require_device_code_of(calls.first.args);
    require_device_code_of(calls.rest);
}
template <class... Calls>
__global__ void __launch_bounds__(block_threads, 1)
    fused_group_kernel(const __grid_constant__ call_list<Calls...> calls) {
    if (false) require_device_code_of(calls);
    __shared__ block_state shared;
    cuda_env<1> env;
    run_calls(env, calls, shared, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x));
}

// One device for all ranks: the one that was current when the machine was made.
class cuda_machine : public cuda_memory {
public:
    // Errors: unsupported without a device, or on one that cannot launch cooperatively.
    cuda_machine() {
        require_cuda(cudaGetDevice(&device_), "looking for a CUDA device");
        int cooperates = 0;
        require_cuda(cudaDeviceGetAttribute(&cooperates, cudaDevAttrCooperativeLaunch, device_), "asking the device");
        require_cuda(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, device_),
                     "asking the device");
        if (cooperates == 0)
            fail(errc::unsupported, -1, -1, "use a device of compute capability 8.0 or more",
                 "device %d cannot launch cooperatively", device_);
    }
    int device() const { return device_; }
    int processors() const { return processors_; }

    std::byte* allocate(int, std::size_t bytes) {
        require_current();
        return cuda_memory::allocate(bytes);
    }
    void free(int, std::byte* p) { cuda_memory::free(p); }
    std::byte* on_device(std::byte* p) const { return mapped(p); }

    // Lanes that can be resident together for all ranks: one block of 512 threads per multiprocessor.
    int lanes(const exchange_shape& s) const {
        const int fit = processors_ / s.ranks;
        return fit < 1 ? 1 : fit < s.lanes ? fit : s.lanes;
    }

    bool is_one_launch() const { return true; }
    // One device's memory: a warp's store to one line of the second-level cache is one access. NCCL's LL128 relies on
    // it from compute capability 7.0 on. The PTX memory model does not promise it; it held on an H100 and an H200.
    bool lines_arrive_whole() const { return true; }
    // A multicast object binds memory of several devices.
    bool has_multicast(const fused_options&) const { return false; }

    // Errors: invalid_argument where p is memory of the host or of another device.
    void require_memory(int rank, const void* p, const char* which) {
        // The query costs as much as a launch, so answers are kept. An answer is outdated if the address was freed and
        // belongs to other memory now: pinned memory works, and memory that kernels cannot reach ends them with a CUDA
        // error.
        const void*& known = known_[(reinterpret_cast<std::uintptr_t>(p) >> 8) % known_count];
        if (p == known && p != nullptr) return;
        const beside_captures free_to_ask;
        cudaPointerAttributes a{};
        if (p != nullptr) require_cuda(cudaPointerGetAttributes(&a, p), "asking where a buffer lies");
        if (a.type != cudaMemoryTypeDevice && a.type != cudaMemoryTypeManaged)
            fail(errc::invalid_argument, rank, -1, "allocate it with cudaMalloc, or pass a thrust::device_vector",
                 p == nullptr ? "the %s buffer is null" : "the %s buffer lies in the host's memory", which);
        if (a.type == cudaMemoryTypeDevice && a.device != device_)
            fail(errc::invalid_argument, rank, -1, "make the team while its buffers' device is current",
                 "the %s buffer lies on device %d, the team runs on device %d", which, a.device, device_);
        known = p;
    }

    void synchronize(const fused_options& o) const {
        require_current();
        require_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(o.stream)), "waiting for a stream");
    }

    template <class Protocol, int Groups, class Algorithm, class Types>
    void launch(const fused_args<Algorithm, Types>& a, const fused_options& o) {
        static_assert(sizeof(a) <= parameter_bytes,
                      "collx: views and operators of 16 ranks must fit a kernel's parameters");
        // Without signals no block waits for another. The blocks need not be resident together, which a cooperative
        // launch would have to ensure first.
        start(reinterpret_cast<const void*>(&fused_kernel<Protocol, Groups, Algorithm, Types>), a.lanes, a.shape.ranks,
              const_cast<fused_args<Algorithm, Types>*>(&a), o, !a.skips_signals);
    }
    template <class... Calls>
    void launch_group(const call_list<Calls...>& calls, int lanes, int ranks, const fused_options& o) {
        static_assert(sizeof(calls) <= parameter_bytes, "collx: all calls of a group must fit a kernel's parameters");
        start(reinterpret_cast<const void*>(&fused_group_kernel<Calls...>), lanes, ranks,
              const_cast<call_list<Calls...>*>(&calls), o, true);
    }

    // Leaves out the last rank's blocks, as if it had not made the call: for tests of deadlines.
    void leave_out_last() { leaves_out_last_ = true; }

private:
    static constexpr std::size_t parameter_bytes = 32764;
    void start(const void* kernel, int lanes, int ranks, void* arguments, const fused_options& o, bool together) const {
        require_current();
        void* parameters[] = {arguments};
        const dim3 grid(static_cast<unsigned>(lanes), static_cast<unsigned>(ranks - (leaves_out_last_ ? 1 : 0)));
        const auto stream = static_cast<cudaStream_t>(o.stream);
        require_cuda(together ? cudaLaunchCooperativeKernel(kernel, grid, dim3(block_threads), parameters, 0, stream)
                              : cudaLaunchKernel(kernel, grid, dim3(block_threads), parameters, 0, stream),
                     "launching a fused kernel");
    }
    // A null stream is the current device's.
    void require_current() const {
        int now = 0;
        require_cuda(cudaGetDevice(&now), "looking for the current device");
        if (now != device_)
            fail(errc::invalid_argument, -1, -1, "choose it with cudaSetDevice before the call",
                 "device %d is current, and the team runs on device %d", now, device_);
    }
    int device_ = 0, processors_ = 1;
    bool leaves_out_last_ = false;
    static constexpr std::size_t known_count = 64;
    const void* known_[known_count] = {}; // addresses of device memory
};

} // namespace device
COLLX_END_NAMESPACE
