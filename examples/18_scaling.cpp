// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How data-parallel training scales, and what one slow rank costs. The same batch runs on more ranks (strong scaling),
// then the same share on each rank (weak scaling). Then one rank is slow on purpose, and all others wait for it in the
// sum of the gradients. Each rank has a simulated device that takes a set time for a sample. The host sleeps meanwhile,
// so ranks scale even if they share cores. Gradients and sums are real; all ways end with the serial program's weights.
// collx-example: everywhere timeout=60
// Next: docs/lessons/18_scaling.md, and example 10, where fast workers need not wait.
#include <collx/algo/ring.hpp>
#include <collx/collx.hpp>
#include <collx/net.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <thread>
#include <vector>

#include "check.hpp"
#include "draw.hpp"
#include "timeline.hpp"

namespace {

using example::say;
using numbers = std::vector<double>;
constexpr std::size_t in = 128, out = 120; // of one layer, which learns to turn a sample into another vector
constexpr int each = 10;                   // samples of a rank, where all ranks have the same number
constexpr double slowdown = 3;
struct settings {
    double sample_ms = 0.6; // on a device
    int steps = 10;
};

// Adds the gradient of (Wx - target)² / 2.
void learn(const numbers& w, int sample, numbers& gradient) {
    numbers x(in);
    for (std::size_t i = 0; i < in; ++i)
        x[i] = std::sin(static_cast<double>((i + 1) * static_cast<std::size_t>(sample + 1)));
    for (std::size_t o = 0; o < out; ++o) {
        double wrong = -x[(7 * o) % in] * x[o];
        for (std::size_t i = 0; i < in; ++i) wrong += w[o * in + i] * x[i];
        for (std::size_t i = 0; i < in; ++i) gradient[o * in + i] += wrong * x[i];
    }
}
void descend(numbers& w, const numbers& gradient, int batch) {
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= 0.01 / batch * gradient[i];
}
numbers serial(int batch, int steps) {
    numbers w(in * out);
    for (int s = 0; s < steps; ++s) {
        numbers gradient(w.size());
        for (int i = 0; i < batch; ++i) learn(w, s * batch + i, gradient);
        descend(w, gradient, batch);
    }
    return w;
}

struct outcome {
    double step_ms = 0, waited_ms = 0; // per step; waited_ms: in the sum, over all ranks
    double bytes = 0;                  // sent by a rank in a step
};

// Trains with shares[r] samples of each batch on rank r, whose device takes slow[r] times as long.
outcome train(collx::communicator& c, const settings& set, const std::vector<int>& shares, const numbers& slow,
              bool draws = false) {
    const auto me = static_cast<std::size_t>(c.rank());
    const int first = std::accumulate(shares.begin(), shares.begin() + c.rank(), 0);
    const int batch = std::accumulate(shares.begin(), shares.end(), 0);
    const auto by_ring = c.with(collx::algo::ring_all_reduce{});
    const double device_ms = shares[me] * set.sample_ms * slow[me];
    numbers w(in * out), gradient(w.size());
    example::events seen;
    std::uint64_t sent = 0;
    double waited_ms = 0;
    collx::barrier(c);
    const example::stopwatch watch;
    collx::barrier(c);
    // [doc:step]
    for (int s = 0; s < set.steps; ++s) {
        const double begin_ms = watch.ms();
        std::fill(gradient.begin(), gradient.end(), 0.0);
        for (int i = 0; i < shares[me]; ++i) learn(w, s * batch + first + i, gradient);
        const double rest_ms = device_ms - (watch.ms() - begin_ms);
        if (rest_ms > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(rest_ms));
        const double ready_ms = watch.ms();
        const std::uint64_t before = c.sent().bytes;
        collx::all_reduce(by_ring, gradient); // ends when the slowest rank has arrived
        sent += c.sent().bytes - before;
        const double summed_ms = watch.ms();
        waited_ms += summed_ms - ready_ms;
        descend(w, gradient, batch);
        if (s < 2) seen.insert(seen.end(), {{begin_ms, ready_ms, '#'}, {ready_ms, summed_ms, '.'}});
    }
    // [doc:end]
    outcome r{watch.ms() / set.steps, waited_ms / set.steps, 0};
    const numbers expected = serial(batch, set.steps);
    double off = 0, slowest_ms = 0;
    for (std::size_t i = 0; i < w.size(); ++i) off = std::max(off, std::abs(w[i] - expected[i]));
    for (std::size_t k = 0; k < shares.size(); ++k)
        slowest_ms = std::max(slowest_ms, shares[k] * set.sample_ms * slow[k]);
    example::expect(off < 1e-12, "the weights of the serial program");
    example::expect(r.step_ms > 0.999 * slowest_ms, "no step is shorter than that of the slowest rank");
    collx::all_reduce(c, collx::value(sent));
    const std::uint64_t formula =
        static_cast<std::uint64_t>(set.steps) * 2 * (shares.size() - 1) * sizeof(double) * w.size();
    example::expect(sent == formula, "each rank sends 2(n-1)/n of the gradients a step");
    r.bytes = static_cast<double>(sent) / set.steps / c.size();
    collx::all_reduce(c, collx::value(r.waited_ms));
    if (draws) example::draw_with_waits(c, seen);
    return r;
}

// The first n ranks train, the others wait in the barrier.
void scale(collx::communicator& world, const settings& set, bool is_strong) {
    say(world, "\n%s\n%6s %8s %10s %10s %14s %12s %12s\n",
        is_strong ? "Strong scaling: the batch stays" : "Weak scaling: the share of a rank stays", "ranks", "batch",
        "ms a step", "in the sum", is_strong ? "t1 / (n tn)" : "t1 / tn", "bytes a step", "2(n-1)/n N w");
    double alone_ms = 0, sum_ms = 0;
    for (int n = 1; n <= world.size(); n *= 2) {
        auto part = world.split(world.rank() < n ? 0 : -1);
        const int batch = each * (is_strong ? world.size() : n);
        if (!part.is_empty()) {
            std::vector<int> shares;
            for (int k = 0; k < n; ++k) shares.push_back(batch * (k + 1) / n - batch * k / n);
            const outcome r = train(part, set, shares, numbers(shares.size(), 1.0));
            if (n == 1) alone_ms = r.step_ms;
            sum_ms = r.waited_ms / n;
            say(world, "%6d %8d %10.2f %10.2f %13.0f%% %12.0f %12.0f\n", n, batch, r.step_ms, sum_ms,
                100 * alone_ms / r.step_ms / (is_strong ? n : 1), r.bytes,
                2.0 * (n - 1) / n * in * out * sizeof(double));
        }
        collx::barrier(world);
    }
    const double batch_ms = each * world.size() * set.sample_ms;
    if (is_strong)
        say(world, "the sum does not shrink: if it stays at %.2f ms, half is lost at n = %.1f / %.2f = %.0f ranks\n",
            sum_ms, batch_ms, sum_ms, batch_ms / sum_ms);
}

// Each sample goes to the rank that would finish it first.
std::vector<int> shares_by_speed(int batch, const numbers& slow) {
    std::vector<int> shares(slow.size());
    const auto done = [&](std::size_t k) { return (shares[k] + 1) * slow[k]; };
    for (int i = 0; i < batch; ++i) {
        std::size_t best = 0;
        for (std::size_t k = 1; k < slow.size(); ++k)
            if (done(k) < done(best)) best = k;
        ++shares[best];
    }
    return shares;
}

void straggle(collx::communicator& world, const settings& set) {
    const int n = world.size(), batch = each * n;
    const numbers alike(static_cast<std::size_t>(n), 1.0);
    numbers slow = alike, left_out = alike;
    slow.back() = slowdown;
    left_out.back() = 1e9;
    const std::vector<int> equal(alike.size(), each);
    say(world, "\nOne rank is %.0f times slower (# computes, . waits in the sum; two steps)\n", slowdown);
    const auto row = [&](const char* name, const std::vector<int>& shares, const numbers& speeds) {
        say(world, "%s\n", name);
        const outcome r = train(world, set, shares, speeds, true);
        double most_ms = 0, wait_ms = 0;
        for (std::size_t k = 0; k < shares.size(); ++k)
            most_ms = std::max(most_ms, shares[k] * set.sample_ms * speeds[k]);
        for (std::size_t k = 0; k < shares.size(); ++k)
            wait_ms += std::abs(most_ms - shares[k] * set.sample_ms * speeds[k]);
        say(world, "  a step: %.2f ms, formula %.2f; all ranks together waited %.1f ms of it, formula %.1f\n",
            r.step_ms, most_ms, r.waited_ms, wait_ms);
        return most_ms;
    };
    const double fast_ms = row("all alike", equal, alike), slow_ms = row("the last rank is slow", equal, slow);
    example::expect(std::abs(slow_ms / fast_ms - slowdown) < 1e-9, "a rank slower by x slows each step by x");
    const double fair_ms = row("it gets fewer samples", shares_by_speed(batch, slow), slow);
    const double without_ms = row("it gets none", shares_by_speed(batch, left_out), slow);
    example::expect(fair_ms <= without_ms && without_ms <= slow_ms, "fewer samples is never worse than none");
    say(world, "%d ranks with it do as much as %.1f alike; without it as %d\n", n, n / slowdown, n - 1);
}

void run(collx::communicator& world) {
    const settings set = example::is_short() ? settings{.sample_ms = 0.2, .steps = 4} : settings{};
    world.set_checked(false); // ranks would compare the arguments of each call, and that would be counted, too
    say(world, "%zu weights, %.1f ms a sample, %d ranks\n", in * out, set.sample_ms, world.size());
    scale(world, set, true);
    scale(world, set, false);
    straggle(world, set);
}

} // namespace

int main() {
    collx::communicator world;
    if (world.size() > 1) run(world);
    else collx::run_threads(4, run); // alone: four threads
    return example::result();
}
