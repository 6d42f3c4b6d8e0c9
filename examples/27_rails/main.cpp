// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An all_to_all between hosts whose GPUs have a network card each; all cards of one number are on one switch (a rail).
// Directly, each message leaves through the sender's card and crosses the spine to the receiver's rail. With PXN (NCCL
// 2.12) it first goes by NVLink to the neighbour on that rail, which sends what its host has for the receiver as one
// message. This hardware is not here: messages are counted from recorded schedules and laid over the links of a
// described machine, and times are the simulator's. Only the exchange itself runs; its messages are compared with the
// recorded ones. Next: docs/lessons/27_rails.md.
// collx-example: everywhere timeout=60
#include <collx/algo/aggregated.hpp>
#include <collx/algo/pairwise.hpp>
#include <collx/collx.hpp>
#include <collx/net.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "../draw.hpp"
#include "../timeline.hpp"
#include "machine.hpp"

namespace {

using namespace lesson;
using example::say;

void check(const machine& m, const schedule& s, bool is_pxn, int hosts, double c, const collx::communicator& world) {
    const load l(m, s, c);
    const double H = hosts, G = gpus;
    double crossings = 0;
    for (const int i : m.uplink) crossings += l.messages[at(i)];
    for (int r = 0; r < m.ranks(); ++r) {
        const int nic = m.cable_of(r), nv = m.nvlink[at(r)];
        example::expect(l.messages[at(nic)] == (is_pxn ? H - 1 : (H - 1) * G), "messages of a card");
        example::expect(l.bytes[at(nic)] == (H - 1) * G * c, "bytes of a card: the same either way");
        example::expect(l.bytes[at(nv)] == (G - 1) * (is_pxn ? H : 1) * c, "bytes by NVLink");
    }
    example::expect(crossings == (is_pxn ? 0 : H * (H - 1) * G * (G - 1)), "messages over the spine");
    say(world, "%-10s %9.0f %9.0f %12.0f %12.0f %12.0f\n", is_pxn ? "PXN" : "directly", l.messages[at(m.cable_of(0))],
        crossings, l.bytes[at(m.cable_of(0))], l.bytes[at(m.uplink[0])], l.bytes[at(m.nvlink[0])]);
}

// Draws the transfer of each rank that ends first of those under way: n by NVLink, = along its rail, ^ over the spine.
void draw(const char* name, const collx::sim::result& r, double end_ns, int ranks) {
    std::vector<example::events> all(at(ranks));
    for (auto t = r.transfers.rbegin(); t != r.transfers.rend(); ++t) {
        const char mark = t->from / gpus == t->to / gpus ? 'n' : t->from % gpus == t->to % gpus ? '=' : '^';
        all[at(t->from)].push_back({t->begin_ns, t->end_ns, mark});
    }
    std::printf("%s: %.1f us\n", name, r.time_ns / 1e3);
    for (int k = 0; k < ranks; ++k)
        std::printf("  rank %d |%s|\n", k, example::line_of(all[at(k)], end_ns, 72, ' ').c_str());
}

// Prints the messages from card to card, between hosts.
void print_matrix(const schedules& s) {
    std::printf("\nmessages from each rank's card (line) to the cards of the others: directly, and with PXN\n");
    std::vector<std::string> lines(at(s.pxn.ranks));
    for (const schedule* each : {&s.directly, &s.pxn}) {
        std::vector<int> messages(at(s.pxn.ranks * s.pxn.ranks));
        for_each_message(*each, [&](int from, int to, int) { ++messages[at(from * s.pxn.ranks + to)]; });
        for (int r = 0; r < s.pxn.ranks; ++r, lines[at(r - 1)] += "   ")
            for (int to = 0; to < s.pxn.ranks; ++to) {
                const int count = r / gpus == to / gpus ? 0 : messages[at(r * s.pxn.ranks + to)];
                lines[at(r)] += count > 0 ? " " + std::to_string(count) : " .";
            }
    }
    for (std::size_t r = 0; r < lines.size(); ++r) std::printf("  rank %zu %s\n", r, lines[r].c_str());
}

void times(const schedules& s) {
    const machine full(2, 2 * 50e9), half(2, 50e9);
    std::printf("\npredicted, us, on 2 hosts: one by one  all at once  half a spine        PXN  in 8 pieces\n");
    for (const double c : {1024.0, 65536.0, 1048576.0}) {
        const double one = predict(full, s.directly, c, 0).time_ns, all = predict(full, s.at_once, c, 0).time_ns,
                     halved = predict(half, s.at_once, c, 0).time_ns, pxn = predict(full, s.pxn, c, 0).time_ns;
        std::printf("  parts of %7.0f KiB %16.1f %12.1f %13.1f %10.1f %12.1f\n", c / 1024, one / 1e3, all / 1e3,
                    halved / 1e3, pxn / 1e3, predict(full, s.pxn, c, 0, 8).time_ns / 1e3);
        example::expect(pxn == predict(half, s.pxn, c, 0).time_ns, "PXN does not notice the spine");
        if (c < 1e6) continue; // long parts: the rates of the links decide
        const double card = gpus * c / 50, spine = 2 * (gpus - 1) * c / 50, nvlink = 2 * (gpus - 1) * c / 450;
        std::printf("  formula %32s %12.1f %13.1f %10.1f\n", "", card / 1e3, spine / 1e3, (nvlink + card) / 1e3);
        example::expect(std::abs(all / card - 1) < 0.05, "at once: the bytes of a card");
        example::expect(std::abs(halved / spine - 1) < 0.05, "half a spine: the bytes of an uplink");
        example::expect(std::abs(pxn / (nvlink + card) - 1) < 0.05, "PXN: NVLink, then the card");
    }
    const auto d = predict(half, s.at_once, 65536, 0), p = predict(half, s.pxn, 65536, 0);
    std::printf("\nparts of 64 KiB, half a spine (n by NVLink, = along the rail, ^ over the spine)\n");
    draw("directly, all at once", d, std::max(d.time_ns, p.time_ns), s.pxn.ranks);
    draw("PXN", p, std::max(d.time_ns, p.time_ns), s.pxn.ranks);

    std::printf("\nmessages that a rank sends, and us where each takes it 1 us, parts of 1 KiB:\n");
    std::printf("%6s %10s %6s %10s %6s %10s\n", "hosts", "directly", "H G-1", "PXN", "", "2(G-1)+H-1");
    for (const int hosts : {2, 4, 8, 16}) {
        const machine m(hosts, hosts * 50e9);
        const schedules many(m.ranks(), gpus);
        double messages[2] = {}, us[2] = {};
        for (const int k : {0, 1}) {
            const schedule& each = k == 0 ? many.directly : many.pxn;
            for_each_message(each, [&](int from, int, int) { messages[k] += from == 0 ? 1 : 0; });
            us[k] = predict(m, each, 1024, 1000).time_ns / 1e3;
        }
        example::expect(messages[0] == hosts * gpus - 1 && messages[1] == 2 * (gpus - 1) + hosts - 1,
                        "messages of a rank");
        std::printf("%6d %6.0f %8.1f us %10.0f %8.1f us\n", hosts, messages[0], us[0], messages[1], us[1]);
    }
}

// Runs the exchange on this job's ranks: the first half of them acts as one host, the others as another.
void really(collx::communicator& world) {
    constexpr std::size_t part = 16;
    const int n = world.size(), me = world.rank();
    const schedules s(n, (n + 1) / 2);
    std::vector<int> in(part * at(n)), out(in.size()), expected(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
        const int other = static_cast<int>(i / part), place = static_cast<int>(i % part);
        in[i] = 10'000 * me + 100 * other + place;
        expected[i] = 10'000 * other + 100 * me + place;
    }
    collx::communicator own = world.dup();
    const auto run = [&](const auto& bound, const schedule& recorded) {
        std::vector<std::uint64_t> before(at(n)), messages(at(n));
        for (int k = 0; k < n; ++k) before[at(k)] = own.sent_to(k).messages;
        std::fill(out.begin(), out.end(), -1);
        collx::all_to_all(bound, in, out);
        example::expect(out == expected, "each part is where the serial program puts it");
        for_each_message(recorded, [&](int from, int to, int) { messages[at(to)] += from == me ? 1 : 0; });
        std::uint64_t sum = 0;
        for (int k = 0; k < n; ++k) {
            const std::uint64_t sent = own.sent_to(k).messages - before[at(k)];
            example::expect(sent == messages[at(k)], "as many messages to each rank as were recorded");
            sum += s.hosts.view().node_of(k) != s.hosts.view().node_of(me) ? sent : 0;
        }
        return sum;
    };
    const auto direct = run(own.with(collx::algo::pairwise_all_to_all{}), s.directly);
    const auto pxn = run(own.with(collx::algo::aggregated_all_to_all{s.hosts}), s.pxn);
    say(world, "run by %d ranks as two hosts: rank 0 sent %d messages to the other host directly, %d with PXN\n", n,
        static_cast<int>(direct), static_cast<int>(pxn));
}

void run(collx::communicator& world) {
    world.set_checked(false); // ranks would compare the arguments of each call, and that would be counted, too
    really(world);
    if (world.rank() == 0) {
        const machine m(2, 100e9);
        const schedules s(m.ranks(), gpus);
        std::printf("\nnot run, but counted: 2 hosts of %d GPUs with a card each, parts of 64 KiB\n", gpus);
        std::printf("%-10s %9s %9s %12s %12s %12s\n", "", "a card's", "by spine", "card, bytes", "uplink", "NVLink");
        check(m, s.directly, false, 2, 65536, world);
        check(m, s.pxn, true, 2, 65536, world);
        print_matrix(s);
        times(s);
    }
    collx::barrier(world);
}

} // namespace

int main() {
    collx::communicator world;
    if (world.size() > 1) run(world);
    else collx::run_threads({0, 0, 0, 0, 1, 1, 1, 1}, run); // eight threads that act as two hosts
    return example::result();
}
