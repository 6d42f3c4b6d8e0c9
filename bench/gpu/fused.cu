// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fused collectives on one device, against what the device's memory allows. --short measures a few sizes.
#include <cstring>
#include <vector>

#include "support.hpp"

#include <collx/algo/ring.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/gpu/team.cuh>

using namespace collx;
using bench::require_cuda;

namespace {

bool is_short = false;
using bench::buffers, bench::line, bench::time_us;

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
    line("launch", "plain", 1, 0, time_us([] { nothing<<<1, 32>>>(); }), 0);
    line("launch", "cooperative", 1, 0, time_us([] {
             cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&nothing), dim3(132), dim3(512), nullptr, 0,
                                         nullptr);
         }),
         0);
    void* words = nullptr;
    require_cuda(cudaMalloc(&words, 4096), "allocating");
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
        buffers<float> in(n, elems), out(n, elems);
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
        buffers<float> small(n, part), in(n, elems), out(n, elems);
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
        buffers<float> wide(n, 4 * elems), in(n, elems), out(n, elems);
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
    if (!bench::has_device()) return 77;
    try {
        bench::begin(std::size_t{is_short ? 256u : 1024u} << 20);
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
