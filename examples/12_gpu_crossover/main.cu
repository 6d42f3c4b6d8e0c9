// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The best algorithm depends on the length of the message: one-shot needs one exchange but moves n times the bytes,
// two-shot needs two exchanges, a ring needs many but moves the fewest bytes. Runs all three as fused kernels of one
// device over a range of sizes, checks every result and prints from which size on each is the fastest. Without a GPU
// the kernels' code runs on host threads; their times say nothing about a GPU. Next: bind the best one, with team.run
// or comm.with(ring_all_reduce{}). Background: docs/gpu.md.
#include <cstdio>
#include <utility>
#include <vector>

#include <collx/gpu/team.cuh>

#include "../check.hpp"
#include "crossover.hpp"

namespace {

using collx::device::require_cuda;

void compare_on_gpu(std::size_t most) {
    collx::gpu_team team(lesson::ranks);
    std::vector<float> host(most);
    std::vector<float*> in(lesson::ranks), out(lesson::ranks);
    for (std::size_t r = 0; r < in.size(); ++r) {
        for (std::size_t i = 0; i < most; ++i) host[i] = static_cast<float>(r + i % 10);
        require_cuda(cudaMalloc(&in[r], most * sizeof(float)), "allocating");
        require_cuda(cudaMalloc(&out[r], most * sizeof(float)), "allocating");
        require_cuda(cudaMemcpy(in[r], host.data(), most * sizeof(float), cudaMemcpyHostToDevice), "filling");
    }
    using views = std::vector<collx::device_view<float>>;
    lesson::compare(
        team, most, 20,
        [&](std::size_t n) {
            std::pair<views, views> v;
            for (float* p : in) v.first.push_back({p, n});
            for (float* p : out) v.second.push_back({p, n});
            return v;
        },
        [&](std::size_t n) {
            std::size_t bad = 0;
            for (float* p : out) {
                require_cuda(cudaMemcpy(host.data(), p, n * sizeof(float), cudaMemcpyDeviceToHost), "reading");
                for (std::size_t i = 0; i < n; ++i) bad += host[i] != 6.0f + 4.0f * static_cast<float>(i % 10);
                require_cuda(cudaMemset(p, 0xff, n * sizeof(float)), "clearing");
            }
            example::expect(bad == 0, "every rank has the sums");
        });
    for (float* p : in) cudaFree(p);
    for (float* p : out) cudaFree(p);
}

} // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) {
        std::printf("%d ranks on one GPU\n", lesson::ranks);
        compare_on_gpu(example::is_short() ? 65'536 : 16'777'216);
    } else {
        std::printf("no GPU: the kernels' code on %d host threads, whose times say nothing of a GPU\n", lesson::ranks);
        lesson::compare_on_twin(example::is_short() ? 4096 : 262'144);
    }
    return example::result();
}
