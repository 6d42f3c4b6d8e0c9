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

// Two events around calls.
class stopwatch {
public:
    stopwatch() {
        require_cuda(cudaEventCreate(&begin_), "making an event");
        require_cuda(cudaEventCreate(&end_), "making an event");
    }
    stopwatch(const stopwatch&) = delete;
    stopwatch& operator=(const stopwatch&) = delete;
    ~stopwatch() {
        cudaEventDestroy(begin_);
        cudaEventDestroy(end_);
    }

    // Microseconds of each of `count` calls that follow one another.
    template <class F>
    double batch(int count, F&& call) const {
        cudaEventRecord(begin_);
        for (int i = 0; i < count; ++i) call();
        cudaEventRecord(end_);
        require_cuda(cudaEventSynchronize(end_), "measuring");
        float ms = 0;
        cudaEventElapsedTime(&ms, begin_, end_);
        return 1000.0 * ms / count;
    }

private:
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

inline double median(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

// Microseconds of one call: the median of batches, each long enough for the events' resolution.
template <class F>
double time_us(F&& call) {
    const stopwatch watch;
    const double first = watch.batch(3, call);
    const int count = std::clamp(static_cast<int>(3000 / first), 3, 500);
    std::vector<double> times;
    for (int i = 0; i < 7; ++i) times.push_back(watch.batch(count, call));
    return median(times);
}

// Microseconds of a call that begins when `before`, which is not timed, is done: the median of some. Launch and events
// are in it, which calls in a row hide: compare such times with each other only.
template <class B, class F>
double time_apart_us(B&& before, F&& call) {
    const stopwatch watch;
    std::vector<double> times;
    for (int i = 0; i < 21; ++i) {
        before();
        times.push_back(watch.batch(1, call));
    }
    return median(times);
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
