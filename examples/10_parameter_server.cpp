// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rank 0 keeps the weights, the other ranks have the data. First they train in step: in every step, all wait for all.
// Then each worker trains at its own pace: the server applies gradients as they arrive, and delays only workers that
// are too far ahead of the slowest (Ho et al., "More effective distributed ML via a stale synchronous parallel
// parameter server", 2013). One worker is slow on purpose. Next: docs/tour.md.
// collx-example: everywhere
#include <collx/collx.hpp>
#include <collx/net.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "check.hpp"

namespace {

using weights = std::array<float, 8>;
constexpr float rate = 0.5f, good_loss = 1e-3f;
constexpr int steps = 60, bound = 3; // bound: how many steps a worker may be ahead of the slowest

// The samples of one worker: y = <x, truth>. The gradient leads to `truth`.
struct shard {
    explicit shard(int rank) {
        auto seed = static_cast<unsigned>(rank + 1);
        for (int s = 0; s < 64; ++s) {
            weights x{};
            for (float& v : x) v = static_cast<float>((seed = seed * 1103515245 + 12345) >> 16 & 1023) / 512 - 1;
            samples.push_back(x);
        }
    }
    static float dot(const weights& a, const weights& b) {
        float sum = 0;
        for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
        return sum;
    }
    weights gradient(const weights& w) const {
        weights g{};
        for (const weights& x : samples) {
            const float wrong = dot(x, w) - dot(x, truth);
            for (std::size_t i = 0; i < g.size(); ++i) g[i] += wrong * x[i] / static_cast<float>(samples.size());
        }
        return g;
    }
    float loss(const weights& w) const {
        float sum = 0;
        for (const weights& x : samples) sum += (dot(x, w) - dot(x, truth)) * (dot(x, w) - dot(x, truth));
        return sum / static_cast<float>(samples.size());
    }
    static constexpr weights truth{0.5f, -1, 2, 0.25f, -0.75f, 1, -2, 1.5f};
    std::vector<weights> samples;
};

void descend(weights& w, const weights& g, int workers) {
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= rate / static_cast<float>(workers) * g[i];
}

// [doc:in-step]
weights train_in_step(collx::communicator& world, const shard& mine) {
    weights w{}, sum{};
    for (int step = 0; step < steps; ++step) {
        collx::broadcast(world, w);
        const weights g = world.rank() == 0 ? weights{} : mine.gradient(w);
        collx::reduce(world, g, sum);
        if (world.rank() == 0) descend(w, sum, world.size() - 1);
    }
    collx::broadcast(world, w);
    return w;
}
// [doc:end]

struct answer {
    weights w{};
    int slowest = 0; // steps that every worker has made
};

// [doc:worker]
// A worker knows nothing of the other workers: it sends a gradient and receives weights, perhaps after a while.
weights work_at_own_pace(collx::communicator& world, const shard& mine, bool is_slow) {
    answer now;
    for (int step = 0; step < steps; ++step) {
        example::expect(step - now.slowest <= bound, "weights are no staler than the bound");
        if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        const weights g = mine.gradient(now.w);
        collx::send(world, g, 0);
        collx::recv(world, collx::value(now), 0);
    }
    return now.w;
}
// [doc:end]

// [doc:server]
// The server has one receive outstanding for each worker, and tests them in turn. (A receive always names its sender:
// this program decides here which worker is served first.)
struct seat {
    int steps_made = 0;
    bool waits = false; // for weights
    weights arrived{};
    answer reply;
    std::optional<collx::work<void>> coming, going;
};

int serve(collx::communicator& world, weights& w) {
    std::vector<seat> seats(static_cast<std::size_t>(world.size()));
    const auto workers = std::span(seats).subspan(1);
    const auto rank_of = [&](const seat& s) { return static_cast<int>(&s - seats.data()); };
    const auto slowest = [&] { return std::ranges::min_element(workers, {}, &seat::steps_made)->steps_made; };
    const auto listen = [&](seat& s) { s.coming = collx::async::recv(world, s.arrived, rank_of(s)); };
    for (seat& s : workers) listen(s);
    int longest_lead = 0;
    while (slowest() < steps || std::ranges::any_of(workers, &seat::waits)) {
        for (seat& s : workers) {
            if (!s.waits && s.steps_made < steps && s.coming->test()) {
                descend(w, s.arrived, world.size() - 1);
                ++s.steps_made;
                s.waits = true;
                longest_lead = std::max(longest_lead, s.steps_made - slowest());
            }
            if (!s.waits || s.steps_made - slowest() > bound) continue; // too far ahead: wait for the slowest
            if (s.going) s.going->wait();                               // the last answer was received long ago
            s.reply = {w, slowest()};
            s.going = collx::async::send(world, collx::value(s.reply), rank_of(s));
            s.waits = false;
            if (s.steps_made < steps) listen(s);
        }
        std::this_thread::yield();
    }
    for (seat& s : workers) s.going->wait();
    return longest_lead;
}
// [doc:end]

void run(collx::communicator& world) {
    const shard mine(world.rank());
    const int slow = world.size() - 1;
    weights w = train_in_step(world, mine);
    float loss[2] = {mine.loss(w), 0};

    int lead = 0;
    w = {};
    const auto start = std::chrono::steady_clock::now();
    if (world.rank() == 0) lead = serve(world, w);
    else w = work_at_own_pace(world, mine, world.rank() == slow);
    const auto took = std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - start).count();

    collx::broadcast(world, w);
    loss[1] = mine.loss(w);
    collx::all_reduce(world, loss, collx::max{});
    std::vector<float> times(static_cast<std::size_t>(world.size()));
    collx::gather(world, collx::value(took), times);
    example::expect(loss[0] < good_loss, "training in step converges");
    example::expect(loss[1] < good_loss, "training at each rank's own pace converges");
    if (world.rank() != 0) return;
    // The first gradient beyond the bound still arrives; its answer waits.
    if (world.size() > 2) example::expect(lead == bound + 1, "others run ahead of the slow worker, as far as they may");
    std::printf("%d workers, loss in step %.1e, at their own pace %.1e; the fastest was %d steps ahead of rank %d\n",
                world.size() - 1, static_cast<double>(loss[0]), static_cast<double>(loss[1]), lead, slow);
}

} // namespace

int main() {
    collx::communicator world;
    if (world.size() > 1) run(world); // under collx_run, mpirun, srun, ...
    else collx::run_threads(4, run);
    return example::result();
}
