// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Properties of a device, measured before anything else runs on it (scripts/gpu): whether two cooperative grids run
// concurrently, the time of an empty launch and of a flag's round trip to the host, the copy rate. Prints
// "probe,what,value,unit" lines, which are not checks; fails only if a launch fails or a copy is wrong. Does not use
// collx's kernels.
//
//   probe [--short] [--first]     --first: one launch only, to see whether a tool can run programs here
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>

#include <collx/exec/device/cuda_host.cuh>

using collx::device::require_cuda;

namespace {

using word = unsigned long long;

__device__ word device_ns() {
    word t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
__global__ void nothing() {}
// One of two grids that wait for each other, for a limited time.
__global__ void meet(volatile word* words, int me, word limit_ns, word* late) {
    if (threadIdx.x != 0 || blockIdx.x != 0) return;
    words[me] = 1;
    __threadfence();
    const word begun = device_ns();
    while (words[1 - me] == 0)
        if (device_ns() - begun > limit_ns) {
            late[me] = 1;
            return;
        }
}
// Answers the host's numbers 1 to `trips`, or gives up at the limit.
__global__ void answer(volatile word* asked, volatile word* answered, word trips, word limit_ns) {
    const word begun = device_ns();
    for (word k = 1; k <= trips; ++k) {
        while (*asked < k)
            if (device_ns() - begun > limit_ns) return;
        *answered = k;
        __threadfence_system();
    }
}
__global__ void copy(const uint4* from, uint4* to, std::size_t n) {
    const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) to[i] = from[i];
}

template <class F>
double least_us(int repetitions, F&& f) {
    double least = 1e30;
    for (int r = 0; r < repetitions; ++r) {
        const auto begun = std::chrono::steady_clock::now();
        f();
        const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begun;
        least = std::min(least, took.count());
    }
    return least;
}
void say(const char* what, double value, const char* unit) { std::printf("probe,%s,%.6g,%s\n", what, value, unit); }
void say_attribute(const char* what, cudaDeviceAttr a, double scale, const char* unit) {
    int x = 0;
    if (cudaDeviceGetAttribute(&x, a, 0) == cudaSuccess) say(what, x * scale, unit);
    else cudaGetLastError();
}
void launch_cooperatively(const void* kernel, int blocks, int threads, void** parameters, cudaStream_t s) {
    require_cuda(cudaLaunchCooperativeKernel(kernel, dim3(static_cast<unsigned>(blocks)),
                                             dim3(static_cast<unsigned>(threads)), parameters, 0, s),
                 "launching");
}

// Ranks that share a device can use kernels only if two grids run concurrently.
void two_grids(int processors) {
    cudaStream_t s[2];
    for (auto& x : s) require_cuda(cudaStreamCreateWithFlags(&x, cudaStreamNonBlocking), "making a stream");
    word* words = nullptr;
    require_cuda(cudaMalloc(&words, 4 * sizeof(word)), "allocating");
    require_cuda(cudaMemset(words, 0, 4 * sizeof(word)), "clearing");
    require_cuda(cudaDeviceSynchronize(), "waiting");
    for (int me = 0; me < 2; ++me) {
        volatile word* w = words;
        word* late = words + 2;
        word limit_ns = 500'000'000;
        void* parameters[] = {&w, &me, &limit_ns, &late};
        launch_cooperatively(reinterpret_cast<const void*>(&meet), std::max(processors / 2, 1), 32, parameters, s[me]);
    }
    for (auto& x : s) {
        require_cuda(cudaStreamSynchronize(x), "running two grids");
        cudaStreamDestroy(x);
    }
    word seen[4];
    require_cuda(cudaMemcpy(seen, words, sizeof seen, cudaMemcpyDeviceToHost), "reading");
    say("two cooperative grids at once", seen[2] == 0 && seen[3] == 0 ? 1 : 0, "yes=1");
    cudaFree(words);
}

void launches(int processors, int repetitions) {
    const auto blocks = [&](int n) {
        return least_us(repetitions, [&] {
            launch_cooperatively(reinterpret_cast<const void*>(&nothing), n, 512, nullptr, nullptr);
            require_cuda(cudaDeviceSynchronize(), "running nothing");
        });
    };
    say("empty cooperative launch, one block", blocks(1), "us");
    say("empty cooperative launch, a block per multiprocessor", blocks(processors), "us");
}

void flags(word trips) {
    word* words = nullptr;
    require_cuda(cudaHostAlloc(&words, 256, cudaHostAllocMapped), "allocating pinned memory");
    std::memset(words, 0, 256);
    volatile word *asked = words, *answered = words + 16, *asked_there = nullptr;
    require_cuda(cudaHostGetDevicePointer(const_cast<word**>(&asked_there), words, 0), "mapping host memory");
    answer<<<1, 1>>>(asked_there, asked_there + 16, trips, 5'000'000'000);
    require_cuda(cudaGetLastError(), "launching");
    const auto begun = std::chrono::steady_clock::now();
    bool is_late = false;
    for (word k = 1; k <= trips && !is_late; ++k) {
        __atomic_store_n(const_cast<word*>(asked), k, __ATOMIC_RELEASE);
        while (__atomic_load_n(const_cast<word*>(answered), __ATOMIC_ACQUIRE) < k && !is_late)
            is_late = std::chrono::steady_clock::now() - begun > std::chrono::seconds(8);
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begun;
    require_cuda(cudaDeviceSynchronize(), "answering flags");
    if (!is_late) say("flag to the device and back", took.count() / static_cast<double>(trips), "us");
    cudaFreeHost(words);
}

// Returns whether the copies were right.
bool copies(int processors, std::size_t bytes, int repetitions) {
    std::byte *from = nullptr, *to = nullptr;
    require_cuda(cudaMalloc(&from, bytes), "allocating");
    require_cuda(cudaMalloc(&to, bytes), "allocating");
    require_cuda(cudaMemset(from, 0x5a, bytes), "filling");
    require_cuda(cudaMemset(to, 0, bytes), "clearing");
    const std::size_t n = bytes / sizeof(uint4);
    const double own = least_us(repetitions, [&] {
        copy<<<static_cast<unsigned>(processors * 4), 512>>>(reinterpret_cast<const uint4*>(from),
                                                             reinterpret_cast<uint4*>(to), n);
        require_cuda(cudaDeviceSynchronize(), "copying");
    });
    std::vector<unsigned char> seen(bytes);
    require_cuda(cudaMemcpy(seen.data(), to, bytes, cudaMemcpyDeviceToHost), "reading");
    const double engine = least_us(repetitions, [&] {
        require_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice), "copying");
        require_cuda(cudaDeviceSynchronize(), "copying");
    });
    say("grid-stride copy, read and written", 2e-3 * static_cast<double>(bytes) / own, "GB/s");
    say("cudaMemcpy on the device, read and written", 2e-3 * static_cast<double>(bytes) / engine, "GB/s");
    cudaFree(from);
    cudaFree(to);
    return std::all_of(seen.begin(), seen.end(), [](unsigned char x) { return x == 0x5a; });
}

} // namespace

int main(int argc, char** argv) {
    const auto has = [&](const char* word) {
        return std::any_of(argv + 1, argv + argc, [&](const char* a) { return std::strcmp(a, word) == 0; });
    };
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::printf("SKIPPED: no GPU\n");
        return 77;
    }
    try {
        nothing<<<1, 32>>>();
        require_cuda(cudaDeviceSynchronize(), "running a kernel");
        if (has("--first")) return 0;
        cudaDeviceProp p;
        require_cuda(cudaGetDeviceProperties(&p, 0), "asking a device");
        std::printf("probe,name,%s,\n", p.name);
        const int processors = p.multiProcessorCount;
        say("devices", devices, "");
        say("multiprocessors", processors, "");
        say("cooperative launches", p.cooperativeLaunch, "yes=1");
        say_attribute("clock", cudaDevAttrClockRate, 1e-3, "MHz");
        say_attribute("memory clock", cudaDevAttrMemoryClockRate, 1e-3, "MHz");
        say_attribute("second-level cache", cudaDevAttrL2CacheSize, 1.0 / 1048576, "MiB");
        const bool is_short = has("--short");
        two_grids(processors);
        launches(processors, is_short ? 3 : 50);
        flags(is_short ? 20 : 2000);
        const bool are_right = copies(processors, std::size_t{1} << (is_short ? 16 : 28), is_short ? 1 : 10);
        if (!are_right) std::printf("FAILED: what was copied is wrong\n");
        return are_right ? 0 : 1;
    } catch (const collx::error& e) {
        std::printf("FAILED: %s\n", e.what());
        return 1;
    }
}
