// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A mixture-of-experts layer. A gate sends each token to two of the experts, which are spread over all ranks. Their
// answers come back and are added up. The amounts are not known in advance, so counts travel first. Between hosts, all
// tokens of one host for a rank elsewhere travel as one message. Next: docs/moe.md.
// collx-example: everywhere
#include <collx/algo/aggregated.hpp>
#include <collx/algo/pairwise.hpp>
#include <collx/collx.hpp>
#include <collx/net.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "check.hpp"

namespace {

constexpr int experts_per_rank = 2, choices = 2;
using vector8 = std::array<float, 8>;

struct token { // any struct of plain bytes can travel
    int expert = -1;
    float share = 0; // of this expert in the sum
    vector8 x{};
};

// Stand-ins for trained weights: which experts a token asks, the share of each in the sum, and what each answers.
std::vector<token> gate(const vector8& x, int experts) {
    std::vector<token> asked;
    const int first = static_cast<int>(x[0] * 31 + x[7] * 17) % experts;
    for (int c = 0; c < choices; ++c)
        asked.push_back({(first + c * (1 + experts / 3)) % experts, c == 0 ? 0.75f : 0.25f, x});
    return asked;
}
vector8 ask(int expert, const vector8& x) {
    vector8 y;
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i] * static_cast<float>(expert + 1) + x[(i + 1) % 8];
    return y;
}
void add(vector8& sum, float share, const vector8& y) {
    for (std::size_t i = 0; i < y.size(); ++i) sum[i] += share * y[i];
}

// [doc:tensor]
// The questions of a rank's tokens, stored as the gate wrote them and viewed in the order of the experts. Nothing is
// sorted or packed: collx finds element i through the order, when it sends and when it receives.
struct questions {
    std::vector<token> asked;
    std::vector<std::ptrdiff_t> order; // asked[order[i]] is sent as the i-th element
    struct mapping {
        const std::vector<std::ptrdiff_t>* order;
        std::size_t size() const { return order->size(); }
        std::size_t run() const { return 1; } // elements that are contiguous
        std::ptrdiff_t offset(std::size_t i) const { return (*order)[i]; }
    };
    auto collx_buffer() { return collx::mapped_view(asked.data(), mapping{&order}); }
};
// [doc:end]

questions ask_gate(const std::vector<vector8>& tokens, int experts) {
    questions q;
    for (const auto& x : tokens)
        for (const token& t : gate(x, experts)) q.asked.push_back(t);
    for (std::size_t i = 0; i < q.asked.size(); ++i) q.order.push_back(static_cast<std::ptrdiff_t>(i));
    const auto expert_of = [&](std::ptrdiff_t i) { return q.asked[static_cast<std::size_t>(i)].expert; };
    std::stable_sort(q.order.begin(), q.order.end(), [&](auto a, auto b) { return expert_of(a) < expert_of(b); });
    return q;
}

std::vector<vector8> tokens_of(int rank, std::size_t count) {
    std::vector<vector8> tokens(count);
    for (std::size_t t = 0; t < count; ++t)
        for (std::size_t i = 0; i < 8; ++i)
            tokens[t][i] = static_cast<float>((t * 7 + i * 5 + static_cast<std::size_t>(rank) * 3) % 13) / 8;
    return tokens;
}

// Adds up the answers. Those for token t are in the `choices` places where it asked.
std::vector<vector8> combine(const std::vector<token>& answers) {
    std::vector<vector8> sums(answers.size() / choices, vector8{});
    for (std::size_t i = 0; i < answers.size(); ++i) add(sums[i / choices], answers[i].share, answers[i].x);
    return sums;
}

// The result of one process that has all experts.
std::vector<vector8> serial_layer(const std::vector<vector8>& tokens, int experts) {
    auto asked = ask_gate(tokens, experts).asked;
    for (token& t : asked) t.x = ask(t.expert, t.x);
    return combine(asked);
}

// Which ranks share a host: each rank sends the first rank of its own host.
collx::node_map hosts_of(collx::communicator& world) {
    int first = 0;
    while (world.membership()->place(first) < 0) ++first;
    std::vector<int> host(static_cast<std::size_t>(world.size()));
    collx::all_gather(world, collx::value(first), host);
    return collx::node_map(host);
}

std::uint64_t messages_to_other_hosts(collx::communicator& world, const collx::node_view& hosts) {
    std::uint64_t sum = 0;
    for (int k = 0; k < world.size(); ++k)
        if (hosts.node_of(k) != hosts.node_of(world.rank())) sum += world.sent_to(k).messages;
    return sum;
}

void run(collx::communicator& world) {
    world.set_checked(false); // comparing calls sends messages too, which would be counted below
    const int ranks = world.size(), experts = ranks * experts_per_rank;
    const auto n = static_cast<std::size_t>(ranks);
    const auto tokens = tokens_of(world.rank(), 100 + 10 * static_cast<std::size_t>(world.rank()));
    const collx::node_map hosts = hosts_of(world);

    // [doc:layer]
    auto fabric = world.with(collx::algo::aggregated_all_to_all{hosts});
    questions mine = ask_gate(tokens, experts);
    std::vector<int> outgoing(n), incoming(n); // tokens for and from each rank
    for (const token& t : mine.asked) ++outgoing[static_cast<std::size_t>(t.expert / experts_per_rank)];
    collx::all_to_all(world, outgoing, incoming);

    std::size_t arriving = 0;
    for (const int count : incoming) arriving += static_cast<std::size_t>(count);
    std::vector<token> here(arriving);
    collx::all_to_all_v(fabric, mine, outgoing, here, incoming); // dispatch
    for (token& t : here) t.x = ask(t.expert, t.x);
    collx::all_to_all_v(fabric, here, incoming, mine, outgoing); // each answer returns to the place of its question
    const auto sums = combine(mine.asked);
    // [doc:end]

    example::expect(sums == serial_layer(tokens, experts), "the answers of the serial layer, bit for bit");
    for (const token& t : here)
        example::expect(t.expert / experts_per_rank == world.rank(), "experts are asked where they live");

    const auto before = messages_to_other_hosts(world, hosts);
    collx::all_to_all_v(fabric, mine, outgoing, here, incoming);
    const auto aggregated = messages_to_other_hosts(world, hosts) - before;
    collx::all_to_all_v(world.with(collx::algo::pairwise_all_to_all{}), mine, outgoing, here, incoming);
    const auto direct = messages_to_other_hosts(world, hosts) - before - aggregated;
    const int nodes = hosts.view().nodes(), elsewhere = ranks - hosts.view().size(hosts.view().node_of(world.rank()));
    example::expect(direct == static_cast<std::uint64_t>(elsewhere), "directly: one message to each rank elsewhere");
    if (hosts.view().is_even())
        example::expect(aggregated == static_cast<std::uint64_t>(nodes - 1), "aggregated: one to each other host");
    if (world.rank() == 0)
        std::printf("%d ranks on %d hosts, %d experts: a dispatch sends %d messages to other hosts, directly %d\n",
                    ranks, nodes, experts, static_cast<int>(aggregated), static_cast<int>(direct));
}

} // namespace

int main() {
    collx::communicator world;
    if (world.size() > 1) run(world);                 // under collx_run, mpirun, srun, ...
    else collx::run_threads({0, 0, 0, 1, 1, 1}, run); // six threads that act as two hosts
    return example::result();
}
