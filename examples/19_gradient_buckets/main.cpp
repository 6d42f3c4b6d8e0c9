// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Data parallelism with gradient buckets. Each rank computes the gradients of its part of the batch; all ranks need
// the sums. A call for each tensor pays a latency for each. Buckets need only a few large calls. With a progress
// thread, these run during the backward pass. A wire type halves their bytes. All four ways end with the weights of the
// serial program. Explained in docs/lessons/19_gradient_buckets.md. Options: the number of layers, and their width.
// collx-example: everywhere timeout=60
#include <collx/collx.hpp>
#include <collx/net.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "../check.hpp"
#include "../draw.hpp"
#include "../timeline.hpp"
#include "network.hpp"
#include "ways.hpp"

namespace {

using example::say;

constexpr float rate = 0.002f;

// Learns from one rank's part of the batch. Tensors are ready in the pass of the last sample.
template <class Ready>
void learn_part(network& net, const shape& s, int step, int rank, int ranks, Ready&& is_ready) {
    const int mine = s.parts / ranks;
    for (int p = 0; p < mine; ++p)
        net.learn(step * s.parts + rank * mine + p, [&](std::size_t k) {
            if (p == mine - 1) is_ready(k);
        });
}

// The ways take their steps in turn, so that other load of the machine affects all of them.
void train(collx::communicator& world, const shape& s, const ways& all) {
    for (int step = 0; step < s.steps; ++step)
        for (const auto& w : all) {
            if (step == 1) w->sent_before = w->sent(); // the first step also compares registrations
            example::stopwatch clock(world);
            clock.during('#', -1, [&] { learn_part(w->net, s, step, world.rank(), world.size(), w->ready); });
            clock.during('s', -1, w->exchange);
            clock.during('#', -1, [&] { w->net.step(rate); });
            w->ms.push_back(clock.ms());
            w->seen = clock.seen;
        }
    for (const auto& w : all) {
        collx::all_reduce(world, w->ms, collx::max{}); // a step ends when its last rank is done
        std::sort(w->ms.begin(), w->ms.end());
    }
}

void judge(const collx::communicator& world, const shape& s, const way& w, double calls_ms, const network& serial) {
    double worst = 0;
    for (std::size_t i = 0; i < serial.weights.size(); ++i)
        worst = std::max(worst, static_cast<double>(std::abs(w.net.weights[i] - serial.weights[i])));
    example::expect(worst <= w.tolerance, w.name);
    const double formula =
        2.0 * (world.size() - 1) / world.size() * static_cast<double>(serial.weights.size() * w.wire_width);
    const std::uint64_t bytes = (w.sent() - w.sent_before) / static_cast<std::uint64_t>(s.steps - 1);
    say(world, "%-26s %9.2f %10.2f %14llu %14.0f   weights differ by %.1e\n", w.name, w.median_ms(),
        calls_ms / w.median_ms(), static_cast<unsigned long long>(bytes), formula, worst);
}

void run(collx::communicator& world, shape s) {
    world.set_checked(false); // ranks would compare the arguments of each call, and that would be counted, too
    if (s.parts % world.size() != 0) s.parts = world.size();
    network serial(s);
    for (int step = 0; step < s.steps; ++step) {
        learn_part(serial, s, step, 0, 1, [](std::size_t) {});
        serial.step(rate);
    }
    ways all;
    all.push_back(one_by_one(world, s));
    all.push_back(in_buckets<float>(world, s, "buckets, after the pass", false));
    all.push_back(in_buckets<float>(world, s, "buckets, during it", true));
    all.push_back(in_buckets<collx::bf16>(world, s, "the same, bf16 on the wire", true));
    all.back()->tolerance = 1e-3;
    train(world, s, all);

    say(world, "%zu tensors, %zu weights, %d ranks; %d steps of each way, in turn\n", serial.tensors(),
        serial.weights.size(), world.size(), s.steps);
    say(world, "%-26s %9s %10s %14s %14s\n", "", "ms a step", "times fast", "bytes a step", "2(n-1)/n N w");
    for (const auto& w : all) judge(world, s, *w, all[0]->median_ms(), serial);
    say(world, "\nThe last step of each: # computes, s sums\n");
    for (const auto& w : all) {
        say(world, "%s\n", w->name);
        example::draw_with_waits(world, w->seen);
    }
}

} // namespace

int main(int argc, char** argv) try {
    shape s;
    if (example::is_short()) {
        s.layers = 8;
        s.steps = 4;
    }
    s.layers = static_cast<std::size_t>(example::number(argc, argv, 1, static_cast<int>(s.layers), 10'000));
    s.width = static_cast<std::size_t>(example::number(argc, argv, 2, static_cast<int>(s.width), 10'000));
    collx::communicator world;
    if (world.size() > 1) run(world, s);
    else collx::run_threads(4, [s](collx::communicator& w) { run(w, s); }); // alone: four threads
    return example::result();
} catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
