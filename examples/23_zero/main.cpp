// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// ZeRO: data parallelism without storing the same data n times. An allocator counts what each rank holds, and the
// communicator counts what it sends; both are compared with the formulas. The weights of all ways are those of plain
// data parallelism and of the serial program, to the bit. docs/lessons/23_zero.md has the formulas.
// collx-example: everywhere timeout=60 optimised
#include <collx/collx.hpp>
#include <collx/net.hpp>

#include <cmath>
#include <cstdio>

#include "../check.hpp"
#include "trainer.hpp"

namespace {

using namespace zero;

constexpr const char* names[] = {"plain", "ZeRO 1", "ZeRO 2", "ZeRO 3"};

struct result {
    numbers weights;
    counter memory;
    double sent = 0; // bytes per step
    example::events seen, held;
};

result train(collx::communicator& world, const shape& s, int stage, bool rings = false) {
    memory = {};
    trainer t(world, s, stage, rings);
    for (int step = 0; step < s.steps; ++step) t.step(step);
    const double sent = static_cast<double>(t.moved_bytes()) / s.steps;
    return {t.all_weights(), memory, sent, t.seen(), t.held};
}

// Bytes that a rank of n holds: parameters and gradients of 2 bytes, Adam's states of 12.
double memory_formula(int stage, double all, double n) {
    return all * (stage == 0 ? 16 : stage == 1 ? 4 + 12 / n : stage == 2 ? 2 + 14 / n : 16 / n);
}
// Bytes that a rank sends in a step.
double traffic_formula(int stage, double all, double n) { return (stage == 3 ? 3 : 2) * 2 * all * (n - 1) / n; }

void judge(collx::communicator& world, const shape& s, int stage, const result& r, const result& plain) {
    const auto all = static_cast<double>(s.all()), n = static_cast<double>(s.ranks);
    const double holds = memory_formula(stage, all, n), sends = traffic_formula(stage, all, n);
    const auto most = static_cast<double>(r.memory.most_at_once);
    example::expect(std::abs(most - holds) <= 0.1 * holds, "memory is within 10 % of the formula");
    // Exercise 2: beyond its share a rank holds one whole layer, weights or gradients, but never both.
    const double beyond = stage >= 2 ? 2.0 * static_cast<double>(s.layer) : 0;
    example::expect(std::abs(most - holds - beyond) < 1, "what is beyond the formula is one layer");
    double sent = r.sent; // of all ranks: their parts differ by an element
    collx::all_reduce(world, collx::value(sent));
    example::expect(std::abs(sent / n - sends) <= 0.01 * sends, "bytes are those of the formula");
    example::expect(r.weights == plain.weights, "the weights of plain data parallel, to the bit");
    if (world.rank() == 0)
        std::printf("%-8s %10zu %10zu %10zu %10.0f %10.0f %6.2f %12.0f %12.0f\n", names[stage],
                    r.memory.most[parameters], r.memory.most[gradients], r.memory.most[optimizer], most, holds,
                    most / all, r.sent, sends);
}

void draw(const result (&all)[4]) {
    std::printf("\nRank 0 in the last step. F, B: forward, backward; R: all_reduce; S: reduce_scatter; G: all_gather;\n"
                "U: Adam. Below it what is held, in eighths of what plain data parallel holds.\n");
    for (int stage = 0; stage < 4; ++stage) {
        const double end = example::end_of({all[stage].seen});
        std::printf("%-7s|%s|\n       |%s|\n", names[stage], example::line_of(all[stage].seen, end).c_str(),
                    example::line_of(all[stage].held, end).c_str());
    }
}

// Sums by a ring: each part begins at a different rank, and all_reduce begins at another one than reduce_scatter.
void compare_rings(collx::communicator& world, const shape& s) {
    const result plain = train(world, s, 0, true), third = train(world, s, 3, true);
    std::size_t differ = 0;
    double most = 0;
    for (std::size_t i = 0; i < plain.weights.size(); ++i) {
        differ += plain.weights[i] != third.weights[i];
        most = std::max(most, std::abs(static_cast<double>(plain.weights[i]) - static_cast<double>(third.weights[i])));
    }
    if (world.rank() == 0)
        std::printf(
            "\nSums by rings: %zu of %zu weights of ZeRO 3 are not those of plain data parallel, by %.1e at most\n",
            differ, s.all(), most);
    if (s.ranks <= 2) example::expect(differ == 0, "a sum of two has one order");
    example::expect(most <= 2.1 * 0.01 * s.steps, "no weight is further off than Adam's steps are long");
}

// Exercise 1: 7.5e9 weights on 64 ranks, the example of the paper.
void print_large_model() {
    const double published[] = {120, 31.4, 16.6, 1.9};
    std::printf("\n7.5e9 weights on 64 ranks, GB a rank:");
    for (int stage = 0; stage < 4; ++stage) {
        const double gb = memory_formula(stage, 7.5e9, 64) / 1e9;
        std::printf("%s %s %.1f", stage == 0 ? "" : ",", names[stage], gb);
        example::expect(std::abs(gb - published[stage]) < 0.06, "the paper's example");
    }
    std::printf("\n");
}

void run(collx::communicator& world) {
    const shape s(world.size(), example::is_short());
    if (world.rank() == 0)
        std::printf("%zu layers, %zu weights, %d ranks; bytes of rank 0\n%-8s %10s %10s %10s %10s %10s %6s %12s %12s\n",
                    s.layers, s.all(), s.ranks, "", "parameters", "gradients", "optimizer", "at once", "formula",
                    "each", "sent a step", "formula");
    result all[4];
    for (int stage = 0; stage < 4; ++stage) {
        all[stage] = train(world, s, stage);
        judge(world, s, stage, all[stage], all[0]);
    }
    const bool once = all[0].weights == serial(s, false), often = all[0].weights == serial(s, true);
    example::expect(once || often, "the weights of the serial program, to the bit");
    if (world.rank() != 0) return compare_rings(world, s);
    std::printf("The serial program has the same bits if it rounds its sums of gradients to bf16 %s.\n",
                once ? "once, at the end" : "after each addition");
    draw(all);
    compare_rings(world, s);
    print_large_model();
}

} // namespace

int main() try {
    collx::communicator world;
    if (world.size() > 1) run(world);
    else collx::run_threads(4, run); // alone: four threads
    return example::result();
} catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
