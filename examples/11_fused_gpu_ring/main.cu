// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs the program's own algorithm in a kernel. The ring (ring.hpp) is that of example 02; here all ranks of
// a team run it in one launch. Each rank reads its data, adds what arrives, passes it on and stores the mean, in one
// pass. Without a GPU the same code runs on host threads, the kernels' twin. Next: another operator, a strided input,
// algo::one_shot_all_reduce for short buffers. Background: docs/gpu.md.
#include <cstdio>

#include <collx/gpu/team.cuh>

#include "ring.hpp"

namespace {

int wrong(const std::vector<float>& x) {
    int count = 0;
    for (std::size_t i = 0; i < x.size(); ++i) count += x[i] != 1.5f + static_cast<float>(i % 10); // mean of 0..3
    return count;
}

void mean_on_gpu(lesson::host_data& host) {
    using collx::device::require_cuda;
    collx::gpu_team team(lesson::ranks);
    std::array<collx::device_view<float>, lesson::ranks> data;
    for (std::size_t r = 0; r < data.size(); ++r) {
        void* p = nullptr;
        require_cuda(cudaMalloc(&p, host[r].size() * sizeof(float)), "allocating");
        require_cuda(cudaMemcpy(p, host[r].data(), host[r].size() * sizeof(float), cudaMemcpyHostToDevice), "filling");
        data[r] = {static_cast<float*>(p), host[r].size()};
    }
    lesson::mean_of_ranks(team, data);
    for (std::size_t r = 0; r < data.size(); ++r) {
        require_cuda(cudaMemcpy(host[r].data(), data[r].data(), data[r].size() * sizeof(float), cudaMemcpyDeviceToHost),
                     "reading");
        cudaFree(data[r].data());
    }
    std::printf("one kernel on the GPU, %d ranks\n", lesson::ranks);
}

} // namespace

int main() {
    lesson::host_data data;
    for (std::size_t r = 0; r < data.size(); ++r)
        for (std::size_t i = 0; i < lesson::elems; ++i)
            data[r].push_back(static_cast<float>(r) + static_cast<float>(i % 10));
    int devices = 0, bad = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) mean_on_gpu(data);
    else lesson::mean_on_twin(data);
    for (const auto& x : data) bad += wrong(x);
    std::printf("%zu means on each of %d ranks, %d wrong\n", lesson::elems, lesson::ranks, bad);
    return bad == 0 ? 0 : 1;
}
