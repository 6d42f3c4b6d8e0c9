// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Mixture of experts on a device: CUB orders each rank's tokens by expert (sort, histogram, scan), the fused
// all-to-all exchanges them, experts process them, and they return to their old order. The result is compared with
// the host's. scripts/gpu builds and runs it; exits with 77 if there is no GPU.
#include <cstdio>
#include <cstring>
#include <vector>

#include <cub/device/device_histogram.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <thrust/device_vector.h>

#include "support.hpp"

#include <collx/gpu/team.cuh>

using collx::device::require_cuda;

namespace {

constexpr int ranks = 4, experts = 8, experts_per_rank = experts / ranks, width = 16;

// The row of sorted token s: directly behind the others of its expert. Each expert has room for all tokens of a rank.
struct places {
    const int *expert, *token, *first; // sorted experts, their tokens, first sorted place of each expert
    int tokens;
    __device__ long long row(int s) const {
        return static_cast<long long>(expert[s]) * tokens + (s - first[expert[s]]);
    }
};
__global__ void permute(places p, const float* x, float* out) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), s = i / width, h = i % width;
    if (s < p.tokens) out[p.row(s) * width + h] = x[p.token[s] * width + h];
}
__global__ void put_back(places p, const float* in, float* y) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), s = i / width, h = i % width;
    if (s < p.tokens) y[p.token[s] * width + h] = in[p.row(s) * width + h];
}
// x is [sending rank][my expert][place][width].
__global__ void work(float* x, int rank, int tokens) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= experts * tokens * width) return;
    const int expert = rank * experts_per_rank + i / (tokens * width) % experts_per_rank;
    x[i] = x[i] * static_cast<float>(expert + 1) + 1.0f;
}

template <class T>
using vector = thrust::device_vector<T>;
template <class T>
T* at(vector<T>& v) {
    return v.data().get();
}

// Calls a function of CUB twice: for the scratch size, then for the work.
template <class F>
void with_scratch(const char* what, F&& f) {
    std::size_t bytes = 0;
    require_cuda(f(nullptr, bytes), what);
    vector<unsigned char> scratch(bytes + 1);
    require_cuda(f(at(scratch), bytes), what);
}

struct sorted_tokens {
    vector<int> expert, token, count, first;
    explicit sorted_tokens(const std::vector<int>& expert_of)
        : expert(expert_of.size()), token(expert_of.size()), count(experts), first(experts) {
        const int n = static_cast<int>(expert_of.size());
        vector<int> keys(expert_of.begin(), expert_of.end()), numbers(expert_of.size());
        std::vector<int> host(expert_of.size());
        for (int i = 0; i < n; ++i) host[static_cast<std::size_t>(i)] = i;
        numbers = host;
        with_scratch("sorting tokens", [&](void* s, std::size_t& bytes) {
            return cub::DeviceRadixSort::SortPairs(s, bytes, at(keys), at(expert), at(numbers), at(token), n, 0, 3);
        });
        with_scratch("counting tokens", [&](void* s, std::size_t& bytes) {
            return cub::DeviceHistogram::HistogramEven(s, bytes, at(keys), at(count), experts + 1, 0, experts, n);
        });
        with_scratch("summing counts", [&](void* s, std::size_t& bytes) {
            return cub::DeviceScan::ExclusiveSum(s, bytes, at(count), at(first), experts);
        });
    }
    places where() { return {at(expert), at(token), at(first), static_cast<int>(expert.size())}; }
};

int wrong_tokens(int tokens) {
    collx::gpu_team team(ranks);
    const int rows = experts * tokens, blocks = (rows * width + 255) / 256;
    std::vector<std::vector<float>> x(ranks);
    std::vector<std::vector<int>> expert_of(ranks);
    std::vector<vector<float>> y, out(ranks, vector<float>(static_cast<std::size_t>(rows) * width)), in = out;
    std::vector<sorted_tokens> sorted;
    for (int r = 0; r < ranks; ++r) {
        auto& mine = x[static_cast<std::size_t>(r)];
        for (int t = 0; t < tokens; ++t) {
            expert_of[static_cast<std::size_t>(r)].push_back((t * t + 3 * r + t / 5) % experts);
            for (int h = 0; h < width; ++h) mine.push_back(static_cast<float>(r * 1000 + t + h));
        }
        sorted.emplace_back(expert_of[static_cast<std::size_t>(r)]);
        vector<float> there(mine.begin(), mine.end());
        permute<<<blocks, 256>>>(sorted.back().where(), at(there), at(out[static_cast<std::size_t>(r)]));
        require_cuda(cudaDeviceSynchronize(), "permuting");
        y.emplace_back(mine.size());
    }
    team.all_to_all(out, in);
    for (int r = 0; r < ranks; ++r) work<<<blocks, 256>>>(at(in[static_cast<std::size_t>(r)]), r, tokens);
    team.all_to_all(in, out);
    team.synchronize();
    int wrong = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
        put_back<<<blocks, 256>>>(sorted[r].where(), at(out[r]), at(y[r]));
        const std::vector<float> host = on_host(y[r]);
        for (std::size_t i = 0; i < host.size(); ++i) {
            const float want = x[r][i] * static_cast<float>(expert_of[r][i / width] + 1) + 1.0f;
            wrong += host[i] != want;
        }
    }
    return wrong;
}

} // namespace

int main(int argc, char** argv) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return skip();
    const bool is_short = argc > 1 && std::strcmp(argv[1], "--short") == 0;
    try {
        for (const int tokens : is_short ? std::vector<int>{1, 100} : std::vector<int>{1, 100, 5000}) {
            const int wrong = wrong_tokens(tokens);
            expect(wrong == 0, std::to_string(tokens) + " tokens per rank: " + std::to_string(wrong) + " wrong");
        }
    } catch (const std::exception& e) {
        return finish(e.what());
    }
    return finish();
}
