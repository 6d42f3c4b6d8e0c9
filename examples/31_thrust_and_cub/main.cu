// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Thrust's vectors and iterators are passed to collectives as they are, and CUB does what a step needs before and
// after them: a norm over all ranks and clipping by it, and a prefix sum over an array that no rank has as a whole.
// Nothing is copied to the host in between. Each is compared with the host's result. Skipped without a GPU. Run it as
// one rank, or as one rank per device: collx_run -n 4 31_thrust_and_cub. Next: docs/lessons/28_views.md.
// collx-example: label=nightly
#include <cmath>
#include <cstdio>
#include <vector>

#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>
#include <thrust/device_vector.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/zip_iterator.h>

#include <collx/collx.hpp>
#include <collx/gpu/calls.cuh>

#include "../check.hpp"

using collx::device::require_cuda;

namespace {

constexpr std::size_t n = 5000; // elements per rank

COLLX_HD float weight_at(int i, int rank) { return static_cast<float>((i * 7 + rank * 3) % 11) / 8; }
struct weight {
    int rank;
    COLLX_HD float operator()(int i) const { return weight_at(i, rank); }
};
struct product {
    template <class Pair>
    COLLX_HD float operator()(const Pair& p) const {
        return thrust::get<0>(p) * thrust::get<1>(p);
    }
};
struct square {
    COLLX_HD float operator()(float x) const { return x * x; }
};

__global__ void clip(float* x, const float* squares, float most) { // to the norm `most`
    const std::size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    const float norm = sqrtf(*squares);
    if (i < n && norm > most) x[i] *= most / norm;
}
// Adds what the ranks before this one have: `through`, the sum up to this rank, less its own sum, the last element.
__global__ void add_before(int* sums, const int* through) {
    const int own = sums[n - 1];
    __syncthreads();
    for (std::size_t i = threadIdx.x; i < n; i += blockDim.x) sums[i] += *through - own;
}

// Calls a CUB function twice: first it returns the memory that it needs, then it works in that memory.
template <class F>
void with_cub(F&& f) {
    std::size_t bytes = 0;
    require_cuda(f(nullptr, bytes), "asking CUB for its memory");
    thrust::device_vector<unsigned char> room(bytes);
    require_cuda(f(room.data().get(), bytes), "CUB");
}

void clip_by_norm(collx::communicator& world, cudaStream_t stream) {
    const int me = world.rank();
    thrust::device_vector<float> gradient(n, 0.5f), sum(n), squares(1);
    // [doc:thrust]
    // Weighted gradients: weights and products are computed while the collective reads them.
    const auto weights = thrust::make_transform_iterator(thrust::make_counting_iterator(0), weight{me});
    const auto pairs = thrust::make_zip_iterator(thrust::make_tuple(gradient.data().get(), weights));
    collx::all_reduce(world, collx::input(thrust::make_transform_iterator(pairs, product{}), n), sum, collx::average{},
                      {.stream = stream});
    // [doc:end]
    // [doc:cub]
    // Each rank sums the squares of its share of the sum. The total over the ranks is the square of the norm.
    const auto first = n * static_cast<std::size_t>(me) / static_cast<std::size_t>(world.size());
    const auto last = n * static_cast<std::size_t>(me + 1) / static_cast<std::size_t>(world.size());
    with_cub([&](void* room, std::size_t& bytes) {
        const auto own = thrust::make_transform_iterator(sum.data().get() + first, square{});
        return cub::DeviceReduce::Sum(room, bytes, own, squares.data().get(), static_cast<int>(last - first), stream);
    });
    collx::all_reduce(world, squares, collx::plus{}, {.stream = stream});
    clip<<<(n + 255) / 256, 256, 0, stream>>>(sum.data().get(), squares.data().get(), 1.0f);
    collx::synchronize(world, {.stream = stream});
    // [doc:end]
    std::vector<float> host(n);
    require_cuda(cudaMemcpy(host.data(), sum.data().get(), n * sizeof(float), cudaMemcpyDeviceToHost), "reading");
    double norm = 0, clipped = 0;
    std::vector<double> expected(n);
    for (std::size_t i = 0; i < n; ++i) {
        for (int r = 0; r < world.size(); ++r) expected[i] += 0.5 * weight_at(static_cast<int>(i), r);
        expected[i] /= world.size();
        norm += expected[i] * expected[i];
        clipped += double(host[i]) * host[i];
    }
    double wrong = 0;
    for (std::size_t i = 0; i < n; ++i) wrong = std::max(wrong, std::abs(host[i] - expected[i] / std::sqrt(norm)));
    example::expect(wrong < 1e-5, "the weighted mean, clipped");
    if (me == 0)
        std::printf("norm %.3f, clipped to %.3f on %d ranks\n", std::sqrt(norm), std::sqrt(clipped), world.size());
}

// Prefix sums of an array whose element r n + i is element i of rank r.
void prefix_sums(collx::communicator& world, cudaStream_t stream) {
    const int me = world.rank();
    thrust::device_vector<int> x(thrust::make_counting_iterator(me),
                                 thrust::make_counting_iterator(me + static_cast<int>(n)));
    thrust::device_vector<int> sums(n), through(1);
    require_cuda(cudaDeviceSynchronize(), "filling");
    // [doc:prefix]
    with_cub([&](void* room, std::size_t& bytes) {
        return cub::DeviceScan::InclusiveSum(room, bytes, x.data().get(), sums.data().get(), static_cast<int>(n),
                                             stream);
    });
    // One number per rank, the sum of its elements. The scan sums it over the ranks up to this one.
    const collx::device_view<int> total(sums.data().get() + n - 1, 1);
    collx::scan(world, total, through, collx::plus{}, {.stream = stream});
    add_before<<<1, 256, 0, stream>>>(sums.data().get(), through.data().get());
    collx::synchronize(world, {.stream = stream});
    // [doc:end]
    std::vector<int> host(n);
    require_cuda(cudaMemcpy(host.data(), sums.data().get(), n * sizeof(int), cudaMemcpyDeviceToHost), "reading");
    int before = 0;
    bool is_right = true;
    for (int r = 0; r <= me; ++r)
        for (int i = 0; i < static_cast<int>(n); ++i) {
            before += r + i;
            if (r == me) is_right = is_right && host[static_cast<std::size_t>(i)] == before;
        }
    example::expect(is_right, "prefix sums over all ranks");
}

void run(collx::communicator& world, int devices) {
    require_cuda(cudaSetDevice(world.rank() % devices), "choosing a device");
    cudaStream_t stream = nullptr;
    require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    collx::use_device(world);
    clip_by_norm(world, stream);
    prefix_sums(world, stream);
    if (world.rank() == 0) std::printf("%s\n", collx::device_route(world).c_str());
    cudaStreamDestroy(stream);
}

} // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::printf("SKIPPED: there is no GPU, and Thrust's device vectors need one\n");
        return 77;
    }
    try {
        collx::communicator world;
        run(world, devices);
    } catch (const collx::error& e) {
        std::printf("%s\n", e.what());
        return 1;
    }
    return example::result();
}
