// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A table that no rank has as a whole: row r is on rank r % n, and each word of a text has a row. A step reads and
// changes only the rows that its batch names. First the ranks train in step, with three exchanges: which rows, the
// rows, their changes. Then each rank trains at its own pace through a window, at most s steps ahead of the slowest.
// With s = 0 the table is that of the serial program; with s = 2 a rank that is slow now and then delays no other.
// Next: docs/lessons/26_sharded_embeddings.md.
// collx-example: everywhere timeout=60
#include <collx/algo/pairwise.hpp>
#include <collx/collx.hpp>
#include <collx/net.hpp>

#include <numeric>

#include "../draw.hpp"
#include "pace.hpp"

namespace {

using namespace lesson;
using example::say;

// ------------------------------------------------------------------------------------------------ in step
struct in_step {
    collx::communicator own; // counts these exchanges only
    const corpus& text;
    layout at = layout_of(own);
    table shard{};
    std::uint64_t formula = 0, distinct = 0;
    std::vector<double> losses{};

    void step(int s) {
        const auto wires = own.with(collx::algo::pairwise_all_to_all{});
        const auto n = static_cast<std::size_t>(own.size());
        double loss = 0;
        // [doc:exchanges]
        const batch b(text, own.rank(), s);
        const std::vector<std::size_t> order = b.by_owner(at); // places in b.rows, owner after owner
        std::vector<int> asks(n), asked(n);
        std::vector<std::uint32_t> ids;
        for (const auto k : order) {
            ids.push_back(b.rows[k]);
            ++asks[static_cast<std::size_t>(at.owner(b.rows[k]))];
        }
        collx::all_to_all(wires, asks, asked);
        std::vector<std::uint32_t> wanted(static_cast<std::size_t>(std::accumulate(asked.begin(), asked.end(), 0)));
        collx::all_to_all_v(wires, ids, asks, wanted, asked); // which rows
        table answers, arrived(ids.size()), changes_here(wanted.size());
        for (const auto w : wanted) answers.push_back(shard[at.place(w)]);
        collx::all_to_all_v(wires, answers, asked, arrived, asks); // the rows
        table now(ids.size()), changes;
        for (std::size_t i = 0; i < order.size(); ++i) now[order[i]] = arrived[i];
        const table by_row = b.changes(now, wires.size(), loss);
        for (const auto k : order) changes.push_back(by_row[k]);
        collx::all_to_all_v(wires, changes, asks, changes_here, asked); // their changes
        for (std::size_t i = 0; i < wanted.size(); ++i) add_to(shard[at.place(wanted[i])], changes_here[i]);
        // [doc:end]
        distinct += ids.size();
        losses.push_back(loss);
        for (std::size_t k = 0; k < n; ++k)
            if (k != at.me)
                formula += sizeof(int) + static_cast<unsigned>(asks[k]) * (sizeof(std::uint32_t) + sizeof(row)) +
                           static_cast<unsigned>(asked[k]) * sizeof(row);
    }
};

void by_exchanges(collx::communicator& world, const corpus& text, int steps) {
    in_step r{world.dup(), text};
    for (std::size_t i = 0; i < r.at.mine(); ++i) r.shard.push_back(begin_row(r.at.word(i)));
    std::uint64_t sent = r.own.sent().bytes; // making the communicator may have sent some
    for (int s = 0; s < steps; ++s) r.step(s);
    sent = r.own.sent().bytes - sent;
    example::expect(sent == r.formula, "4 (n-1) for counts, 4 and a row each way for rows that are elsewhere");
    example::expect(is_same(r.at, r.shard.data(), serial(text, world.size(), steps)),
                    "in step: the table of the serial program");
    const double per = 1.0 / steps, ranks = world.size();
    std::array<double, 3> sums{static_cast<double>(sent), static_cast<double>(r.formula),
                               static_cast<double>(r.distinct)};
    collx::all_reduce(world, sums);
    for (double& x : sums) x *= per / ranks;
    say(world, "in step: %.0f bytes a step and rank, formula %.0f; by the batch's %.1f rows, expected %.1f: %.0f\n",
        sums[0], sums[1], sums[2], expected_rows(text),
        (ranks - 1) / ranks * expected_rows(text) * (4 + 2 * sizeof(row)) + 4 * (ranks - 1));
    collx::all_reduce(world, r.losses, collx::average{});
    const auto mean = [&](auto from) { return std::accumulate(from, from + steps / 4, 0.0) / (steps / 4); };
    const double begin = mean(r.losses.begin()), end = mean(r.losses.end() - steps / 4);
    say(world, "squared error, first quarter of the steps and last: %.3f, %.3f\n", begin, end);
    example::expect(end < begin, "the rows learn which words stand together");
    say(world, "all_reduce of the table's gradient: 2 (n-1)/n V d w = %.0f\n",
        2 * (ranks - 1) / ranks * words * sizeof(row));
    const auto n = static_cast<std::size_t>(world.size());
    const double in_turn = busiest_share(text, n, true), in_blocks = busiest_share(text, n, false);
    example::expect(in_turn < in_blocks, "rows in turn spread the frequent words");
    say(world, "of all words, the busiest rank has %.0f%% (r %% n), in blocks it would have %.0f%%\n", 100 * in_turn,
        100 * in_blocks);
}

void straggle(collx::communicator& world, const corpus& text, int steps, double step_ms) {
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
            worker r{world, text, s};
            r.train(ms[static_cast<std::size_t>(world.rank())]);
            const double through = through_ms(ms, s);
            example::expect(r.ms > 0.999 * through, "not sooner than the formula says");
            say(world, "%-26s %3d %10.2f %10.2f %12d %8.3f\n", who, s, r.ms / steps, through / steps, r.ahead, r.loss);
            if (who[0] == 'e') {
                formula[s / 2] = through;
                example::draw_with_waits(world, r.seen);
            }
        }
    example::expect(formula[1] < formula[0], "ranks that are slow in turn cost less if others may go on");
}

void run(collx::communicator& world) {
    world.set_checked(false); // ranks would compare the arguments of each call, and that would be counted, too
    const bool is_short = example::is_short();
    const corpus text(example::share_text(world, words));
    say(world, "%s; %zu rows of %zu numbers on %d ranks, %d pairs a batch\n", text.text().name.c_str(), words, width,
        world.size(), pairs);
    by_exchanges(world, text, is_short ? 20 : 400);
    straggle(world, text, is_short ? 8 : 24, is_short ? 1 : 4);
}

} // namespace

int main() {
    collx::communicator world;
    if (world.size() > 1) run(world);
    else collx::run_threads(4, run); // alone: four threads
    return example::result();
}
