// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trains a mixture of experts. Each rank has two experts. A gate, which all ranks have, sends each token to one of
// them. Tokens beyond an expert's capacity are dropped. A step has two exchanges forward, two backward, and a sum for
// what all ranks have. Tokens are letters of a text. Without a loss for balance a few experts get most of the tokens;
// with it all get about as many. Both end with the serial program's weights, to the bit. Next:
// docs/lessons/25_experts.md.
// collx-example: everywhere timeout=60
#include <collx/collx.hpp>
#include <collx/net.hpp>

#include <numeric>
#include <string>

#include "../draw.hpp"
#include "rank.hpp"

namespace {

using namespace lesson;
using example::say;
constexpr double capacity_factor = 1.25;

// Draws how many tokens of all ranks ask each expert: # taken, x dropped, one mark for four. Returns the loss.
double draw(rank_program& p, const char* when) {
    counts taken(p.asked.size());
    for (const token& t : p.tokens) taken[t.expert] += t.is_kept ? 1 : 0;
    collx::all_reduce(p.world, taken);
    const auto busiest = std::max_element(p.asked.begin(), p.asked.end());
    const int all = static_cast<int>(p.set.tokens * p.set.ranks),
              dropped = all - std::accumulate(taken.begin(), taken.end(), 0);
    std::array<double, 2> sums{p.loss, 0}; // of the outputs, and of experts * sum f P
    for (const token& t : p.tokens)
        for (std::size_t e = 0; e < t.p.size(); ++e)
            sums[1] += t.p[e] * balance_gradient(1, p.asked, e, static_cast<std::size_t>(all));
    collx::all_reduce(p.world, sums);
    say(p.world, "%s: loss %.3f, E sum f P %.2f; %d of %d tokens dropped; most are at expert %d, %.1f times the mean\n",
        when, sums[0], sums[1], dropped, all, static_cast<int>(busiest - p.asked.begin()),
        *busiest * static_cast<double>(taken.size()) / all);
    for (std::size_t e = 0; e < taken.size(); ++e)
        say(p.world, "  rank %zu, expert %zu |%s%s %d\n", e / each, e,
            std::string(static_cast<std::size_t>((taken[e] + 2) / 4), '#').c_str(),
            std::string(static_cast<std::size_t>((p.asked[e] - taken[e] + 2) / 4), 'x').c_str(), p.asked[e]);
    return sums[0];
}

bool is_same(const rank_program& p, const serial_program& s) {
    bool same = p.weights.in == s.weights.in && p.weights.gate == s.weights.gate;
    for (std::size_t k = 0; k < each; ++k) {
        const expert& e = s.experts[p.me * each + k];
        same = same && p.experts[k].a == e.a && p.experts[k].b == e.b;
    }
    return same;
}

struct outcome {                         // of the last quarter of the steps, of all ranks
    std::uint64_t dropped = 0, most = 0; // most: asked the busiest expert of each step
};
outcome train(collx::communicator& world, const settings& set, std::size_t steps, bool draws_begin) {
    rank_program p(world, set);
    serial_program alone(set);
    outcome last;
    double loss = 1e9;
    std::uint64_t sent = 0, rows = 0; // of the last step; rows: sent to and received from other ranks
    for (std::size_t s = 0; s < steps; ++s) {
        sent = p.wires.sent().bytes;
        p.step(s);
        alone.step(s);
        sent = p.wires.sent().bytes - sent;
        if (s == 0 && draws_begin) loss = draw(p, "before training");
        if (s < steps - steps / 4) continue;
        last.dropped += set.tokens - p.order.size();
        last.most += static_cast<std::uint64_t>(*std::max_element(p.asked.begin(), p.asked.end()));
    }
    example::expect(is_same(p, alone), "the weights of the serial program, to the bit");
    const char* const how = set.alpha > 0 ? "trained with the loss for balance" : "trained without a loss for balance";
    example::expect(draw(p, how) < loss / 2, "what the text's letters become is learned");
    for (std::size_t k = 0; k < set.ranks; ++k)
        if (k != p.me) rows += static_cast<std::uint64_t>(p.outgoing[k] + p.incoming[k]);
    example::expect(sent == 2 * rows * sizeof(row), "what goes to experts elsewhere twice, and what comes from there");
    std::array<std::uint64_t, 3> sums{sent, 2 * rows * sizeof(row), last.dropped};
    collx::all_reduce(world, sums);
    const double n = world.size(), tokens = static_cast<double>(set.tokens), bytes = sizeof(row),
                 limit = 4 * (n - 1) * each * set.capacity * bytes;
    example::expect(*std::max_element(p.from_rank.begin(), p.from_rank.end()) <= set.capacity, "the capacity holds");
    say(world, "a rank sends %.0f bytes in a step on average, formula %.0f; 4 (n-1)/n T h w = %.0f, capacity %.0f\n\n",
        static_cast<double>(sums[0]) / n, static_cast<double>(sums[1]) / n, 4 * (n - 1) / n * tokens * bytes, limit);
    return {sums[2], last.most};
}

void run(collx::communicator& world) {
    world.set_checked(false); // ranks would compare the arguments of each call, and that would be counted, too
    const example::text text = example::share_text(world, 26, true);
    settings set;
    set.from = &text;
    set.ranks = static_cast<std::size_t>(world.size());
    set.experts = each * set.ranks;
    set.capacity = static_cast<int>(
        std::ceil(capacity_factor * static_cast<double>(set.tokens) / static_cast<double>(set.experts)));
    if (world.rank() == 0) check_by_differences(set);
    say(world, "%s; %d ranks, %zu experts, %zu tokens of %zu numbers a rank; an expert takes %d of a rank\n\n",
        text.name.c_str(), world.size(), set.experts, set.tokens, hidden, set.capacity);
    const std::size_t steps = example::is_short() ? 40 : 600;
    const outcome without = train(world, set, steps, true);
    set.alpha = 0.1;
    const outcome with = train(world, set, steps, false);
    example::expect(with.most < without.most, "the loss for balance makes the busiest experts less busy");
    example::expect(with.dropped < without.dropped, "and fewer tokens are dropped");
}

} // namespace

int main() {
    collx::communicator world;
    if (world.size() > 1) run(world);
    else collx::run_threads(4, run); // alone: four threads
    return example::result();
}
