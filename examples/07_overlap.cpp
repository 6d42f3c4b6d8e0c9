// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Communicates while computing. An async call returns at once. It progresses whenever its communicator gets a turn
// (test(), progress(), any other call), because collx starts no thread unasked. With a progress thread, it progresses
// without turns. For many small tensors there is the group: one exchange instead of one per tensor. Next:
// 08_data_parallel_fashion_mnist does both in a real training.
#include <collx/collx.hpp>
#include <collx/comm/progress.hpp>
#include <collx/core/clock.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "check.hpp"

namespace {

constexpr int layers = 6;

// Stands for the backward pass of one layer. The result depends on the layer and the rank.
std::vector<float> compute_gradient(int layer, int rank, std::size_t n) {
    std::vector<float> g(n);
    for (std::size_t i = 0; i < n; ++i) g[i] = static_cast<float>((static_cast<int>(i) + layer) % 16 + rank);
    return g;
}

void expect_sum(const std::vector<float>& g, int layer, int ranks) {
    for (std::size_t i = 0; i < g.size(); ++i) {
        const int sum = (static_cast<int>(i) + layer) % 16 * ranks + ranks * (ranks - 1) / 2;
        example::expect(g[i] == static_cast<float>(sum), "the sum of the gradients");
    }
}

// The sum of layer k travels while layer k + 1 is computed.
void backward_pass(collx::communicator& world, std::size_t n) {
    // [doc:async]
    std::vector<collx::work<std::vector<float>>> travelling;
    for (int k = 0; k < layers; ++k) {
        auto g = compute_gradient(k, world.rank(), n);
        travelling.push_back(collx::async::all_reduce(world, std::move(g))); // the call owns g until wait()
        world.progress();                                                    // lets all outstanding calls progress
    }
    collx::wait_all(travelling);
    std::vector<std::vector<float>> gradients;
    for (auto& w : travelling) gradients.push_back(w.wait());
    // [doc:end]
    for (int k = 0; k < layers; ++k) expect_sum(gradients[static_cast<std::size_t>(k)], k, world.size());
    if (world.rank() == 0) std::printf("%d sums of %zu floats under way at once, all right\n", layers, n);
}

// test() both asks whether the call is done and lets it progress.
void poll_while_working(collx::communicator& world, std::size_t n) {
    std::vector<float> g = compute_gradient(0, world.rank(), n); // remains ours, must stay in place until the call ends
    auto sum = collx::async::all_reduce(world, g);
    int turns = 0;
    double useful = 0;
    while (!sum.test()) useful += 1.0 / ++turns;
    expect_sum(g, 0, world.size());
    std::vector<int> all(static_cast<std::size_t>(world.size()));
    collx::all_gather(world, collx::value(turns), all);
    if (world.rank() == 0) {
        std::printf("turns of other work each rank did while waiting:");
        for (int t : all) std::printf(" %d", t);
        std::printf(useful < 0 ? "?\n" : "\n");
    }
}

// Nothing but computation runs between the call and wait(): the process's progress thread moves the call on.
void compute_without_a_look(collx::communicator& world, std::size_t n) {
    // [doc:thread]
    auto own = world.dup();
    (void)own.with(collx::progress::thread{}); // for all its async calls from now on
    std::vector<float> g = compute_gradient(1, world.rank(), n);
    auto sum = collx::async::all_reduce(own, g);
    const std::vector<float> next = compute_gradient(2, world.rank(), n);
    sum.wait();
    // [doc:end]
    expect_sum(g, 1, world.size());
    example::expect(next.size() == n, "the next layer");
}

// The same call in every step: everything that can be done once is done before the loop.
void same_sum_each_step(collx::communicator& world) {
    // [doc:persistent]
    std::vector<float> g(1000);
    auto sum = collx::persistent::all_reduce(world, g); // checked, chosen and bound, once
    for (int step = 0; step < 10; ++step) {
        std::fill(g.begin(), g.end(), static_cast<float>(world.rank() + step));
        sum(); // or sum.start(), something else, sum.wait()
    }
    // [doc:end]
    const int n = world.size();
    example::expect(g.back() == static_cast<float>(n * 9 + n * (n - 1) / 2), "the sum of the last step");
}

// Biases, norms, scales: dozens of tensors of a few numbers each.
void many_small(collx::communicator& world) {
    std::vector<std::vector<float>> small;
    for (int k = 0; k < 50; ++k) small.push_back(compute_gradient(k, world.rank(), static_cast<std::size_t>(10 + k)));
    const auto fresh = small;
    std::int64_t one_by_one = INT64_MAX, grouped = INT64_MAX;
    for (int repeat = 0; repeat < (example::is_short() ? 3 : 50); ++repeat) {
        small = fresh;
        collx::barrier(world);
        std::int64_t start = collx::now_ns();
        for (auto& g : small) collx::all_reduce(world, g);
        one_by_one = std::min(one_by_one, collx::now_ns() - start);
        for (int k = 0; k < 50; ++k) expect_sum(small[static_cast<std::size_t>(k)], k, world.size());

        small = fresh;
        collx::barrier(world);
        start = collx::now_ns();
        // [doc:group]
        collx::group together(world);
        for (auto& g : small) together.all_reduce(g);
        together.launch();
        // [doc:end]
        grouped = std::min(grouped, collx::now_ns() - start);
        for (int k = 0; k < 50; ++k) expect_sum(small[static_cast<std::size_t>(k)], k, world.size());
    }
    if (world.rank() == 0)
        std::printf("50 small sums: %.1f us one by one, %.1f us as a group\n", static_cast<double>(one_by_one) / 1e3,
                    static_cast<double>(grouped) / 1e3);
}

} // namespace

int main() {
    collx::run_threads(2, [](collx::communicator& world) {
        const std::size_t n = example::is_short() ? 50'000 : 1'000'000;
        backward_pass(world, n);
        poll_while_working(world, n);
        compute_without_a_look(world, n);
        same_sum_each_step(world);
        many_small(world);
    });
    return example::result();
}
