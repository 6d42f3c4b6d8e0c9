// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Pipeline parallelism: each rank holds one stage of a network, and micro-batches go through all stages. Compares two
// orders, GPipe and 1F1B, and two ways to send activations and gradients, messages and a window. A stage's work is a
// wait of known length, so that two cores are enough for many ranks. The weights are those of the serial program, to
// the bit. `22_pipeline_parallel M` uses M micro-batches. docs/lessons/22_pipeline_parallel.md has the formulas.
// collx-example: everywhere timeout=60
#include <collx/collx.hpp>
#include <collx/net.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "../check.hpp"
#include "../timeline.hpp"
#include "interleaved.hpp"
#include "schedule.hpp"
#include "stage.hpp"
#include "wires.hpp"

namespace {

using namespace pipelined;

struct result {
    numbers weights;
    int most_alive = 0;
    double idle = 1;                       // the least of all steps
    std::vector<example::events> timeline; // of that step
    std::uint64_t bytes = 0;               // sent by all ranks in a step
};

// Runs one step. Returns the most activations that were alive at once.
int pass(const run_of& r, int step, int rank, const order& o, stage& mine, wire& by, example::stopwatch& watch) {
    struct alive {
        numbers x, y;
    };
    std::map<int, alive> kept;
    std::size_t most = 0;
    const bool is_first = rank == 0, is_last = rank == r.p - 1;
    for (const operation& op : o) {
        const int k = op.micro;
        const double units = op.what == 'F' ? forward_time : backward_time;
        const numbers in = op.what == 'F' ? is_first ? samples_of(step, k, r.samples) : by.take(rank - 1, k, r.size())
                           : is_last ? loss_gradient(samples_of(step, k, r.samples), kept[k].y)
                                          : by.take(rank + 1, k, r.size());
        numbers out;
        watch.during(op.what, k, [&] {
            example::work_for(units * r.ms, [&] {
                out = op.what == 'F' ? mine.forward(in) : mine.backward(kept[k].x, kept[k].y, in);
            });
        });
        if (op.what == 'F') kept[k] = {in, out};
        else kept.erase(k);
        most = std::max(most, kept.size());
        if (op.what == 'F' && !is_last) by.give(rank + 1, k, out);
        if (op.what == 'B' && !is_first) by.give(rank - 1, k, out);
    }
    by.finish();
    mine.descend();
    return static_cast<int>(most);
}

result train(collx::communicator& world, const run_of& r, const order& o, wire&& by) {
    stage mine(world.rank());
    result made;
    for (int step = 0; step < r.steps; ++step) {
        example::stopwatch watch(world);
        made.most_alive = std::max(made.most_alive, pass(r, step, world.rank(), o, mine, by, watch));
        auto all = example::all_of(world, watch.seen);
        if (const double idle = example::idle_share(all); idle < made.idle) {
            made.idle = idle;
            made.timeline = all;
        }
    }
    made.weights = mine.weights;
    made.bytes = by.given_bytes() / static_cast<std::uint64_t>(r.steps);
    collx::all_reduce(world, collx::value(made.bytes));
    return made;
}

// The order of what the ranks did, without the times.
std::vector<order> orders_of(const std::vector<example::events>& timeline) {
    std::vector<order> of(timeline.size());
    for (std::size_t r = 0; r < of.size(); ++r)
        for (const example::event& e : timeline[r]) of[r].push_back({e.mark, e.number});
    return of;
}

void judge(collx::communicator& world, const run_of& r, const char* name, const order& mine, const result& made,
           int alive) {
    const double formula = (r.p - 1.0) / (r.m + r.p - 1),
                 by_order = example::idle_share(replay(orders_of(made.timeline)));
    const auto bytes =
        2 * static_cast<std::uint64_t>(r.p - 1) * static_cast<std::uint64_t>(r.m) * r.size() * sizeof(double);
    example::expect(made.weights ==
                        serial(r.p, r.steps, r.m, r.samples)[static_cast<std::size_t>(world.rank())].weights,
                    "the weights of the serial program");
    example::expect(std::abs(by_order - formula) < 1e-9, "the bubble of the order is that of the formula");
    example::expect(made.most_alive == most_alive(mine), "activations alive at once are those of the order");
    example::expect(made.bytes == bytes, "each activation and each gradient goes once");
    // Times of a busy machine prove nothing, so only the long form checks them.
    if (!example::is_short())
        example::expect(std::abs(made.idle - formula) <= 0.1 * formula, "the measured bubble is within 10 %");
    int most = made.most_alive;
    collx::all_reduce(world, collx::value(most), collx::max{});
    example::expect(most == alive, "as many activations alive as the formula says");
    if (world.rank() != 0) return;
    std::printf(
        "\n%-18s bubble %5.1f %%, by the order %5.1f %%, (p-1)/(m+p-1) = %5.1f %%; %d activations alive; %llu bytes, "
        "2(p-1) m a = %llu\n",
        name, 100 * made.idle, 100 * by_order, 100 * formula, most, static_cast<unsigned long long>(made.bytes),
        static_cast<unsigned long long>(bytes));
    example::draw(made.timeline);
}

// Exercise 3: shows what happens to 1F1B if each send waits until its message is received.
void try_waiting_sends(collx::communicator& world, const run_of& r) {
    run_of large = r;
    // 128 KiB: no channel buffers it
    large.samples = 1024;
    large.ms = 0;
    collx::communicator own = world.dup(); // the error ends this communicator, not world
    own.set_timeout(std::chrono::milliseconds(500));
    int failed = 0;
    try {
        stage mine(world.rank());
        example::stopwatch watch(world);
        by_waiting_messages by(own);
        pass(large, 0, world.rank(), one_forward_one_backward(world.rank(), r.p, r.m), mine, by, watch);
    } catch (const collx::error& e) {
        failed = 1;
        if (world.rank() == 0) std::printf("\nSends that wait (exercise 3): %s\n", e.what());
    }
    collx::all_reduce(world, collx::value(failed));
    if (world.rank() == 0) std::printf("%d of %d ranks failed\n", failed, r.p);
    const bool can_share = collx::window<char>(world, 0).is_shared(r.p - 2); // the stage before the last, which waits
    // A single micro-batch goes one way, then the other: no stage sends while its successor sends.
    const int expected = r.m > 1 ? r.p : 0;
    if (world.rank() == r.p - 1 && can_share) example::expect(failed == expected, "sends that wait end in an error");
}

void refuse(int rank, int p, int batch) {
    const auto is_refused = [&](auto&& f) {
        try {
            f();
        } catch (const collx::invalid_argument& e) {
            if (rank == 0) std::printf("\nRefused: %s\n", e.what());
            return true;
        }
        return false;
    };
    example::expect(is_refused([&] { samples_of_micro_batch(rank, batch, batch - 1); }),
                    "a batch that does not divide");
    example::expect(is_refused([&] { require_turns(rank, p, p + 1); }), "micro-batches that do not go p at a time");
    const order backward_first{{'B', 0}, {'F', 0}};
    example::expect(is_refused([&] { replay({gpipe(1), backward_first}); }), "stages that wait for each other");
}

void run(collx::communicator& world, int m) {
    const int p = world.size(), me = world.rank(), batch = 8 * p;
    if (m == 0) m = 2 * p;
    const run_of r{.p = p,
                   .m = m,
                   .samples = samples_of_micro_batch(me, batch, m),
                   .steps = example::is_short() ? 2 : 5,
                   .ms = example::is_short() ? 1.0 : 10.0};
    const order all_first = gpipe(m), in_turn = one_forward_one_backward(me, p, m);
    if (me == 0) std::printf("%d stages, %d micro-batches of %d samples\n", p, m, r.samples);
    judge(world, r, "GPipe", all_first, train(world, r, all_first, by_messages(world)), m);
    judge(world, r, "1F1B", in_turn, train(world, r, in_turn, by_messages(world)), std::min(p, m));
    judge(world, r, "1F1B, a window", in_turn, train(world, r, in_turn, by_puts(world, p, r.size())), std::min(p, m));
    for (int v = 1; v <= 3 && m % p == 0; ++v) train_interleaved(world, r, v);
    try_waiting_sends(world, r);
    refuse(me, p, batch);
}

} // namespace

int main(int argc, char** argv) try {
    const int m = example::number(argc, argv, 1, 0, 10'000);
    collx::communicator world;
    if (world.size() > 1) run(world, m);
    else collx::run_threads(4, [m](collx::communicator& ranks) { run(ranks, m); }); // alone: four threads
    return example::result();
} catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
