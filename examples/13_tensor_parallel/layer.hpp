// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A linear layer whose weights are split over ranks along the inner dimension, on any team. Rank r multiplies its
// share of the columns of x with its share of the rows of w, and the partial products are summed. The sum is one fused
// kernel, which also adds bias and residual to each finished element. Partial products travel as bf16.
#pragma once

#include <cstddef>
#include <vector>

#include <collx/algo/two_shot.hpp>
#include <collx/gpu/fused_team.hpp>

namespace lesson {

constexpr int ranks = 4;
constexpr std::size_t rows = 48, inner = 64, cols = 96, share = inner / ranks, out_elems = rows * cols;

// Applied to each result while it is in a register, without another pass over memory.
// [doc:epilogue]
struct epilogue {
    const float* bias;     // [cols]
    const float* residual; // [rows, cols]
    COLLX_HD float operator()(float sum, collx::hook_context k) const {
        return sum + bias[k.index % cols] + residual[k.index];
    }
};
// [doc:end]

// One element of rank r's partial product: x_share is [rows, share], w_share is [share, cols].
COLLX_HD inline float partial_product(const float* x_share, const float* w_share, std::size_t at) {
    const std::size_t row = at / cols, col = at % cols;
    float sum = 0;
    for (std::size_t k = 0; k < share; ++k) sum += x_share[row * share + k] * w_share[k * cols + col];
    return sum;
}

// Sums partial[r] over the ranks. Each rank's y receives sum + bias + residual.
template <class Team, class Partial, class Y>
void sum_with_epilogue(Team& team, Partial& partial, Y& y, const epilogue& e) {
    const auto cut = [](int chunks) { return collx::chunk_layout::even(out_elems, chunks, 16); };
    team.template run<collx::device::simple_protocol, 1, collx::bf16>(collx::algo::two_shot_all_reduce{}, partial, y,
                                                                      collx::with_post(collx::plus{}, e), {}, cut, cut);
    team.synchronize();
}

struct layer {
    std::vector<float> x, w, bias, residual; // [rows, inner], [inner, cols], [cols], [rows, cols]
    std::vector<float> x_share(int rank) const {
        std::vector<float> s;
        for (std::size_t i = 0; i < rows; ++i)
            for (std::size_t k = 0; k < share; ++k)
                s.push_back(x[i * inner + static_cast<std::size_t>(rank) * share + k]);
        return s;
    }
    const float* w_share(int rank) const { return w.data() + static_cast<std::size_t>(rank) * share * cols; }
};

// y[r] is the result of rank r.
using results = std::vector<std::vector<float>>;
results run_on_twin(const layer&);

} // namespace lesson
