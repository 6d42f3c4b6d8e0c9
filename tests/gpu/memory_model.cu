// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The four functions of the memory model, and cuda::atomic_ref's: check_memory_model.py compares the instructions.
#include <cuda/atomic>

#include <collx/exec/device/cuda_env.cuh>

using word = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>;
namespace ptx = collx::device::ptx;

extern "C" __global__ void ours_load_relaxed(std::uint64_t* p, std::uint64_t* x) { *x = ptx::load_relaxed(p); }
extern "C" __global__ void theirs_load_relaxed(std::uint64_t* p, std::uint64_t* x) {
    *x = word(*p).load(cuda::memory_order_relaxed);
}
extern "C" __global__ void ours_load_acquire(std::uint64_t* p, std::uint64_t* x) { *x = ptx::load_acquire(p); }
extern "C" __global__ void theirs_load_acquire(std::uint64_t* p, std::uint64_t* x) {
    *x = word(*p).load(cuda::memory_order_acquire);
}
extern "C" __global__ void ours_store_relaxed(std::uint64_t* p, std::uint64_t x) { ptx::store_relaxed(p, x); }
extern "C" __global__ void theirs_store_relaxed(std::uint64_t* p, std::uint64_t x) {
    word(*p).store(x, cuda::memory_order_relaxed);
}
extern "C" __global__ void ours_store_release(std::uint64_t* p, std::uint64_t x) { ptx::store_release(p, x); }
extern "C" __global__ void theirs_store_release(std::uint64_t* p, std::uint64_t x) {
    word(*p).store(x, cuda::memory_order_release);
}
