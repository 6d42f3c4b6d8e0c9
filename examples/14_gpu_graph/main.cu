// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A training step as a CUDA graph: a kernel, an all-reduce through an ordinary communicator and another kernel are
// captured once and replayed. Calls on device memory are put into a stream and wait for nothing, so they can be
// captured. Only the first call sets things up; use_device() does this beforehand. Skipped without a GPU. Run it as
// one rank, or as one rank per device: collx_run -n 4 14_gpu_graph. Background: docs/gpu.md.
// collx-example: label=nightly
#include <cstdio>
#include <string>
#include <vector>

#include <collx/collx.hpp>
#include <collx/gpu/calls.cuh>

#include "../check.hpp"

using collx::device::require_cuda;

namespace {

constexpr std::size_t elems = 100'000;
constexpr int steps = 10;

__global__ void backward(float* gradient, const float* weight) {
    const std::size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < elems) gradient[i] = 0.5f * weight[i];
}
__global__ void update(float* weight, const float* gradient) {
    const std::size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < elems) weight[i] -= gradient[i];
}

void train(collx::communicator& world, int devices) {
    require_cuda(cudaSetDevice(world.rank() % devices), "choosing a device");
    float *weight = nullptr, *gradient = nullptr;
    require_cuda(cudaMalloc(&weight, elems * sizeof(float)), "allocating");
    require_cuda(cudaMalloc(&gradient, elems * sizeof(float)), "allocating");
    std::vector<float> host(elems, 1024.0f);
    require_cuda(cudaMemcpy(weight, host.data(), elems * sizeof(float), cudaMemcpyHostToDevice), "filling");
    require_cuda(cudaDeviceSynchronize(), "filling"); // the stream below does not wait for the copy to end
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t step = nullptr;
    require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");

    // [doc:capture]
    collx::use_device(world); // does the setup, which cannot be captured
    require_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
    backward<<<(elems + 255) / 256, 256, 0, stream>>>(gradient, weight);
    collx::all_reduce(world, collx::device_view<float>(gradient, elems), collx::average{}, {.stream = stream});
    update<<<(elems + 255) / 256, 256, 0, stream>>>(weight, gradient);
    require_cuda(cudaStreamEndCapture(stream, &graph), "capturing");
    require_cuda(cudaGraphInstantiate(&step, graph, 0), "instantiating");
    for (int k = 0; k < steps; ++k) require_cuda(cudaGraphLaunch(step, stream), "launching the graph");
    collx::synchronize(world, {.stream = stream}); // throws the error for which a kernel gave up
    // [doc:end]

    require_cuda(cudaMemcpy(host.data(), weight, elems * sizeof(float), cudaMemcpyDeviceToHost), "reading");
    std::size_t bad = 0;
    for (const float x : host) bad += x != 1.0f; // halved ten times
    example::expect(bad == 0, "each replay halved the weights");
    if (world.rank() == 0)
        std::printf("%d steps replayed on %d ranks, %s\n", steps, world.size(), collx::device_route(world).c_str());
    cudaGraphExecDestroy(step);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    cudaFree(weight);
    cudaFree(gradient);
}

} // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::printf("SKIPPED: there is no GPU, and a graph needs one\n");
        return 77;
    }
    try {
        collx::communicator world;
        train(world, devices);
    } catch (const collx::error& e) {
        std::printf("%s\n", e.what());
        return 1;
    }
    return example::result();
}
