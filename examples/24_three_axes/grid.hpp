// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ranks as a grid of three axes with a communicator for each, and a training step on it: micro-batches go through
// the stages (pipeline), the second product of a block is summed (tensor), gradients are summed at the end (data).
#pragma once

#include <collx/algo/ring.hpp>
#include <collx/collx.hpp>

#include <deque>
#include <map>

#include "../22_pipeline_parallel/schedule.hpp"
#include "block.hpp"
#include "placement.hpp"

namespace three_axes {

struct job {
    by_axis size{};
    int micro_batches = 8, samples = 16, steps = 2;
    double ms = 1; // of a forward pass of a stage
    double bytes() const { return static_cast<double>(samples) * width * sizeof(double); } // of an activation
    traffic sends() const {
        const auto all = [](int n, double bytes) { return 2 * (n - 1) * bytes / n; }; // of an all_reduce, per rank
        return {{2 * micro_batches * all(size[tensor], bytes()), micro_batches * bytes(),
                 all(size[data], 2.0 * width * all_hidden / size[tensor] * sizeof(double))}};
    }
};

// Ranks that differ on one axis only.
class line {
public:
    line(collx::communicator& world, const placement& p, axis a) : comm(world.split(p.along(a, world.rank(), 0))) {
        comm.set_checked(false); // so that only data is counted
        for (int r = 0; r < comm.size(); ++r) before_.push_back(comm.sent_to(r).bytes);
    }
    std::uint64_t bytes_to(int r) const { return comm.sent_to(r).bytes - before_[static_cast<std::size_t>(r)]; }
    // Uses rings, because their bytes match the formula for any number of ranks.
    void add_up(numbers& x) { collx::all_reduce(comm.with(collx::algo::ring_all_reduce{}), x); }
    collx::communicator comm;

private:
    std::vector<std::uint64_t> before_;
};

class grid {
public:
    // [doc:split]
    // Ranks with the same places on the other two axes have the same colour: the rank among them at place 0.
    grid(collx::communicator& world, const placement& p)
        : place(p),
          at(p.places_of(world.rank())), lines{line(world, p, tensor), line(world, p, pipeline), line(world, p, data)},
          mine(at[pipeline], at[tensor], p.size[tensor]) {}
    // [doc:end]

    void step(const job& j, int number, example::stopwatch& watch) {
        const int stages = place.size[pipeline], stage = at[pipeline];
        std::map<int, alive> kept;
        for (const auto& op : pipelined::one_forward_one_backward(stage, stages, j.micro_batches)) {
            const numbers samples = samples_of(number, at[data], op.micro, j.samples);
            if (op.what == 'F') {
                alive& a = kept[op.micro];
                a.x = stage == 0 ? samples : take(stage - 1, samples.size());
                a.y = forward(j, op.micro, a, watch);
                if (stage + 1 < stages) give(stage + 1, a.y);
            } else {
                const alive& a = kept[op.micro];
                const numbers d = stage + 1 == stages ? loss_gradient(samples, a.y) : take(stage + 1, samples.size());
                const numbers before = backward(j, op.micro, a, d, watch);
                if (stage > 0) give(stage - 1, before);
                kept.erase(op.micro);
            }
        }
        for (auto& w : under_way_) w.wait();
        under_way_.clear();
        sent_.clear();
        watch.during('D', -1, [&] { lines[data].add_up(mine.gradient); });
        mine.descend();
    }

    placement place;
    by_axis at;
    std::array<line, 3> lines;
    block mine;

private:
    struct alive {
        numbers x, hidden, y;
    };
    // [doc:step]
    // The two products of a block, and the sum over the ranks that hold parts of it.
    numbers forward(const job& j, int k, alive& a, example::stopwatch& watch) {
        numbers part;
        watch.during('F', k, [&] { example::work_for(j.ms, [&] { part = mine.forward(a.x, a.hidden); }); });
        watch.during('T', -1, [&] { lines[tensor].add_up(part); });
        return added(a.x, part);
    }
    // [doc:end]
    numbers backward(const job& j, int k, const alive& a, const numbers& d, example::stopwatch& watch) {
        numbers part;
        watch.during('B', k, [&] { example::work_for(2 * j.ms, [&] { part = mine.backward(a.x, a.hidden, d); }); });
        watch.during('T', -1, [&] { lines[tensor].add_up(part); });
        return added(d, part);
    }
    void give(int stage, const numbers& x) {
        sent_.push_back(x);
        under_way_.push_back(collx::async::send(lines[pipeline].comm, sent_.back(), stage));
    }
    numbers take(int stage, std::size_t size) {
        numbers x(size);
        collx::recv(lines[pipeline].comm, x, stage);
        return x;
    }
    std::deque<numbers> sent_; // kept until the end of the step
    std::vector<collx::work<void>> under_way_;
};

} // namespace three_axes
