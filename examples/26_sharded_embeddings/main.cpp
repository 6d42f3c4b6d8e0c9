// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A table that no rank has whole: row r lives on rank r % n. A step reads the rows that its batch names and changes
// these only. First in step, with three exchanges: which rows, the rows, their changes. Then each rank at its own pace
// through a window, but never more than s steps ahead of the slowest: with s = 0 the table of the serial program, with
// s = 2 a rank that is slow now and then holds up no other. Next: docs/lessons/26_sharded_embeddings.md.
// collx-example: everywhere timeout=60
#include <collx/algo/pairwise.hpp>
#include <collx/collx.hpp>
#include <collx/comm/progress.hpp>
#include <collx/comm/window.hpp>
#include <collx/net.hpp>

#include <chrono>
#include <numeric>
#include <string>
#include <thread>

#include "../check.hpp"
#include "../draw.hpp"
#include "../timeline.hpp"
#include "model.hpp"

namespace {

using namespace lesson;
using example::say;

layout layout_of(const collx::communicator& world) {
    return {static_cast<std::uint32_t>(world.size()), static_cast<std::uint32_t>(world.rank())};
}

// ------------------------------------------------------------------------------------------------ in step
struct in_step {
    collx::communicator own; // counts these exchanges only
    layout at = layout_of(own);
    table shard{};
    std::uint64_t formula = 0, distinct = 0;

    void step(int s) {
        const auto wires = own.with(collx::algo::pairwise_all_to_all{});
        const auto n = static_cast<std::size_t>(own.size());
        double loss = 0;
        // [doc:exchanges]
        const batch b(own.rank(), s);
        const std::vector<std::size_t> order = b.by_owner(at); // places in b.rows, owner after owner
        std::vector<int> asks(n), asked(n);
        std::vector<std::uint32_t> ids;
        for (const auto k : order) ids.push_back(b.rows[k]), ++asks[static_cast<std::size_t>(at.owner(b.rows[k]))];
        collx::all_to_all(wires, asks, asked);
        std::vector<std::uint32_t> wanted(static_cast<std::size_t>(std::accumulate(asked.begin(), asked.end(), 0)));
        collx::all_to_all_v(wires, ids, asks, wanted, asked); // which rows
        table answers, arrived(ids.size()), changes_here(wanted.size());
        for (const auto w : wanted) answers.push_back(shard[at.place(w)]);
        collx::all_to_all_v(wires, answers, asked, arrived, asks); // the rows
        table now(ids.size()), changes;
        for (std::size_t i = 0; i < order.size(); ++i) now[order[i]] = arrived[i];
        const table by_row = b.changes(now, loss);
        for (const auto k : order) changes.push_back(by_row[k]);
        collx::all_to_all_v(wires, changes, asks, changes_here, asked); // their changes
        for (std::size_t i = 0; i < wanted.size(); ++i) add_to(shard[at.place(wanted[i])], changes_here[i]);
        // [doc:end]
        distinct += ids.size();
        for (std::size_t k = 0; k < n; ++k)
            if (k != at.me)
                formula += sizeof(int) + static_cast<unsigned>(asks[k]) * (sizeof(std::uint32_t) + sizeof(row)) +
                           static_cast<unsigned>(asked[k]) * sizeof(row);
    }
};

void by_exchanges(collx::communicator& world, int steps) {
    in_step r{world.dup()};
    for (std::size_t i = 0; i < r.at.mine(); ++i) r.shard.push_back(begin_row(r.at.word(i)));
    std::uint64_t sent = r.own.sent().bytes; // making it may have sent some
    for (int s = 0; s < steps; ++s) r.step(s);
    sent = r.own.sent().bytes - sent;
    example::expect(sent == r.formula, "4 (n-1) for counts, 4 and a row each way for rows that are elsewhere");
    example::expect(is_same(r.at, r.shard.data(), serial(world.size(), steps)),
                    "in step: the table of the serial program");
    const double per = 1.0 / steps, ranks = world.size();
    std::array<double, 3> sums{static_cast<double>(sent), static_cast<double>(r.formula),
                               static_cast<double>(r.distinct)};
    collx::all_reduce(world, sums);
    for (double& x : sums) x *= per / ranks;
    say(world, "in step: %.0f bytes a step and rank, formula %.0f; by the batch's %.1f rows, expected %.1f: %.0f\n",
        sums[0], sums[1], sums[2], expected_rows(),
        (ranks - 1) / ranks * expected_rows() * (4 + 2 * sizeof(row)) + 4 * (ranks - 1));
    say(world, "all_reduce of the table's gradient: 2 (n-1)/n V d w = %.0f\n",
        2 * (ranks - 1) / ranks * words * sizeof(row));
    const auto n = static_cast<std::size_t>(world.size());
    const double in_turn = busiest_share(n, true), in_blocks = busiest_share(n, false);
    example::expect(in_turn < in_blocks, "rows in turn spread the frequent words");
    say(world, "of all words, the busiest rank has %.0f%% (r %% n), in blocks it would have %.0f%%\n", 100 * in_turn,
        100 * in_blocks);
}

// ------------------------------------------------------------------------------------------------ at their own pace
struct worker {
    collx::communicator& world;
    int s;
    layout at = layout_of(world);
    int n = world.size(), me = world.rank();
    collx::window<row> rows{world, at.mine()};
    collx::window<int> read{world, 1}, made{world, 1}; // made: the steps of each rank
    table mine{words, row{}};                          // what this rank changed
    example::events seen{};
    example::stopwatch watch{};
    double ms = 0, loss = 0;
    int ahead = 0; // steps, of the slowest, at most

    template <class W>
    void tell(W& window) const {
        for (int k = 0; k < n; ++k)
            if (k != me) window.signal(k);
    }
    template <class W>
    void wait_for_all(W& window) const {
        for (int k = 0; k < n; ++k)
            if (k != me) window.wait(k);
    }
    void step(int t, double device_ms) {
        const double from_ms = watch.ms();
        // [doc:pace]
        if (t > s) wait_for_all(rows); // one signal more of each: all have made t - s steps
        const double begin_ms = watch.ms();
        for (int k = 0; k < n; ++k) ahead = std::max(ahead, t - made.fetch_add(k, 0, 0));
        const batch b(me, t);
        table now; // whole rows: a get() could meet a change half done
        for (const auto w : b.rows) now.push_back(rows.fetch(at.owner(w), at.place(w), row{}, add_rows{}));
        const table changes = b.changes(now, loss);
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(device_ms));
        const double end_ms = watch.ms();
        if (s == 0) tell(read), wait_for_all(read); // in step: no row changes before all have read
        for (std::size_t i = 0; i < changes.size(); ++i)
            rows.accumulate(at.owner(b.rows[i]), at.place(b.rows[i]), changes[i], add_rows{});
        rows.flush(); // a signal to one rank says nothing of changes at another
        made.fetch_add(me, 0, 1);
        tell(rows);
        // [doc:end]
        for (std::size_t i = 0; i < changes.size(); ++i) add_to(mine[b.rows[i]], changes[i]);
        seen.insert(seen.end(), {{from_ms, begin_ms, '.'}, {begin_ms, end_ms, '#'}, {end_ms, watch.ms(), '.'}});
    }
    void train(const std::vector<double>& device_ms) {
        rows.with(collx::progress::thread{}), made.with(collx::progress::thread{}); // serve while the device computes
        for (std::size_t i = 0; i < at.mine(); ++i) rows.local()[i] = begin_row(at.word(i));
        rows.fence();
        watch = {};
        rows.fence();
        for (const double each : device_ms) step(static_cast<int>(seen.size() / 3), each);
        ms = watch.ms();
        rows.fence(), read.fence(), made.fence();
        collx::all_reduce(world, std::span(mine.front().data(), words * width));
        for (std::size_t w = 0; w < words; ++w) add_to(mine[w], begin_row(w));
        example::expect(is_same(at, rows.local().data(), mine), "the table has every change, once");
        if (s == 0)
            example::expect(mine == serial(n, static_cast<int>(device_ms.size())), "s = 0: the serial program's table");
        example::expect(ahead <= s, "no rank is further ahead than it may be");
        collx::all_reduce(world, collx::value(ms), collx::max{});
        collx::all_reduce(world, collx::value(ahead), collx::max{});
        collx::all_reduce(world, collx::value(loss));
        loss /= static_cast<double>(device_ms.size()) * n;
    }
};

void straggle(collx::communicator& world, int steps, double step_ms) {
    const auto n = static_cast<std::size_t>(world.size());
    say(world, "\n%-26s %3s %10s %10s %12s %8s\n", "slow (4 times)", "s", "ms a step", "formula", "steps ahead",
        "loss");
    double formula[2] = {};
    for (const char* who : {"no rank", "each in turn", "the last rank"})
        for (const int s : {0, 2}) {
            std::vector<std::vector<double>> ms(n, std::vector<double>(static_cast<std::size_t>(steps), step_ms));
            for (std::size_t t = 0; t < ms[0].size(); ++t) {
                if (who[0] == 'e') ms[t % n][t] *= 4;
                if (who[0] == 't') ms[n - 1][t] *= 4;
            }
            worker r{world, s};
            r.train(ms[static_cast<std::size_t>(world.rank())]);
            const double through = through_ms(ms, s);
            example::expect(r.ms > 0.999 * through, "not sooner than the formula says");
            say(world, "%-26s %3d %10.2f %10.2f %12d %8.3f\n", who, s, r.ms / steps, through / steps, r.ahead, r.loss);
            if (who[0] == 'e') formula[s / 2] = through, example::draw_with_waits(world, r.seen);
        }
    example::expect(formula[1] < formula[0], "ranks that are slow in turn cost less if others may go on");
}

void run(collx::communicator& world) {
    world.set_checked(false); // ranks would compare the arguments of each call, and that would be counted, too
    const bool is_short = example::is_short();
    say(world, "%zu rows of %zu numbers on %d ranks, %d pairs a batch\n", words, width, world.size(), pairs);
    by_exchanges(world, is_short ? 20 : 400);
    straggle(world, is_short ? 8 : 24, is_short ? 1 : 4);
}

} // namespace

int main() {
    collx::communicator world;
    if (world.size() > 1) run(world);
    else collx::run_threads(4, run); // alone: four threads
    return example::result();
}
