// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fused collectives on one device, against what the device's memory allows. Writes lines of CSV:
//   what,variant,ranks,bytes,us,algbw_GBps,fraction
// bytes: of one rank's buffer. fraction: the least traffic the collective can do at the measured speed of a
// device-to-device copy (read and written bytes counted), divided by the time taken. --short measures a few sizes.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include <collx/algo/ring.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/gpu/team.cuh>

using namespace collx;
using device::cuda_check;

namespace {

bool is_short = false;
double copy_bytes_per_us = 0; // read and written

// Microseconds of one call: the median of batches, each long enough for the events' resolution.
template <class F>
double time_us(F&& call) {
    cudaEvent_t begin = nullptr, end = nullptr;
    cuda_check(cudaEventCreate(&begin), "making an event");
    cuda_check(cudaEventCreate(&end), "making an event");
    const auto batch = [&](int count) {
        cudaEventRecord(begin);
        for (int i = 0; i < count; ++i) call();
        cudaEventRecord(end);
        cuda_check(cudaEventSynchronize(end), "measuring");
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
void line(const char* what, const char* variant, int ranks, std::size_t bytes, double us, double least) {
    const double fraction = copy_bytes_per_us > 0 ? least / copy_bytes_per_us / us : 0;
    std::printf("%s,%s,%d,%zu,%.2f,%.2f,%.3f\n", what, variant, ranks, bytes, us,
                static_cast<double>(bytes) / us / 1000, fraction);
    std::fflush(stdout);
}

struct buffers {
    buffers(int ranks, std::size_t elems) : n(elems) {
        for (int r = 0; r < ranks; ++r) {
            void* p = nullptr;
            cuda_check(cudaMalloc(&p, elems * sizeof(float)), "allocating");
            cuda_check(cudaMemset(p, 0, elems * sizeof(float)), "clearing");
            memory.push_back(static_cast<float*>(p));
        }
    }
    ~buffers() {
        for (float* p : memory) cudaFree(p);
    }
    buffers(const buffers&) = delete;
    buffers& operator=(const buffers&) = delete;
    std::size_t size() const { return memory.size(); }
    device_view<float> operator[](std::size_t r) const { return {memory[r], n}; }
    std::vector<float*> memory;
    std::size_t n;
};

__global__ void nothing() {}

// One thread each of two blocks: a word goes there and back.
__global__ void round_trips(std::uint64_t* words, int count) {
    std::uint64_t* mine = words + 16 * blockIdx.x;
    std::uint64_t* other = words + 16 * (1 - blockIdx.x);
    for (int i = 1; i <= count; ++i) {
        if (blockIdx.x == 0) device::ptx::store_release(other, static_cast<std::uint64_t>(i));
        while (device::ptx::load_acquire(mine) < static_cast<std::uint64_t>(i)) {
        }
        if (blockIdx.x == 1) device::ptx::store_release(other, static_cast<std::uint64_t>(i));
    }
}

void limits() {
    const std::size_t bytes = std::size_t{is_short ? 256u : 1024u} << 20;
    void *a = nullptr, *b = nullptr;
    cuda_check(cudaMalloc(&a, bytes), "allocating");
    cuda_check(cudaMalloc(&b, bytes), "allocating");
    const double us = time_us([&] { cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice); });
    copy_bytes_per_us = 2.0 * static_cast<double>(bytes) / us;
    line("copy", "cudaMemcpy", 1, bytes, us, 2.0 * static_cast<double>(bytes));
    cudaFree(a);
    cudaFree(b);
    line("launch", "plain", 1, 0, time_us([] { nothing<<<1, 32>>>(); }), 0);
    line("launch", "cooperative", 1, 0, time_us([] {
             cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&nothing), dim3(132), dim3(512), nullptr, 0,
                                         nullptr);
         }),
         0);
    void* words = nullptr;
    cuda_check(cudaMalloc(&words, 4096), "allocating");
    int count = 1000;
    void* parameters[] = {&words, &count};
    const double trips = time_us([&] {
        cudaMemsetAsync(words, 0, 4096);
        cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&round_trips), dim3(2), dim3(1), parameters, 0,
                                    nullptr);
    });
    line("flag", "round_trip", 2, 8, trips / count, 0);
    cudaFree(words);
}

std::vector<std::size_t> sizes() {
    if (is_short) return {std::size_t{64} << 10, std::size_t{16} << 20};
    std::vector<std::size_t> s;
    for (std::size_t b = std::size_t{8} << 10; b <= std::size_t{256} << 20; b *= 4) s.push_back(b);
    s.push_back(std::size_t{256} << 20);
    return s;
}

void all_reduces(int n) {
    gpu_team team(n);
    for (const std::size_t bytes : sizes()) {
        const std::size_t elems = bytes / sizeof(float);
        buffers in(n, elems), out(n, elems);
        const auto cut = [elems](int chunks) { return chunk_layout::even(elems, chunks, 16); };
        const double least = 2.0 * n * static_cast<double>(bytes);
        const auto measure = [&](const char* variant, auto&& call) {
            line("all_reduce", variant, n, bytes, time_us(call), least);
            team.synchronize();
        };
        using device::packet_protocol, device::simple_protocol;
        if (bytes <= std::size_t{1} << 20) {
            measure("one_shot_flags",
                    [&] { team.run<packet_protocol>(algo::one_shot_all_reduce{}, in, out, plus{}, {}, cut, cut); });
            measure("one_shot",
                    [&] { team.run<simple_protocol>(algo::one_shot_all_reduce{}, in, out, plus{}, {}, cut, cut); });
            measure("ring_flags",
                    [&] { team.run<packet_protocol>(algo::ring_all_reduce{}, in, out, plus{}, {}, cut, cut); });
        }
        measure("ring", [&] { team.run<simple_protocol>(algo::ring_all_reduce{}, in, out, plus{}, {}, cut, cut); });
        measure("two_shot",
                [&] { team.run<simple_protocol>(algo::two_shot_all_reduce{}, in, out, plus{}, {}, cut, cut); });
        measure("two_shot_side_by_side",
                [&] { team.run<simple_protocol, 2>(algo::two_shot_all_reduce{}, in, out, plus{}, {}, cut, cut); });
        measure("peers_buffers",
                [&] { team.run<simple_protocol>(algo::zero_copy_all_reduce{}, in, out, plus{}, {}, cut, cut); });
        measure("default", [&] { team.all_reduce(in, out); });
    }
}

void moves(int n) {
    gpu_team team(n);
    for (const std::size_t bytes : sizes()) {
        const std::size_t part = bytes / sizeof(float) / static_cast<unsigned>(n),
                          elems = part * static_cast<unsigned>(n);
        buffers small(n, part), in(n, elems), out(n, elems);
        const double each = static_cast<double>(bytes);
        line("all_gather", "peers_buffers", n, bytes, time_us([&] { team.all_gather(small, out); }), (n + 1) * each);
        line("reduce_scatter", "peers_buffers", n, bytes, time_us([&] { team.reduce_scatter(in, small); }),
             (n + 1) * each);
        line("all_to_all", "peers_buffers", n, bytes, time_us([&] { team.all_to_all(in, out); }), 2.0 * n * each);
        team.synchronize();
    }
}

struct scale_and_shift {
    float scale, shift;
    COLLX_HD float operator()(float x) const { return x * scale + shift; }
};
__global__ void epilogue(float* x, std::size_t n, scale_and_shift f) {
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
         i += std::size_t{gridDim.x} * blockDim.x)
        x[i] = f(x[i]);
}
__global__ void pack_columns(float* to, const float* from, std::size_t n, std::size_t stride) {
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
         i += std::size_t{gridDim.x} * blockDim.x)
        to[i] = from[i * stride];
}

// What fusing saves: an epilogue, and packing, as kernels of their own and inside.
void fusing(int n) {
    gpu_team team(n);
    for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{64} << 20}) {
        const std::size_t elems = bytes / sizeof(float);
        buffers wide(n, 4 * elems), in(n, elems), out(n, elems);
        const scale_and_shift f{0.25f, 1.0f};
        const double least = 2.0 * n * static_cast<double>(bytes);
        line("epilogue", "fused", n, bytes, time_us([&] { team.all_reduce(in, out, with_post(plus{}, f)); }), least);
        line("epilogue", "separate", n, bytes, time_us([&] {
                 team.all_reduce(in, out);
                 for (float* p : out.memory) epilogue<<<528, 512>>>(p, elems, f);
             }),
             least);
        std::vector<strided_view<float>> columns;
        for (float* p : wide.memory) columns.push_back(strided(p, elems, 4));
        line("strided_input", "fused", n, bytes, time_us([&] { team.all_reduce(columns, out); }), least);
        line("strided_input", "packed_first", n, bytes, time_us([&] {
                 for (std::size_t r = 0; r < in.size(); ++r)
                     pack_columns<<<528, 512>>>(in.memory[r], wide.memory[r], elems, 4);
                 team.all_reduce(in, out);
             }),
             least);
        team.synchronize();
    }
}

} // namespace

int main(int argc, char** argv) {
    is_short = argc > 1 && std::strcmp(argv[1], "--short") == 0;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::fprintf(stderr, "SKIPPED: no GPU\n");
        return 77;
    }
    try {
        std::printf("what,variant,ranks,bytes,us,algbw_GBps,fraction\n");
        limits();
        for (const int n : {2, 4, 8}) all_reduces(n);
        for (const int n : {2, 4, 8}) moves(n);
        fusing(4);
    } catch (const error& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
    return 0;
}
