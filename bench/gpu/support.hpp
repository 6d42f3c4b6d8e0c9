// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the programs of bench/gpu share: how a call is timed, buffers of all ranks on one device, and lines of CSV:
//   what,variant,ranks,bytes,us,algbw_GBps,fraction
// bytes: of one rank's buffer. fraction: the least traffic the collective can do at the measured speed of a
// device-to-device copy (read and written bytes counted), divided by the time taken.
#pragma once

#include <algorithm>
#include <cstdio>
#include <vector>

#include <collx/core/views.hpp>
#include <collx/exec/device/cuda_host.cuh>

namespace bench {

using collx::device::require_cuda;

inline double copy_bytes_per_us = 0; // read and written

// Microseconds of one call: the median of batches, each long enough for the events' resolution.
template <class F>
double time_us(F&& call) {
    cudaEvent_t begin = nullptr, end = nullptr;
    require_cuda(cudaEventCreate(&begin), "making an event");
    require_cuda(cudaEventCreate(&end), "making an event");
    const auto batch = [&](int count) {
        cudaEventRecord(begin);
        for (int i = 0; i < count; ++i) call();
        cudaEventRecord(end);
        require_cuda(cudaEventSynchronize(end), "measuring");
        float ms = 0;
        cudaEventElapsedTime(&ms, begin, end);
        return 1000.0 * ms / count;
    };
    const double first = batch(3);
    const int count = std::clamp(static_cast<int>(3000 / first), 3, 500);
    std::vector<double> times;
    for (int i = 0; i < 7; ++i) times.push_back(batch(count));
    std::sort(times.begin(), times.end());
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return times[times.size() / 2];
}

// least: bytes that all ranks together must read and write.
inline void line(const char* what, const char* variant, int ranks, std::size_t bytes, double us, double least) {
    const double fraction = copy_bytes_per_us > 0 ? least / copy_bytes_per_us / us : 0;
    std::printf("%s,%s,%d,%zu,%.2f,%.2f,%.3f\n", what, variant, ranks, bytes, us,
                static_cast<double>(bytes) / us / 1000, fraction);
    std::fflush(stdout);
}

// One buffer of `elems` elements for each rank, which begins `skip` elements behind an address that is aligned.
template <class T>
struct buffers {
    buffers(int ranks, std::size_t elems, std::size_t skip = 0) : n(elems), skip(skip) {
        for (int r = 0; r < ranks; ++r) {
            void* p = nullptr;
            require_cuda(cudaMalloc(&p, (elems + skip) * sizeof(T)), "allocating");
            require_cuda(cudaMemset(p, 0, (elems + skip) * sizeof(T)), "clearing");
            memory.push_back(static_cast<T*>(p));
        }
    }
    ~buffers() {
        for (T* p : memory) cudaFree(p);
    }
    buffers(const buffers&) = delete;
    buffers& operator=(const buffers&) = delete;
    std::size_t size() const { return memory.size(); }
    collx::device_view<T> operator[](std::size_t r) const { return {memory[r] + skip, n}; }
    std::vector<T*> memory;
    std::size_t n, skip;
};

inline bool has_device() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) return true;
    std::fprintf(stderr, "SKIPPED: no GPU\n");
    return false;
}

// The head line, and how fast the device copies so many bytes.
inline void begin(std::size_t bytes) {
    std::printf("what,variant,ranks,bytes,us,algbw_GBps,fraction\n");
    void *a = nullptr, *b = nullptr;
    require_cuda(cudaMalloc(&a, bytes), "allocating");
    require_cuda(cudaMalloc(&b, bytes), "allocating");
    const double us = time_us([&] { cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice); });
    copy_bytes_per_us = 2.0 * static_cast<double>(bytes) / us;
    line("copy", "cudaMemcpy", 1, bytes, us, 2.0 * static_cast<double>(bytes));
    cudaFree(a);
    cudaFree(b);
}

} // namespace bench
