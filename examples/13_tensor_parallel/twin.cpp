// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The same layer on host threads.
#include <collx/testing/twin.hpp>

#include "layer.hpp"

lesson::results lesson::run_on_twin(const layer& l) {
    collx::device::exchange_shape shape;
    shape.ranks = ranks;
    shape.lanes = 2;
    collx::fused_team<collx::device::twin_machine> team(shape);
    results partial(ranks, std::vector<float>(out_elems)), y = partial;
    for (int r = 0; r < ranks; ++r) {
        const auto x = l.x_share(r);
        for (std::size_t i = 0; i < out_elems; ++i)
            partial[static_cast<std::size_t>(r)][i] = partial_product(x.data(), l.w_share(r), i);
    }
    sum_with_epilogue(team, partial, y, {l.bias.data(), l.residual.data()});
    return y;
}
