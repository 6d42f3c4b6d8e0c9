// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: optimised timeout=300 needs=rapidcheck sanitize=nightly
//
// all_to_all_v with messages between nodes aggregated: each rank knows only its own counts, carriers and leaders learn
// the other counts. The tests compare with what every rank should receive, and count messages while threads run.
#include <collx/algo/aggregated.hpp>
#include <collx/algo/leader.hpp>
#include <collx/plan/long_parts.hpp>

#include <array>
#include <chrono>
#include <thread>

#include <rapidcheck.h>

#include "support.hpp"
#include "support/computed.hpp"

using namespace collx_test;
using collx::node_map;
using collx::algo::aggregated_all_to_all;
using collx::algo::leader_all_to_all;

namespace {

struct three_bytes {
    unsigned char r, g, b;
    bool operator==(const three_bytes&) const = default;
};
three_bytes meant(int from, int to, std::size_t i) {
    return {static_cast<unsigned char>(from + 1), static_cast<unsigned char>(to * 16 + static_cast<int>(i / 251)),
            static_cast<unsigned char>(i)};
}
constexpr three_bytes untouched{0, 7, 7};

// What one rank sends and receives, where count(from, to) gives the part sizes. Each part begins `gap` elements
// behind the previous one.
struct exchange {
    template <class Count>
    exchange(const collx::communicator& w, Count&& count, std::size_t gap) {
        const int me = w.rank();
        for (int k = 0; k < w.size(); ++k) {
            add(me, k, count(me, k), gap, sends, send_at, in);
            add(k, me, count(k, me), gap, receives, receive_at, expected);
        }
        out.assign(expected.size(), untouched);
    }
    static void add(int from, int to, std::size_t count, std::size_t gap, std::vector<std::size_t>& counts,
                    std::vector<std::size_t>& offsets, std::vector<three_bytes>& data) {
        data.insert(data.end(), gap, untouched);
        counts.push_back(count);
        offsets.push_back(data.size());
        for (std::size_t i = 0; i < count; ++i) data.push_back(meant(from, to, i));
    }
    std::vector<std::size_t> sends, receives, send_at, receive_at;
    std::vector<three_bytes> in, out, expected;
};

template <class Comm, class Count>
void check_call(collx::communicator& w, Comm&& bound, Count&& count, std::size_t gap = 0) {
    exchange x(w, count, gap);
    const auto before = x.in;
    collx::all_to_all_v(bound, x.in, x.sends, x.send_at, x.out, x.receives, x.receive_at);
    EXPECT(x.out == x.expected);
    EXPECT(x.in == before);
}

std::size_t patterned(int pattern, int n, int from, int to) {
    switch (pattern) {
        case 0: return 0;
        case 1: return from == 0 ? 700 : 0;
        case 2: return to == n - 1 ? 700 : 0;
        case 3: return static_cast<std::size_t>((from * 5 + to * 3) % 4);
        case 4: return static_cast<std::size_t>((from * 5 + to * 3) % 4) * 9'000;
        default: return from == to ? 50 : (from + to) % 2 == 0 ? 20'000 : 1;
    }
}

// The messages that one call sends to ranks of other nodes: by this rank, and by all ranks.
template <class F>
std::array<std::uint64_t, 2> messages_out(collx::communicator& w, const node_map& m, F&& call) {
    const auto so_far = [&] {
        std::uint64_t sum = 0;
        for (int k = 0; k < w.size(); ++k)
            if (m.view().node_of(k) != m.view().node_of(w.rank())) sum += w.sent_to(k).messages;
        return sum;
    };
    const std::uint64_t before = so_far();
    call();
    std::array<std::uint64_t, 2> sent{so_far() - before, 0};
    sent[1] = sent[0];
    collx::all_reduce(w, collx::value(sent[1]));
    return sent;
}

const std::vector<std::vector<int>> maps = {
    {0},          {0, 1},          {0, 0, 1},          {0, 0, 1, 1},          {0, 1, 0, 1},
    {0, 0, 0, 0}, {0, 0, 0, 1, 1}, {2, 0, 1, 0, 2, 0}, {0, 1, 0, 2, 2, 1, 0}, {0, 0, 0, 0, 0, 1, 1, 2}};

} // namespace

template <class Make>
void check_on_all_maps(Make&& make) {
    for (const auto& node : maps)
        on_ranks(static_cast<int>(node.size()), [&](collx::communicator& w) {
            const node_map m(node);
            for (const std::size_t piece : {std::size_t{0}, std::size_t{60}, std::size_t{4096}})
                for (int pattern = 0; pattern < 6; ++pattern) {
                    if (piece == 60 && pattern > 3) continue; // would take ten thousand messages
                    at("map of %zu, pattern %d, piece %zu", node.size(), pattern, piece);
                    const auto count = [&](int from, int to) { return patterned(pattern, w.size(), from, to); };
                    const auto bound = w.with(make(m), collx::piece{piece});
                    check_call(w, bound, count);
                    check_call(w, bound, count, 3);
                }
        });
}
TEST_CASE("aggregated all_to_all_v: any counts, on all maps, in pieces of any size") {
    check_on_all_maps([](const node_map& m) { return aggregated_all_to_all{m}; });
}
TEST_CASE("all_to_all_v through leaders: any counts, on all maps, in pieces of any size") {
    check_on_all_maps([](const node_map& m) { return leader_all_to_all{m}; });
}
TEST_CASE("all_to_all_v whose longer parts go directly: any counts, on all maps, in pieces of any size") {
    check_on_all_maps([](const node_map& m) { return collx::long_parts_directly(leader_all_to_all{m}, 500); });
}

TEST_CASE("across hosts short parts go through leaders by themselves, each long one directly") {
    for (const int each : {2, 3, 4})
        on_hosts(7, spread{each}, [&](collx::communicator& w) {
            w.set_checked(false);
            const int nodes = (7 + each - 1) / each;
            const node_map m = node_map::blocks(7, each);
            const bool leads = m.view().local_of(w.rank()) == 0;
            const auto short_parts = [](int from, int to) { return static_cast<std::size_t>((from * 7 + to * 3) % 5); };
            at("%d of 7 on a host, short", each);
            auto sent = messages_out(w, m, [&] { check_call(w, w, short_parts); });
            EXPECT_AT(sent[0], sent[0] == (leads ? static_cast<unsigned>(nodes - 1) : 0u));
            EXPECT_AT(sent[1], sent[1] == static_cast<unsigned>(nodes * (nodes - 1)));
            at("%d of 7 on a host, one is long", each);
            const auto one_long = [&](int from, int to) {
                return from == 1 && to == 6 ? std::size_t{90'000} : short_parts(from, to);
            };
            sent = messages_out(w, m, [&] { check_call(w, w, one_long); });
            EXPECT_AT(sent[1], sent[1] == static_cast<unsigned>(nodes * (nodes - 1) + 1));
            at("%d of 7 on a host, all are long", each);
            check_call(w, w, [](int from, int to) { return static_cast<std::size_t>(90'000 + from - to); });
            check_call(w, w, [](int, int) { return std::size_t{0}; });
        });
}

TEST_CASE("N - 1 messages leave the node per rank where a direct exchange sends (N - 1) G") {
    for (const spread& hosts : {spread{2}, spread{3}, spread{}})
        on_hosts(6, hosts, [&](collx::communicator& w) {
            w.set_checked(false); // comparing calls sends messages, too
            const int each = hosts.ranks_per_host == 0 ? 2 : hosts.ranks_per_host, nodes = 6 / each;
            const node_map m = node_map::blocks(6, each);
            const auto count = [&](int from, int to) { return static_cast<std::size_t>((from * 7 + to * 3) % 5) * 20; };
            at("%d nodes of %d", nodes, each);
            auto sent = messages_out(w, m, [&] { check_call(w, w.with(aggregated_all_to_all{m}), count); });
            EXPECT_AT(sent[0], sent[0] == static_cast<unsigned>(nodes - 1));
            EXPECT_AT(sent[1], sent[1] == static_cast<unsigned>(6 * (nodes - 1)));
            sent = messages_out(w, m, [&] { check_call(w, w.with(collx::algo::pairwise_all_to_all{}), count); });
            EXPECT_AT(sent[0], sent[0] == static_cast<unsigned>((nodes - 1) * each));
        });
    // Unequal nodes: the total stays the same, and the ranks of a node share the messages.
    on_ranks(7, [](collx::communicator& w) {
        w.set_checked(false);
        const node_map m({0, 0, 0, 0, 1, 1, 2});
        const auto sent = messages_out(w, m, [&] {
            check_call(w, w.with(aggregated_all_to_all{m}), [](int from, int to) -> std::size_t { return from ^ to; });
        });
        EXPECT_AT(sent[1], sent[1] == 7 * 2);
        EXPECT_AT(sent[0], w.rank() >= 4 || sent[0] <= 1); // four ranks carry for three
    });
}

TEST_CASE("random counts on random nodes arrive") {
    ::setenv("RC_PARAMS", "max_success=60 max_size=60", 0);
    CHECK(rc::check("parts arrive", [] {
        const int n = *rc::gen::inRange(1, 9);
        const auto node = *rc::gen::container<std::vector<int>>(static_cast<std::size_t>(n), rc::gen::inRange(0, n));
        const auto counts = *rc::gen::container<std::vector<unsigned>>(
            static_cast<std::size_t>(n * n),
            rc::gen::weightedOneOf<unsigned>(
                {{3, rc::gen::just(0u)}, {5, rc::gen::inRange(1u, 90u)}, {1, rc::gen::inRange(90u, 5000u)}}));
        const std::size_t piece = *rc::gen::element(std::size_t{0}, std::size_t{100}, std::size_t{3000});
        const int rounds = *rc::gen::inRange(1, 4), algorithm = *rc::gen::inRange(0, 4);
        const bool checked = *rc::gen::arbitrary<bool>();
        // One host or several, whatever the map says: the program decides what a node is.
        const spread hosts{*rc::gen::element(0, 0, 0, 1, 2)};
        run_spread(n, hosts, [&](collx::communicator& w) {
            w.set_timeout(collx_test::patient(std::chrono::seconds(20)));
            w.set_checked(checked);
            const node_map m(node);
            for (int k = 0; k < rounds; ++k) {
                const auto count = [&](int from, int to) {
                    return static_cast<std::size_t>(counts[static_cast<std::size_t>((from * n + to + k) % (n * n))]);
                };
                if (algorithm == 0) check_call(w, w.with(aggregated_all_to_all{m}, collx::piece{piece}), count);
                else if (algorithm == 1) check_call(w, w.with(leader_all_to_all{m}, collx::piece{piece}), count);
                else if (algorithm == 2)
                    check_call(w, w.with(collx::long_parts_directly(leader_all_to_all{m}, 90), collx::piece{piece}),
                               count);
                else check_call(w, w.with(collx::piece{piece}), count);
            }
        });
    }));
}

TEST_CASE("aggregated calls under way at once keep their own counts") {
    on_ranks(5, [](collx::communicator& w) {
        const node_map m({0, 1, 0, 1, 1});
        std::vector<exchange> x;
        for (int k = 0; k < 7; ++k)
            x.emplace_back(
                w, [&](int from, int to) -> std::size_t { return (from + to * k) % 5 * 300; }, 1);
        std::vector<collx::work<void>> works;
        for (auto& e : x)
            works.push_back(collx::async::all_to_all_v(w.with(aggregated_all_to_all{m}), e.in, e.sends, e.send_at,
                                                       e.out, e.receives, e.receive_at));
        check_call(w, w.with(aggregated_all_to_all{m}), [](int, int to) -> std::size_t { return to; });
        for (auto& work : works) work.wait();
        for (const auto& e : x) EXPECT(e.out == e.expected);
    });
}

TEST_CASE("elements that are computed while they are read, into an output with gaps") {
    on_ranks(4, [](collx::communicator& w) {
        const node_map m({0, 0, 1, 1});
        const int me = w.rank();
        const std::array counts{1, 2, 3, 4};
        std::vector<int> receives(4, me + 1), out(2 * 4 * static_cast<std::size_t>(me + 1), -1);
        const collx_test::computed lazy(10, [me](int i) { return me * 100 + i; });
        collx::all_to_all_v(w.with(aggregated_all_to_all{m}), lazy, counts,
                            collx::strided(out.data(), out.size() / 2, 2), receives);
        const int first = me * (me + 1) / 2; // of my part in every sender's buffer
        for (std::size_t i = 0; i < out.size(); ++i) {
            const int k = static_cast<int>(i / 2), from = k / (me + 1);
            EXPECT_AT(i, out[i] == (i % 2 != 0 ? -1 : from * 100 + first + k % (me + 1)));
        }
    });
}

TEST_CASE("two wrong counts do not hide each other in one message") {
    for (const bool checked : {false, true})
        on_ranks(4, [&](collx::communicator& w) {
            w.set_checked(checked);
            at("checked %d", checked);
            const node_map m({0, 0, 1, 1});
            std::vector<int> x(40), y(40);
            std::array send{10, 10, 10, 10}, receive{10, 10, 10, 10};
            if (w.rank() == 0) send[3] = 9; // rank 1 carries 9 + 11 elements for rank 3, which expects 10 + 10
            if (w.rank() == 1) {
                send[3] = 11;
                x.resize(41);
            }
            const auto e = thrown<collx::mismatch>(w, [&] {
                collx::all_to_all_v(w.with(aggregated_all_to_all{m}), x, send, y, receive);
                collx::barrier(w);
            });
            if (checked) EXPECT(e.peer() == (w.rank() == 0 ? 3 : 0)); // the ends of the first part with a wrong count
            if (checked) EXPECT(says(e, "rank 0 sends 9 elements to rank 3, where the counts say 10"));
            if (!checked) EXPECT(e.peer() == 1); // the carrier
        });
}

// The sender and the receiver of a part disagree: nothing, short or long at either end.
TEST_CASE("a part that one end takes for short and the other for long is found by the leaders") {
    for (const auto& ends : {std::array{0, 900}, {900, 0}, {3, 900}, {900, 3}, {900, 901}, {3, 0}, {0, 3}}) {
        const int sent = ends[0], expected = ends[1];
        on_ranks(5, [&](collx::communicator& w) {
            w.set_checked(false);
            at("%d sent, %d expected", sent, expected);
            const node_map m({0, 0, 0, 1, 1});
            std::vector<int> x(5'000), y(5'000);
            std::array send{7, 7, 7, 7, 7}, receive{7, 7, 7, 7, 7};
            if (w.rank() == 1) send[4] = sent;
            if (w.rank() == 4) receive[1] = expected;
            const auto e = thrown<collx::mismatch>(w, [&] {
                collx::all_to_all_v(w.with(collx::long_parts_directly(leader_all_to_all{m}, 100)), x, send, y, receive);
                collx::barrier(w);
            });
            EXPECT_AT(e.peer(), e.peer() == 0); // its leader, which sent the message
        });
    }
}

TEST_CASE("algorithms that need to know all counts are refused") {
    on_ranks(2, [](collx::communicator& w) {
        std::vector<int> x(2), y(2);
        const auto e = thrown<collx::error>(w, [&] {
            collx::all_to_all_v(w.with(collx::algo::bruck_all_to_all{}), x, std::array{1, 1}, y, std::array{1, 1});
        });
        EXPECT(e.code() == collx::errc::unsupported && says(e, "bruck"));
    });
}

TEST_CASE("a rank that does not come is named") {
    std::atomic<int> come{0}, told{0};
    on_ranks(4, [&](collx::communicator& w) {
        w.set_checked(false);
        const node_map m({0, 0, 1, 1});
        std::vector<int> x(4), y(4);
        const std::array one{1, 1, 1, 1};
        const auto wait_for_three = [](std::atomic<int>& n) { collx_test::until([&] { return n >= 3; }); };
        if (w.rank() == 3) {
            wait_for_three(told);
            return EXPECT(true);
        }
        ++come;
        wait_for_three(come); // so no other rank is late
        const auto e = thrown<collx::error>(w, [&] {
            collx::all_to_all_v(w.with(aggregated_all_to_all{m}), x, one, y, one, {.timeout = std::chrono::seconds(2)});
            collx::barrier(w, {.timeout = std::chrono::seconds(2)});
        });
        ++told;
        EXPECT_AT(e.peer(), e.code() == collx::errc::timeout && e.peer() == 3);
    });
}
