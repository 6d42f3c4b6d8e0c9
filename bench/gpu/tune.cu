// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the choices for devices and teams rest on (plan/choices.hpp, exec/device/control.hpp), measured on one device:
// sums of every size by each way that could do them, two-shot by stages, lanes and strands, elements that are not
// floats, a loop over all buffers that waits for nothing, and one call whose data are in the cache or not. Lines as
// fused.cu writes them. scripts/gpu runs it.
//
//   tune [--short]                      all of it
//   tune --one VARIANT RANKS BYTES      one variant five times, for a profiler
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "support.hpp"

#include <collx/algo/one_shot.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/algo/zero_copy.hpp>
#include <collx/gpu/team.cuh>

using namespace collx;
using bench::require_cuda, device::packet_protocol, device::simple_protocol;

namespace {

// A structure whose size no power of two is.
struct particle {
    double mass, at, speed;
    COLLX_HD friend particle operator+(const particle& a, const particle& b) {
        return {a.mass + b.mass, a.at + b.at, a.speed + b.speed};
    }
};

device::exchange_shape shape(int ranks, unsigned stages, std::uint32_t per_rank, int lanes) {
    device::exchange_shape s = gpu_team::shape_for(ranks);
    s.stages = stages;
    s.stage_bytes = per_rank * static_cast<std::uint32_t>(ranks);
    if (lanes != 0) s.lanes = lanes;
    return s;
}

// The ways a sum of one size could go. run(name, call) is given each.
template <class T, class F>
void each_way(gpu_team& team, bench::buffers<T>& in, bench::buffers<T>& out, F&& run) {
    const std::size_t n = in.n;
    const auto cut = [n](int chunks) { return chunk_layout::even(n, chunks, 16); };
    if (n * sizeof(T) <= std::size_t{1} << 20)
        run("one_shot_flags",
            [&] { team.run<packet_protocol>(algo::one_shot_all_reduce{}, in, out, plus{}, {}, cut, cut); });
    if (n * sizeof(T) <= std::size_t{16} << 20)
        run("two_shot_flags",
            [&] { team.run<packet_protocol>(algo::two_shot_all_reduce{}, in, out, plus{}, {}, cut, cut); });
    if (n * sizeof(T) <= std::size_t{16} << 20)
        run("one_shot", [&] { team.run<simple_protocol>(algo::one_shot_all_reduce{}, in, out, plus{}, {}, cut, cut); });
    run("peers_buffers",
        [&] { team.run<simple_protocol>(algo::zero_copy_all_reduce{}, in, out, plus{}, {}, cut, cut); });
    const auto depth = static_cast<int>(team.ranks().shape().stages);
    run("two_shot",
        [&] { team.run<simple_protocol>(algo::two_shot_all_reduce{.depth = depth}, in, out, plus{}, {}, cut, cut); });
    if (n * sizeof(T) >= std::size_t{1} << 20) {
        run("two_shot_2_strands", [&] {
            team.run<simple_protocol, 2>(algo::two_shot_all_reduce{.depth = depth}, in, out, plus{}, {}, cut, cut);
        });
        run("two_shot_4_strands", [&] {
            team.run<simple_protocol, 4>(algo::two_shot_all_reduce{.depth = depth}, in, out, plus{}, {}, cut, cut);
        });
    }
}
// Least traffic of a sum: every input read, every output written.
double least(int ranks, std::size_t bytes) { return 2.0 * ranks * static_cast<double>(bytes); }

void sums_of_every_size(bool is_short) {
    for (const int ranks : is_short ? std::vector<int>{2} : std::vector<int>{2, 3, 4, 5, 8}) {
        gpu_team team(ranks);
        for (std::size_t bytes = 64; bytes <= std::size_t{16} << 20; bytes *= is_short ? 256 : 2) {
            bench::buffers<float> in(ranks, bytes / sizeof(float)), out(ranks, bytes / sizeof(float));
            each_way(team, in, out, [&](const char* name, auto&& call) {
                bench::line("size", name, ranks, bytes, bench::time_us(call), least(ranks, bytes));
                team.synchronize();
            });
        }
    }
}

void stages_and_lanes(bool is_short) {
    for (const int ranks : is_short ? std::vector<int>{2} : std::vector<int>{2, 4, 8})
        for (const unsigned stages : {2u, 4u})
            for (const std::uint32_t per_rank : {16384u, 32768u, 65536u, 131072u})
                for (const int lanes : {132 / ranks, 66 / ranks}) {
                    if (is_short && (stages == 2 || per_rank != 16384)) continue;
                    gpu_team team(shape(ranks, stages, per_rank, lanes));
                    for (const std::size_t bytes :
                         {std::size_t{1} << 20, std::size_t{16} << 20, std::size_t{64} << 20}) {
                        if (is_short && bytes > std::size_t{1} << 20) continue;
                        bench::buffers<float> in(ranks, bytes / sizeof(float)), out(ranks, bytes / sizeof(float));
                        const std::string what = "stages" + std::to_string(stages) + "_" +
                                                 std::to_string(per_rank / 1024) + "KiB_lanes" + std::to_string(lanes);
                        const auto measure = [&](const char* name, auto&& call, double traffic) {
                            bench::line(what.c_str(), name, ranks, bytes, bench::time_us(call), traffic);
                            team.synchronize();
                        };
                        each_way(team, in, out, [&](const std::string& name, auto&& call) {
                            if (name.find("two_shot") == 0) measure(name.c_str(), call, least(ranks, bytes));
                        });
                        const auto cut = [&](int chunks) { return chunk_layout::even(in.n, chunks, 16); };
                        measure(
                            "broadcast",
                            [&] {
                                team.run<simple_protocol>(algo::one_shot_broadcast{}, in, out, device::move_only(), {},
                                                          cut, cut);
                            },
                            (ranks + 1.0) * static_cast<double>(bytes));
                    }
                }
}

// By the peers' buffers. skip: elements before the first, so that no pack is aligned.
template <class T>
void elements(const char* name, std::size_t bytes, std::size_t skip = 0) {
    const int ranks = 4;
    gpu_team team(ranks);
    bench::buffers<T> in(ranks, bytes / sizeof(T), skip), out(ranks, bytes / sizeof(T), skip == 0 ? 0 : skip + 1);
    bench::line("elements", name, ranks, bytes, bench::time_us([&] { team.all_reduce(in, out); }), least(ranks, bytes));
    team.synchronize();
}

// One thread adds four floats of all buffers, and writes them to all: what an all_reduce would be if none waited.
template <int Ranks>
struct pointers {
    const float4* in[Ranks];
    float4* out[Ranks];
};
template <int Ranks>
__global__ void add_all(pointers<Ranks> p, std::size_t n) {
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
         i += std::size_t{gridDim.x} * blockDim.x) {
        float4 x[Ranks], sum{};
        for (int k = 0; k < Ranks; ++k) x[k] = p.in[k][i];
        for (int k = 0; k < Ranks; ++k) {
            sum.x += x[k].x;
            sum.y += x[k].y;
            sum.z += x[k].z;
            sum.w += x[k].w;
        }
        for (int k = 0; k < Ranks; ++k) p.out[k][i] = sum;
    }
}
template <int Ranks>
void loop_over_all(bool is_short) {
    for (std::size_t bytes = std::size_t{64} << 10; bytes <= std::size_t{is_short ? 1u : 256u} << 20; bytes *= 4) {
        bench::buffers<float> in(Ranks, bytes / sizeof(float)), out(Ranks, bytes / sizeof(float));
        pointers<Ranks> p;
        for (std::size_t k = 0; k < Ranks; ++k) {
            p.in[k] = reinterpret_cast<const float4*>(in[k].data());
            p.out[k] = reinterpret_cast<float4*>(out[k].data());
        }
        bench::line("loop", "over_all_buffers", Ranks, bytes,
                    bench::time_us([&] { add_all<Ranks><<<132 * 4, 512>>>(p, bytes / sizeof(float4)); }),
                    least(Ranks, bytes));
    }
}

// A program computes between its calls, so a call's data may have left the L2 cache: one call that finds what the last
// one touched there, and one for which 256 MiB were written in between (an H200's L2 has 50 MiB).
void cold_cache(bool is_short) {
    const std::size_t flushed = std::size_t{is_short ? 16u : 256u} << 20;
    void* other = nullptr;
    require_cuda(cudaMalloc(&other, flushed), "allocating");
    for (const int ranks : is_short ? std::vector<int>{2} : std::vector<int>{2, 4, 8}) {
        gpu_team team(ranks);
        for (const std::size_t bytes : {std::size_t{8} << 10, std::size_t{256} << 10, std::size_t{1} << 20,
                                        std::size_t{8} << 20, std::size_t{64} << 20}) {
            if (is_short && bytes > std::size_t{1} << 20) continue;
            bench::buffers<float> in(ranks, bytes / sizeof(float)), out(ranks, bytes / sizeof(float));
            const auto call = [&] { team.all_reduce(in, out); };
            call(); // a kernel is loaded at its first launch
            const auto measure = [&](const char* name, auto&& before) {
                bench::line("one_call", name, ranks, bytes, bench::time_apart_us(before, call), least(ranks, bytes));
                team.synchronize();
            };
            measure("warm_cache", [] { require_cuda(cudaDeviceSynchronize(), "waiting"); });
            measure("cold_cache", [&] {
                require_cuda(cudaMemsetAsync(other, 1, flushed), "writing what is not used");
                require_cuda(cudaDeviceSynchronize(), "waiting");
            });
        }
    }
    cudaFree(other);
}

int run_one(const std::string& variant, int ranks, std::size_t bytes) {
    gpu_team team(ranks);
    bench::buffers<float> in(ranks, bytes / sizeof(float)), out(ranks, bytes / sizeof(float));
    int runs = 0;
    each_way(team, in, out, [&](const std::string& name, auto&& call) {
        if (name != variant) return;
        for (; runs < 5; ++runs) call();
        team.synchronize();
    });
    if (runs == 0) std::fprintf(stderr, "no variant %s of %zu bytes\n", variant.c_str(), bytes);
    return runs == 0 ? 2 : 0;
}

} // namespace

int main(int argc, char** argv) {
    const bool is_short = argc > 1 && std::strcmp(argv[1], "--short") == 0;
    if (!bench::has_device()) return 77;
    try {
        if (argc == 5 && std::strcmp(argv[1], "--one") == 0)
            return run_one(argv[2], std::atoi(argv[3]), std::strtoull(argv[4], nullptr, 10));
        bench::begin(std::size_t{is_short ? 16u : 1024u} << 20);
        sums_of_every_size(is_short);
        loop_over_all<2>(is_short), loop_over_all<4>(is_short), loop_over_all<8>(is_short);
        const std::size_t bytes = std::size_t{is_short ? 1u : 64u} << 20;
        elements<float>("float", bytes), elements<float>("float_unaligned", bytes, 1);
        elements<f16>("f16", bytes), elements<bf16>("bf16", bytes), elements<e4m3>("e4m3", bytes);
        elements<double>("double", bytes), elements<particle>("structure_of_24", bytes);
        cold_cache(is_short);
        stages_and_lanes(is_short);
    } catch (const error& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
    return 0;
}
