// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Data x tensor x pipeline: n ranks as a grid of three axes, each with its own communicators, made by split(). The
// bytes of each axis and the hosts of the ranks decide which axis stays inside a host. Runs the best placement and the
// worst one. Counts the bytes between hosts beside the prediction, and compares weights with the serial program.
// `24_three_axes S` uses micro-batches of S samples. docs/lessons/24_three_axes.md has the formulas.
// collx-example: everywhere timeout=60
#include <collx/collx.hpp>
#include <collx/net.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "../check.hpp"
#include "../timeline.hpp"
#include "grid.hpp"
#include "links.hpp"

namespace {

using namespace three_axes;

// Where the number of ranks does not divide a sum's elements, parts are rounded.
bool is_near(std::uint64_t bytes, double formula) {
    return std::abs(static_cast<double>(bytes) - formula) <= 0.01 * formula;
}

// Counted over all ranks, per step.
struct counted {
    std::array<std::uint64_t, 3> of_axis{};
    std::uint64_t between_hosts = 0;
};

counted count(collx::communicator& world, const grid& g, const std::vector<int>& host, int steps) {
    std::array<std::uint64_t, 4> bytes{};
    const auto me = static_cast<std::size_t>(world.rank());
    for (const axis a : {tensor, pipeline, data})
        for (int peer = 0; peer < g.place.size[a]; ++peer) {
            const std::uint64_t sent = g.lines[a].bytes_to(peer);
            bytes[a] += sent;
            if (host[static_cast<std::size_t>(g.place.along(a, world.rank(), peer))] != host[me]) bytes[3] += sent;
        }
    collx::all_reduce(world, bytes);
    for (auto& b : bytes) b /= static_cast<std::uint64_t>(steps);
    return {{bytes[0], bytes[1], bytes[2]}, bytes[3]};
}

void draw(const placement& p, const std::vector<int>& host, const std::vector<example::events>& all) {
    std::printf(
        "F, B: forward, backward; T: sum over tensor; D: sum over data. A host has the number of its first rank.\n");
    for (std::size_t r = 0; r < all.size(); ++r) {
        const by_axis at = p.places_of(static_cast<int>(r));
        std::printf("rank %zu host %d: t%d p%d d%d |%s|\n", r, host[r], at[tensor], at[pipeline], at[data],
                    example::line_of(all[r], example::end_of(all)).c_str());
    }
}

// Returns the bytes between hosts, per step.
std::uint64_t train(collx::communicator& world, const job& j, const placement& p, const std::vector<int>& host,
                    bool draws) {
    grid g(world, p);
    std::vector<example::events> timeline; // of the shortest step
    for (int step = 0; step < j.steps; ++step) {
        example::stopwatch watch(world);
        g.step(j, step, watch);
        auto all = example::all_of(world, watch.seen);
        if (timeline.empty() || example::end_of(all) < example::end_of(timeline)) timeline = all;
    }
    const block whole = serial(j.size[pipeline], j.size[data], j.steps, j.micro_batches,
                               j.samples)[static_cast<std::size_t>(g.at[pipeline])];
    double worst = g.mine.distance(whole, g.at[tensor]);
    example::expect(worst < 1e-12, "the weights of the serial program");
    collx::all_reduce(world, collx::value(worst), collx::max{});

    const counted c = count(world, g, host, j.steps);
    const double predicted = p.between_hosts(host, j.sends());
    example::expect(is_near(c.between_hosts, predicted), "as many bytes between hosts as predicted");
    for (const axis a : {tensor, pipeline, data}) {
        double formula = 0;
        for (int r = 0; r < world.size(); ++r) formula += j.sends().of_rank(a, j.size, p.places_of(r)[a]);
        example::expect(is_near(c.of_axis[a], formula), "the bytes of an axis are those of the formula");
        if (world.rank() == 0 && draws) {
            explain(world, g, a, host, j);
            std::printf("          all ranks: %llu bytes, formula %.0f\n",
                        static_cast<unsigned long long>(c.of_axis[a]), formula);
        }
    }
    if (world.rank() != 0) return c.between_hosts;
    std::printf("%s, from inside: %llu bytes between hosts, predicted %.0f; weights differ by %.0e\n", p.text().c_str(),
                static_cast<unsigned long long>(c.between_hosts), predicted, worst);
    if (draws) draw(p, host, timeline);
    return c.between_hosts;
}

void run(collx::communicator& job_ranks, int samples) {
    collx::communicator world = neighbours_together(job_ranks);
    const std::vector<int> host = hosts_of(world);

    job j{.size = axes_of(world.size()), .samples = samples > 0 ? samples : 16};
    if (!example::is_short()) {
        j.steps = 5;
        j.ms = 4;
    }
    const std::vector<placement> all = placements(j.size, host, j.sends());
    if (world.rank() == 0) {
        std::printf("%d ranks = %d tensor x %d pipeline x %d data; bytes of all ranks between hosts, by which axis is "
                    "inside:\n",
                    world.size(), j.size[tensor], j.size[pipeline], j.size[data]);
        for (const placement& p : all)
            std::printf("  %-24s %9.0f\n", p.text().c_str(), p.between_hosts(host, j.sends()));
    }
    const std::uint64_t best = train(world, j, all.front(), host, true);
    if (world.rank() == 0) std::printf("\nThe worst for comparison:\n");
    const std::uint64_t worst = train(world, j, all.back(), host, false);
    example::expect(best <= worst, "the best placement sends no more between hosts than the worst");
}

} // namespace

int main(int argc, char** argv) try {
    const int samples = example::number(argc, argv, 1, 0, 1'000'000);
    collx::communicator world;
    if (world.size() > 1) {
        run(world, samples);
    } else { // alone: eight threads that act as two hosts
        collx::run_threads({0, 0, 0, 0, 1, 1, 1, 1}, [samples](collx::communicator& ranks) { run(ranks, samples); });
        place_on_dgx_1v();
    }
    return example::result();
} catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
