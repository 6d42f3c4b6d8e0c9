// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tensor parallelism: four ranks share one linear layer. The all-reduce of their partial products adds the bias and
// the residual while the sums are in registers. Partial products travel as bf16, half the bytes. The result is
// compared with a plain matrix product in double, and all ranks must hold the same bits. Without a GPU the kernel's
// code runs on host threads. Next: another activation in the epilogue, algo::ring_all_reduce, e4m3 on the wire.
// Background: docs/gpu.md, docs/writing_an_operator.md.
#include <cmath>
#include <cstdio>
#include <cstring>

#include <collx/gpu/team.cuh>

#include "../check.hpp"
#include "layer.hpp"

namespace {

using collx::device::require_cuda;

__global__ void multiply(const float* x, const float* w, float* partial) {
    const std::size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < lesson::out_elems) partial[i] = lesson::partial_product(x, w, i);
}

// (Thrust's vectors work as well, but would take most of this file's compile time.)
class on_gpu {
public:
    explicit on_gpu(const float* from, std::size_t n) : n_(n) {
        require_cuda(cudaMalloc(&p_, n * sizeof(float)), "allocating");
        if (from != nullptr) require_cuda(cudaMemcpy(p_, from, n * sizeof(float), cudaMemcpyHostToDevice), "filling");
    }
    on_gpu(on_gpu&& o) noexcept : p_(o.p_), n_(o.n_) { o.p_ = nullptr; }
    ~on_gpu() { cudaFree(p_); }
    float* data() const { return p_; }
    collx::device_view<float> collx_buffer() const { return {p_, n_}; }

private:
    float* p_ = nullptr;
    std::size_t n_;
};

lesson::results run_on_gpu(const lesson::layer& l) {
    collx::gpu_team team(lesson::ranks);
    const on_gpu bias(l.bias.data(), l.bias.size()), residual(l.residual.data(), l.residual.size());
    std::vector<on_gpu> partial, y;
    for (int r = 0; r < lesson::ranks; ++r) {
        const auto share = l.x_share(r);
        const on_gpu x(share.data(), share.size()), w(l.w_share(r), lesson::share * lesson::cols);
        partial.emplace_back(nullptr, lesson::out_elems);
        y.emplace_back(nullptr, lesson::out_elems);
        multiply<<<(lesson::out_elems + 255) / 256, 256>>>(x.data(), w.data(), partial.back().data());
        require_cuda(cudaDeviceSynchronize(), "multiplying");
    }
    lesson::sum_with_epilogue(team, partial, y, {bias.data(), residual.data()});
    lesson::results out(lesson::ranks, std::vector<float>(lesson::out_elems));
    for (std::size_t r = 0; r < out.size(); ++r)
        require_cuda(cudaMemcpy(out[r].data(), y[r].data(), lesson::out_elems * sizeof(float), cudaMemcpyDeviceToHost),
                     "reading");
    return out;
}

} // namespace

int main() {
    lesson::layer l;
    const auto number = [](std::size_t i) { return static_cast<float>(std::sin(0.7 * static_cast<double>(i))); };
    for (std::size_t i = 0; i < lesson::rows * lesson::inner; ++i) l.x.push_back(number(i));
    for (std::size_t i = 0; i < lesson::inner * lesson::cols; ++i) l.w.push_back(number(3 * i + 1));
    for (std::size_t i = 0; i < lesson::cols; ++i) l.bias.push_back(number(5 * i + 2));
    for (std::size_t i = 0; i < lesson::out_elems; ++i) l.residual.push_back(number(7 * i + 3));

    int devices = 0;
    const bool has_gpu = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
    std::printf("%s\n", has_gpu ? "one kernel on the GPU" : "no GPU: the kernel's code on host threads");
    const auto y = has_gpu ? run_on_gpu(l) : lesson::run_on_twin(l);

    double worst = 0;
    for (std::size_t i = 0; i < lesson::out_elems; ++i) {
        double exact = 0, most = 0; // most: the sum of the magnitudes that are rounded
        for (int r = 0; r < lesson::ranks; ++r) {
            double partial = 0;
            for (std::size_t k = 0; k < lesson::share; ++k) {
                const std::size_t at = static_cast<std::size_t>(r) * lesson::share + k;
                partial += static_cast<double>(l.x[i / lesson::cols * lesson::inner + at]) *
                           static_cast<double>(l.w[at * lesson::cols + i % lesson::cols]);
            }
            exact += partial;
            most += std::fabs(partial);
        }
        exact += static_cast<double>(l.bias[i % lesson::cols]) + static_cast<double>(l.residual[i]);
        most += std::fabs(exact);
        const double off = std::fabs(static_cast<double>(y[0][i]) - exact);
        worst = off > worst ? off : worst;
        if (off > most / 256 + 1e-5) {
            example::expect(false, "a result is off by more than bf16 rounds");
            i = lesson::out_elems;
        }
    }
    for (const auto& other : y)
        example::expect(std::memcmp(other.data(), y[0].data(), lesson::out_elems * sizeof(float)) == 0,
                        "all ranks hold the same bits");
    std::printf("%zu x %zu results on %d ranks, at most %.4f from the exact ones, with bf16 on the wire\n",
                lesson::rows, lesson::cols, lesson::ranks, worst);
    return example::result();
}
