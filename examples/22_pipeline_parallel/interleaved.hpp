// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Exercise 4: each rank has v chunks of layers. Chunk c of rank r is number c p + r of the network. The output of the
// last rank continues in the next chunk of the first rank. The orders are those of schedule.hpp.
#pragma once

#include <collx/collx.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <deque>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "../check.hpp"
#include "../timeline.hpp"
#include "schedule.hpp"
#include "stage.hpp"

namespace pipelined {

struct run_of {
    int p, m, samples, steps;
    double ms;                                                                     // of a unit of work
    std::size_t size() const { return static_cast<std::size_t>(samples) * width; } // of an activation
};

// [doc:two_ways]
// With two ranks an activation and a gradient go to the same peer, in no fixed order, so each direction has its own
// communicator. A wait in one direction also moves the sends of the other on: channels hold only a few messages, and
// the peer may be waiting for the next one.
class two_ways {
public:
    explicit two_ways(collx::communicator& world) : on_(world), back_(world) {}
    void give(bool is_gradient, int peer, const numbers& x) {
        way& w = is_gradient ? back_ : on_;
        w.kept.push_back(x);
        w.under_way.push_back(collx::async::send(w.own, w.kept.back(), peer));
    }
    numbers take(bool is_gradient, int peer, std::size_t size) {
        way& w = is_gradient ? back_ : on_;
        numbers x(size);
        auto come = collx::async::recv(w.own, x, peer);
        wait_for(come, is_gradient ? on_ : back_);
        return x;
    }
    void finish() {
        for (way* w : {&on_, &back_}) {
            for (auto& sent : w->under_way) wait_for(sent, w == &on_ ? back_ : on_);
            w->under_way.clear();
            w->kept.clear();
        }
    }
    std::uint64_t given_bytes() const { return on_.given_bytes() + back_.given_bytes(); }

private:
    struct way {
        explicit way(collx::communicator& world) : own(world.dup()), before(own.sent().bytes) {}
        std::uint64_t given_bytes() const { return own.sent().bytes - before; }
        collx::communicator own; // its statistics count these messages only
        const std::uint64_t before;
        std::deque<numbers> kept;
        std::deque<collx::work<void>> under_way;
    };
    static void wait_for(collx::work<void>& it, way& other) {
        while (!it.test()) {
            other.own.progress();
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
    }
    way on_, back_;
};
// [doc:end]

// Runs one step of a rank. Returns the most activations that were alive at once.
inline int pass(const run_of& r, int step, int rank, const order& o, std::vector<stage>& chunks, two_ways& by,
                example::stopwatch& watch) {
    const int v = static_cast<int>(chunks.size()), next = (rank + 1) % r.p, before = (rank + r.p - 1) % r.p;
    std::map<std::pair<int, int>, std::pair<numbers, numbers>> kept; // (chunk, micro-batch) -> what came, what left
    std::size_t most = 0;
    for (const operation& op : o) {
        const int k = op.micro, place = op.chunk * r.p + rank;
        const bool is_first = place == 0, is_last = place == v * r.p - 1, is_on = op.what == 'F';
        const std::pair<int, int> which{op.chunk, k};
        stage& mine = chunks[static_cast<std::size_t>(op.chunk)];
        const numbers in = is_on     ? is_first ? samples_of(step, k, r.samples) : by.take(false, before, r.size())
                               : is_last ? loss_gradient(samples_of(step, k, r.samples), kept[which].second)
                                     : by.take(true, next, r.size());
        numbers out;
        watch.during(op.what, k, [&] {
            example::work_for((is_on ? forward_time : backward_time) * r.ms / v, [&] {
                out = is_on ? mine.forward(in) : mine.backward(kept[which].first, kept[which].second, in);
            });
        });
        if (is_on) kept[which] = {in, out};
        else kept.erase(which);
        most = std::max(most, kept.size());
        if (is_on && !is_last) by.give(false, next, out);
        if (!is_on && !is_first) by.give(true, before, out);
    }
    by.finish();
    for (stage& c : chunks) c.descend();
    return static_cast<int>(most);
}

// Requires that micro-batches can go through a chunk p at a time. Errors: invalid_argument.
inline void require_turns(int rank, int p, int m) {
    if (m % p != 0)
        collx::fail(collx::errc::invalid_argument, rank, -1, "take a multiple of the ranks",
                    "%d micro-batches do not go through the chunks of %d ranks", m, p);
}

inline void train_interleaved(collx::communicator& world, const run_of& r, int v) {
    require_turns(world.rank(), r.p, r.m);
    const int me = world.rank();
    std::vector<order> of;
    for (int rank = 0; rank < r.p; ++rank) of.push_back(interleaved(rank, r.p, r.m, v));
    const double by_order = example::idle_share(replay(of, v)), formula = (r.p - 1.0) / (v * r.m);
    std::vector<stage> chunks;
    for (int c = 0; c < v; ++c) chunks.emplace_back(c * r.p + me);
    two_ways by(world);
    double idle = 1;
    std::vector<example::events> timeline;
    const order& mine = of[static_cast<std::size_t>(me)];
    for (int step = 0; step < r.steps; ++step) {
        example::stopwatch watch(world);
        const int alive = pass(r, step, me, mine, chunks, by, watch);
        example::expect(alive == most_alive(mine), "activations alive at once are those of the order");
        const auto all = example::all_of(world, watch.seen);
        if (const double now = example::idle_share(all); now < idle) {
            idle = now;
            timeline = all;
        }
    }
    std::uint64_t given = by.given_bytes() / static_cast<std::uint64_t>(r.steps);
    collx::all_reduce(world, collx::value(given));
    const auto bytes = 2 * static_cast<std::uint64_t>((v * r.p - 1) * r.m) * r.size() * sizeof(double);
    const std::vector<stage> all = serial(v * r.p, r.steps, r.m, r.samples);
    for (int c = 0; c < v; ++c)
        example::expect(chunks[static_cast<std::size_t>(c)].weights ==
                            all[static_cast<std::size_t>(c * r.p + me)].weights,
                        "the weights of the serial program of v p stages");
    example::expect(given == bytes, "each activation and each gradient goes once over each border of chunks");
    example::expect(std::abs(by_order / (1 - by_order) - formula) < 1e-9, "interleaving divides the bubble by v");
    if (!example::is_short() && v <= 2) // a pass gets v times shorter, a message does not
        example::expect(std::abs(idle / (1 - idle) - formula) <= 0.1 * formula + 0.02, "the measured bubble");
    if (me != 0) return;
    std::printf("\ninterleaved, v = %d: idle/work %.4f, by the order %.4f, (p-1)/(v m) = %.4f; %d activations alive; "
                "%llu bytes, 2(v p-1) m a = %llu\n",
                v, idle / (1 - idle), by_order / (1 - by_order), formula, most_alive(mine),
                static_cast<unsigned long long>(given), static_cast<unsigned long long>(bytes));
    if (v == 2) example::draw(timeline);
}

} // namespace pipelined
