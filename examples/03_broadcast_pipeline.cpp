// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Pipelines a broadcast. The ranks stand in a line and pass the message on; cut into K chunks, the first is at the end
// while the last is still at the start: S + K - 2 rounds of a K-th each. Too few chunks leave links idle, too many pay
// for a message each time; the table shows both. Next: let 7 ranks of a tree do the same (collx/algo/double_tree.hpp).
#include <collx/algo/chain.hpp>
#include <collx/collx.hpp>
#include <collx/core/clock.hpp>
#include <collx/sched/facts.hpp>
#include <collx/sched/render.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <vector>

#include "check.hpp"

namespace {

constexpr int ranks = 4;

// Which chunk arrives where when: one column per round.
void show_pipeline(int chunk_count) {
    std::printf("%d ranks, K = %d chunks; which chunk each rank receives in each round:\n", ranks, chunk_count);
    for (int r = 1; r < ranks; ++r) {
        std::printf("  rank %d  ", r);
        for (int round = 1; round <= ranks + chunk_count - 2; ++round) {
            const int chunk = round - r;
            if (chunk >= 0 && chunk < chunk_count) std::printf(" %d", chunk);
            else std::printf(" .");
        }
        std::printf("\n");
    }
}

// The best of a few runs, in microseconds: other programs can only make it slower.
double time_us(collx::communicator& world, std::vector<float>& x, int chunk_count) {
    const auto chain = world.with(collx::algo::chain_broadcast{.chunk_count = chunk_count});
    std::fill(x.begin(), x.end(), world.rank() == 0 ? static_cast<float>(chunk_count) : 0.0f);
    std::int64_t best = INT64_MAX;
    for (int i = 0; i < (example::is_short() ? 3 : 50); ++i) {
        collx::barrier(world);
        const std::int64_t start = collx::now_ns();
        collx::broadcast(chain, x, {.root = 0});
        collx::barrier(world);
        best = std::min(best, collx::now_ns() - start);
    }
    for (float v : x) example::expect(v == static_cast<float>(chunk_count), "the root's data everywhere");
    return static_cast<double>(best) / 1e3;
}

} // namespace

int main() {
    show_pipeline(6);
    const auto chain = collx::sched::record_all(collx::algo::chain_broadcast{.chunk_count = 6}, ranks);
    std::ofstream("chain.svg") << collx::sched::to_svg(chain, "chain broadcast, 6 chunks");
    std::printf("drawn: chain.svg\n");

    const std::vector<int> counts = {1, 2, 4, 8, 16, 64};
    for (int k : counts) {
        const auto facts = collx::sched::facts_of(collx::algo::chain_broadcast{.chunk_count = k}, ranks);
        example::expect(facts.ok && facts.rounds == ranks + k - 2, "S + K - 2 rounds");
    }

    std::printf("\n%8s %8s %16s %16s   best of several runs\n", "chunks", "rounds", "64 KiB in all", "4 MiB in all");
    collx::run_threads(ranks, [&](collx::communicator& world) {
        std::vector<float> small(16 * 1024), large(example::is_short() ? 128 * 1024 : 1024 * 1024);
        for (int k : counts) {
            const double small_us = time_us(world, small, k), large_us = time_us(world, large, k);
            if (world.rank() == 0) std::printf("%8d %8d %13.0f us %13.0f us\n", k, ranks + k - 2, small_us, large_us);
        }
        if (world.rank() == 0)
            std::printf(
                "\n64 KiB fit one slot of a channel, so K alone decides how they are cut. Longer chunks travel in\n"
                "pieces of at most a slot anyway, so that even K = 1 is a pipeline; collx::piece{bytes} sets the "
                "size.\n");
    });
    return example::result();
}
