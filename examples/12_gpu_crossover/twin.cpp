// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs the kernels' code on host threads. Its times show how many threads this machine runs at once, not a GPU's speed.
#include <utility>
#include <vector>

#include <collx/testing/twin.hpp>

#include "../check.hpp"
#include "crossover.hpp"

void lesson::compare_on_twin(std::size_t most) {
    collx::device::exchange_shape shape;
    shape.ranks = ranks;
    shape.lanes = 1;
    collx::fused_team<collx::device::twin_machine> team(shape);
    std::vector<std::vector<float>> in(ranks), out(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
        for (std::size_t i = 0; i < most; ++i) in[r].push_back(static_cast<float>(r + i % 10));
        out[r].resize(most);
    }
    using views = std::vector<collx::contiguous_view<float>>;
    compare(
        team, most, 2,
        [&](std::size_t n) {
            std::pair<views, views> v;
            for (auto& x : in) v.first.push_back({x.data(), n});
            for (auto& x : out) v.second.push_back({x.data(), n});
            return v;
        },
        [&](std::size_t n) {
            std::size_t bad = 0;
            for (auto& x : out)
                for (std::size_t i = 0; i < n; ++i) {
                    bad += x[i] != 6.0f + 4.0f * static_cast<float>(i % 10);
                    x[i] = -1;
                }
            example::expect(bad == 0, "every rank has the sums");
        });
}
