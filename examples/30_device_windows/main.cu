// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A stencil whose kernel exchanges the edges itself: it puts them into the neighbours' windows, signals, and waits for
// theirs. Many steps run in one launch while the host does nothing. The result is compared with a serial program.
// Skipped without a GPU. Run it as one rank, or as one rank per device: collx_run -n 4 30_device_windows. Background:
// docs/windows.md.
// collx-example: label=nightly
#include <algorithm>
#include <cstdio>
#include <vector>

#include <collx/collx.hpp>
#include <collx/gpu/device_window.cuh>

#include "../check.hpp"

using collx::device::require_cuda;

namespace {

constexpr std::size_t width = 1000; // of each rank's part of a ring
constexpr int steps = 200;          // even, so that the last step leaves its result in the first buffer

// [doc:kernel]
// Runs as one block. Edges of even and of odd steps have their own places: a neighbour can be one step ahead, not two.
__global__ void diffuse(collx::device_window_handle<double> window, double* row, double* next, int left, int right) {
    auto halo = window.block();
    for (int step = 0; step < steps; ++step) {
        const std::size_t pair = step % 2 * 2;
        halo.put_signal(right, pair, row + width - 1, 1);
        halo.put_signal(left, pair + 1, row, 1);
        if (!halo.wait(left) || !halo.wait(right)) return; // check() on the host says why
        const double from_left = halo.local()[pair], from_right = halo.local()[pair + 1];
        for (std::size_t i = threadIdx.x; i < width; i += blockDim.x) {
            const double before = i == 0 ? from_left : row[i - 1], after = i + 1 == width ? from_right : row[i + 1];
            next[i] = (before + 2 * row[i] + after) / 4;
        }
        __syncthreads();
        double* const other = row;
        row = next;
        next = other;
    }
}
// [doc:end]

std::vector<double> serial(std::size_t n) {
    std::vector<double> x(n), next(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<double>(i * i % 101);
    for (int step = 0; step < steps; ++step) {
        for (std::size_t i = 0; i < n; ++i) next[i] = (x[(i + n - 1) % n] + 2 * x[i] + x[(i + 1) % n]) / 4;
        x.swap(next);
    }
    return x;
}

void run(collx::communicator& world, int devices) {
    require_cuda(cudaSetDevice(world.rank() % devices), "choosing a device");
    // CUDA loads a kernel at its first launch, and waits then. So a kernel that waits for other ranks is loaded first.
    cudaFuncAttributes loaded;
    require_cuda(cudaFuncGetAttributes(&loaded, diffuse), "loading a kernel");
    const int n = world.size(), me = world.rank(), left = (me + n - 1) % n, right = (me + 1) % n;
    std::vector<double> mine(width);
    for (std::size_t i = 0; i < width; ++i) {
        const std::size_t at = static_cast<std::size_t>(me) * width + i;
        mine[i] = static_cast<double>(at * at % 101);
    }
    double *row = nullptr, *next = nullptr;
    cudaStream_t stream = nullptr;
    require_cuda(cudaMalloc(&row, width * sizeof(double)), "allocating");
    require_cuda(cudaMalloc(&next, width * sizeof(double)), "allocating");
    require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    require_cuda(cudaMemcpyAsync(row, mine.data(), width * sizeof(double), cudaMemcpyHostToDevice, stream), "filling");

    // [doc:host]
    collx::device_window_options options;
    options.settings.shares_device = devices < n; // for a try-out; normally each rank has its own GPU
    collx::device_window<double> halo(world, 4, options);
    diffuse<<<1, 256, 0, stream>>>(halo.on_device(), row, next, left, right);
    halo.synchronize(stream); // throws the error for which a kernel gave up
    // [doc:end]

    require_cuda(cudaMemcpyAsync(mine.data(), row, width * sizeof(double), cudaMemcpyDeviceToHost, stream), "reading");
    require_cuda(cudaStreamSynchronize(stream), "reading");
    const auto all = serial(width * static_cast<std::size_t>(n));
    example::expect(std::equal(mine.begin(), mine.end(), all.begin() + me * static_cast<long>(width)),
                    "the kernels' stencil is the serial program's");
    if (me == 0) std::printf("%d steps of %zu numbers on %d ranks, %s\n", steps, all.size(), n, halo.route().c_str());
    collx::barrier(world); // until the neighbours' kernels have ended, too
    cudaStreamDestroy(stream);
    cudaFree(row);
    cudaFree(next);
}

} // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::printf("SKIPPED: there is no GPU, and a device window needs one\n");
        return 77;
    }
    try {
        collx::communicator world;
        run(world, devices);
    } catch (const collx::error& e) {
        const bool has_no_way = e.code() == collx::errc::unsupported; // from kernel to kernel
        std::printf("%s%s\n", has_no_way ? "SKIPPED: " : "", e.what());
        return has_no_way ? 77 : 1;
    }
    return example::result();
}
