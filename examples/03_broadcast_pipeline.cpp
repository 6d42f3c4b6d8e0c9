// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Pipelines a broadcast. K ranks stand in a line and pass on N bytes over wires of B bytes a second. If each rank
// stores the whole message before it forwards it, this takes (K - 1) N / B. If the message is cut into S pieces, the
// first piece is at the end while the last is still at the start: (S + K - 2) N / (S B). Simulated wires with a set
// rate carry both variants, so that the formulas can be checked on two cores. Then the library's chain runs as fast as
// memory allows. Explained in docs/lessons/03_broadcast_pipeline.md.
// collx-example: everywhere timeout=60
// Next: let 7 ranks of a tree do the same (collx/algo/double_tree.hpp).
#include <collx/algo/chain.hpp>
#include <collx/collx.hpp>
#include <collx/net.hpp>
#include <collx/sched/facts.hpp>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "draw.hpp"
#include "timeline.hpp"

namespace {

using example::events;
using example::say;
using bytes = std::vector<unsigned char>;

// [doc:wire]
// The wire from the rank on the left. A message takes a latency plus bytes / rate; messages go one after the other.
struct wire {
    double latency_ms, bytes_per_ms;
    double time_ms(std::size_t n) const { return latency_ms + static_cast<double>(n) / bytes_per_ms; }
    void carry(std::size_t n) const {
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(time_ms(n)));
    }
};

// This rank's part in a broadcast from rank 0. With one piece, each rank stores and forwards.
events pass_on(collx::communicator& world, std::span<unsigned char> message, int pieces, const wire& left) {
    const int me = world.rank(), last = world.size() - 1;
    const std::size_t each = message.size() / static_cast<std::size_t>(pieces);
    events seen;
    const example::stopwatch now;
    for (int s = 0; s < pieces; ++s) {
        const std::size_t at = static_cast<std::size_t>(s) * each; // the last piece takes the rest
        const auto piece = message.subspan(at, s + 1 < pieces ? each : message.size() - at);
        const double from_ms = now.ms();
        if (me > 0) {
            collx::recv(world, piece, me - 1);
            const double begins_ms = s == 0 ? now.ms() : from_ms; // later pieces wait at the other end of the wire
            left.carry(piece.size());
            seen.push_back({begins_ms, now.ms(), static_cast<char>('0' + s % 10)});
        }
        if (me < last) collx::send(world, piece, me + 1);
    }
    return seen;
}
// [doc:end]

struct formulas { // K nodes and S pieces as in the source, plus a latency for each message
    int nodes;
    wire link;
    double naive_ms(std::size_t n) const { return (nodes - 1) * link.time_ms(n); }
    double pipelined_ms(std::size_t n, int s) const {
        return (s + nodes - 2) * link.time_ms(n / static_cast<std::size_t>(s));
    }
    // The size at which both take equally long: N / B = S latencies / (K - 2).
    double crossover_bytes(int s) const { return s * link.latency_ms * link.bytes_per_ms / (nodes - 2); }
    double best_pieces(std::size_t n) const {
        return std::max(1.0, std::sqrt((nodes - 2) * static_cast<double>(n) / link.bytes_per_ms / link.latency_ms));
    }
};

// Runs and checks the broadcast. Returns the time of the last rank, measured from before all ranks have arrived.
double broadcast_ms(collx::communicator& world, std::size_t n, int pieces, const formulas& f, bool draws = false) {
    bytes root(n), message(n);
    for (std::size_t i = 0; i < n; ++i) root[i] = static_cast<unsigned char>(i * 31 + i / 251);
    if (world.rank() == 0) message = root;
    collx::barrier(world);
    const example::stopwatch watch;
    collx::barrier(world); // the last rank measures from before this barrier, rank 0 sends only after it
    const std::uint64_t before = world.sent().bytes;
    const auto seen = pass_on(world, message, pieces, f.link);
    std::uint64_t sent = world.sent().bytes - before;
    double ms = world.rank() == world.size() - 1 ? watch.ms() : 0;
    collx::all_reduce(world, collx::value(ms));
    collx::all_reduce(world, collx::value(sent));
    example::expect(message == root, "the root's bytes everywhere");
    example::expect(sent == n * static_cast<std::size_t>(world.size() - 1), "each of K - 1 wires carries N bytes");
    example::expect(ms >= 0.999 * f.pipelined_ms(n, pieces), "no broadcast is faster than its wires");
    if (draws) example::draw_with_waits(world, seen);
    return ms;
}

void by_pieces(collx::communicator& world, const formulas& f, std::size_t n) {
    say(world, "\n%zu KiB, cut into S pieces\n%8s %9s %12s %12s\n", n / 1024, "S", "messages", "measured ms",
        "formula ms");
    std::vector<std::string> labels;
    std::vector<double> measured, formula;
    for (int s = 1; s <= (example::is_short() ? 16 : 64); s *= 2) {
        measured.push_back(broadcast_ms(world, n, s, f));
        formula.push_back(f.pipelined_ms(n, s));
        labels.push_back(std::to_string(s));
        say(world, "%8d %9d %12.1f %12.1f\n", s, s * (f.nodes - 1), measured.back(), formula.back());
    }
    if (world.rank() == 0)
        example::print_curves(labels, {{'.', formula}, {'o', measured}}, "S  (o measured, . formula)");
    const double best = f.best_pieces(n);
    for (const double ms : formula)
        example::expect(f.pipelined_ms(n, static_cast<int>(std::lround(best))) <= 1.001 * ms, "no S is better");
    say(world, "best S by the formula: %.1f\n", best);
}

void by_size(collx::communicator& world, const formulas& f, int pieces) {
    say(world, "\nStored and forwarded (#) against S = %d pieces (o)\n", pieces);
    std::vector<std::string> labels;
    std::vector<double> naive, cut, naive_formula, cut_formula;
    for (std::size_t kib = 2; kib <= (example::is_short() ? 64 : 256); kib *= 2) {
        naive.push_back(broadcast_ms(world, kib * 1024, 1, f));
        naive_formula.push_back(f.naive_ms(kib * 1024));
        cut.push_back(broadcast_ms(world, kib * 1024, pieces, f));
        cut_formula.push_back(f.pipelined_ms(kib * 1024, pieces));
        labels.push_back(std::to_string(kib));
    }
    if (world.rank() == 0)
        example::print_curves(labels, {{'.', naive_formula}, {'.', cut_formula}, {'#', naive}, {'o', cut}}, "N, KiB");
    if (f.nodes == 2) return say(world, "with two nodes there is nothing to overlap: pieces only add latencies\n");
    const auto crossing = static_cast<std::size_t>(f.crossover_bytes(pieces));
    example::expect(std::abs(f.naive_ms(crossing) / f.pipelined_ms(crossing, pieces) - 1) < 1e-3, "both take as long");
    say(world, "they cross at N = S latency B / (K - 2) = %.1f KiB\n", f.crossover_bytes(pieces) / 1024);
}

// Runs the library's chain over the transport between these ranks, at full speed. Cores do the copying, and K ranks
// share the cores of the machine.
void at_full_speed(collx::communicator& world) {
    std::vector<float> x((example::is_short() ? 512 : 4096) * 256);
    say(world, "\ncollx::algo::chain_broadcast, %zu KiB, no wire in between\n%8s %8s %12s\n", x.size() / 256, "S",
        "rounds", "best us");
    for (const int s : {1, 4, 16, 64}) {
        const collx::algo::chain_broadcast chain{.chunk_count = s};
        const auto facts = collx::sched::facts_of(chain, world.size());
        example::expect(facts.ok && facts.rounds == s + world.size() - 2, "S + K - 2 rounds");
        double best_us = 1e12;
        for (int i = 0; i < (example::is_short() ? 3 : 30); ++i) {
            std::fill(x.begin(), x.end(), world.rank() == 0 ? static_cast<float>(s + i) : 0.0f);
            collx::barrier(world);
            const example::stopwatch watch;
            collx::broadcast(world.with(chain), x, {.root = 0});
            collx::barrier(world);
            best_us = std::min(best_us, 1000 * watch.ms());
            example::expect(std::count(x.begin(), x.end(), static_cast<float>(s + i)) == std::ssize(x),
                            "the root's data");
        }
        say(world, "%8d %8d %12.0f\n", s, facts.rounds, best_us);
    }
}

void run(collx::communicator& world) {
    const double latency_ms = example::is_short() ? 0.25 : 1;
    const formulas f{world.size(), {latency_ms, 8192 / latency_ms}};
    const std::size_t n = 192 * 1024;
    say(world, "K = %d nodes, wires of %.0f KiB/ms and %.2f ms a message\n", f.nodes, f.link.bytes_per_ms / 1024,
        latency_ms);
    say(world, "\nwhich piece is on the wire to each rank: stored and forwarded\n");
    broadcast_ms(world, n, 1, f, true);
    say(world, "in 6 pieces\n");
    broadcast_ms(world, n, 6, f, true);
    by_pieces(world, f, n * 4 / 3);
    by_size(world, f, 8);
    at_full_speed(world);
}

} // namespace

int main() {
    collx::communicator world;
    if (world.size() > 1) run(world);
    else collx::run_threads(4, run); // alone: four threads
    return example::result();
}
