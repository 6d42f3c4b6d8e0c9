// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What happens between "send these bytes" and "they are there" with RDMA: requests in a queue, a doorbell, reads by
// the card over PCIe, the wire, a completion. Each rank has a card in software (card.hpp), connected to those of its
// neighbours. A ring all_gather by hand on them is compared with the serial program. What crosses PCIe, and how long a
// message takes in five ways to post it, are compared with formulas. Times are those of a model. Next:
// docs/lessons/29_doorbell.md.
// collx-example: everywhere uses=verbs timeout=60
#include <collx/collx.hpp>
#include <collx/net.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "../check.hpp"
#include "../draw.hpp"
#include "../timeline.hpp"
#include "joined.hpp"
#include "real.hpp"

namespace {

using namespace lesson;
using example::say;
using status = completion::status;

constexpr std::size_t part = 256; // numbers

// A ring all_gather: a rank passes on the part that it received last, as a write and a message that announces it.
void all_gather(collx::communicator& world) {
    const int n = world.size(), me = world.rank();
    std::vector<int> all(part * static_cast<std::size_t>(n)), expected(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) expected[i] = static_cast<int>(i * 7 % 1013);
    const std::size_t mine = part * static_cast<std::size_t>(me);
    std::copy_n(&expected[mine], part, &all[mine]);
    joined_card card(world, all);
    double first_seen = 0;
    for (int s = 0; s < n - 1; ++s) {
        int heard = -1;
        card.post_receive(reinterpret_cast<std::byte*>(&heard), sizeof heard, 100);
        const int chunk = (me - s + n) % n;
        const std::size_t place = part * static_cast<std::size_t>(chunk);
        work_request head;
        head.what = work_request::kind::send;
        head.is_inline = head.is_signalled = true;
        head.id = 2;
        head.from = reinterpret_cast<const std::byte*>(&chunk);
        head.bytes = sizeof chunk;
        example::expect(card.post(card.write(1, &all[place], part, place)) && card.post(head), "room for two");
        card.ring_doorbell();
        card.carry();
        completion c;
        bool received = false, sent = false;
        while (card.poll(c)) {
            example::expect(c.how == status::success, "no error");
            if (c.is_receive && s == 0) first_seen = card.now;
            received = received || c.is_receive;
            sent = sent || (!c.is_receive && c.id == 2);
        }
        example::expect(received && sent && heard == (me - s - 1 + n) % n, "one completion of each side");
        if (s != 0 || me != 0) continue;
        std::sort(card.steps.begin(), card.steps.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
        std::printf(
            "rank 0 writes %zu bytes into rank 1's memory and says so; its left neighbour does so, too\n%9s %9s\n",
            part * sizeof(int), "from, ns", "to");
        for (const step& x : card.steps) std::printf("%9.0f %9.0f  %s\n", x.begin, x.end, x.text.c_str());
    }
    example::expect(all == expected, "the all_gather of the serial program");
    const int steps = n - 1;
    example::expect(card.crossed == crossings{steps, steps, steps, 2 * steps, 2 * steps}, "crossings of the ring");
    const costs& k = card.cost;
    const double bytes = part * sizeof(int);
    const double formula = 2 * k.request + k.doorbell + 7 * k.pcie + (128 + 2 * bytes) / k.pcie_rate +
                           bytes / k.wire_rate + k.wire + k.poll;
    say(world, "seen by the peer after %.0f ns; formula 2 r + b + 7 p + (128 + 2 B) / P + B / W + w + l: %.0f ns\n\n",
        first_seen, formula);
    example::expect(std::abs(first_seen / formula - 1) < 0.01, "the formula of one message");
}

struct way {
    const char* name;
    bool one_doorbell, is_inline, one_completion, by_store;
};
constexpr way ways[] = {{"a doorbell each", false, false, false, false},
                        {"one doorbell", true, false, false, false},
                        {"and inline", true, true, false, false},
                        {"and one completion", true, true, true, false},
                        {"each in its doorbell", false, true, false, true}};

// n writes of 16 bytes. Prints what crossed PCIe, or draws a single write. Returns the time until the last completion.
double writes(collx::communicator& world, const way& w, int n, bool is_drawn) {
    constexpr std::size_t numbers = 4;
    std::vector<int> memory(numbers * 32);
    for (std::size_t i = 0; i < numbers; ++i) memory[i] = world.rank() * 10 + static_cast<int>(i);
    joined_card card(world, memory);
    for (int i = 0; i < n; ++i) {
        work_request r = card.write(static_cast<std::uint64_t>(i), memory.data(), numbers,
                                    numbers * static_cast<std::size_t>(1 + i));
        r.is_inline = w.is_inline;
        r.is_signalled = !w.one_completion || i == n - 1;
        example::expect(card.post(r), "room in the queue");
        if (!w.one_doorbell || i == n - 1) card.ring_doorbell(w.by_store);
    }
    card.carry();
    completion c;
    int polled = 0;
    for (; card.poll(c); ++polled) example::expect(c.how == status::success && !c.is_receive, "no error");
    const crossings formula{w.one_doorbell ? 1 : n,
                            w.by_store       ? 0
                            : w.one_doorbell ? (n + 3) / 4
                                             : n,
                            w.is_inline ? 0 : n, n, w.one_completion ? 1 : n};
    example::expect(card.crossed == formula && polled == formula.completions, "what crosses PCIe, by the formula");
    bool is_right = true;
    for (std::size_t i = numbers; i < numbers * static_cast<std::size_t>(1 + n); ++i)
        is_right &= memory[i] == card.left * 10 + static_cast<int>(i % numbers);
    example::expect(is_right, "the bytes of the neighbour");
    const crossings& x = card.crossed;
    if (!is_drawn)
        say(world, "%-22s %9d %9d %9d %9d %9d %9.0f\n", w.name, x.doorbells, x.request_reads, x.data_reads,
            x.data_writes, x.completions, card.now);
    else if (world.rank() == 0) {
        example::events seen;
        for (const step& s : card.steps) seen.push_back({s.begin, s.end, s.mark});
        std::printf("%-20s |%s| %.0f ns\n", w.name, example::line_of(seen, 3200, 72, ' ').c_str(), card.now);
    }
    return card.now;
}

// What a card refuses, and how the program learns of it.
void mistakes(collx::communicator& world) {
    std::vector<int> memory(8, 1);
    joined_card card(world, memory);
    work_request r = card.write(1, memory.data(), 4, 6); // two numbers beyond the peer's memory
    example::expect(card.post(r), "the card does not look yet");
    card.ring_doorbell();
    card.carry();
    completion c;
    example::expect(card.poll(c) && c.id == 1 && c.how == status::remote_access, "beyond the end: remote access error");
    example::expect(memory == std::vector<int>(8, 1), "nothing is written");
    example::expect(card.post(card.write(2, memory.data(), 1, 0)), "a sound one behind it");
    card.ring_doorbell();
    card.carry();
    example::expect(card.poll(c) && c.id == 2 && c.how == status::flushed, "what is posted after an error is flushed");
    joined_card other(world, memory);
    r = other.write(3, memory.data(), 1, 0);
    r.is_signalled = false;
    for (std::size_t i = 0; i < joined_card::depth; ++i) example::expect(other.post(r), "16 places");
    example::expect(!other.post(r), "the 17th request finds no place");
    other.ring_doorbell();
    other.carry();
    example::expect(!other.poll(c) && !other.post(r), "nor later: who asks for no completion gets no place back");
    say(world,
        "\nrefused as expected: a write beyond the peer's memory, what is posted after it, and a request too many\n");
}

void run(collx::communicator& world) {
    all_gather(world);
    say(world, "8 writes of 16 bytes, crossings of PCIe by rank 0's card:\n%-22s %9s %9s %9s %9s %9s %9s\n", "",
        "doorbells", "requests", "data read", "written", "complet.", "ns");
    for (const way& w : ways) writes(world, w, 8, false);
    say(world, "\none write of 16 bytes (p request, d doorbell, r request read, b bytes read, = wire, m peer's memory, "
               "c completion)\n");
    const double plain = writes(world, ways[0], 1, true), in_request = writes(world, ways[2], 1, true),
                 by_store = writes(world, ways[4], 1, true);
    const costs k;
    example::expect(std::abs(plain - in_request - (2 * k.pcie + 16 / k.pcie_rate)) < 0.1, "inline saves one read");
    example::expect(std::abs(in_request - by_store - (2 * k.pcie + 64 / k.pcie_rate)) < 0.1, "the store saves another");
    mistakes(world);
    if (world.rank() == 0) tell_of_real_device(part * sizeof(int));
}

} // namespace

int main() {
    collx::communicator world;
    if (world.size() > 1) run(world);
    else collx::run_threads(4, run); // alone: four threads
    return example::result();
}
