// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: alone timeout=300 sanitize=nightly
//
// Calls on device memory in which ranks have parts: gather, scatter, the v-variants, scans, messages, barriers. Over
// the fake runtime, by kernels and staged, with empty parts and parts of many pieces; also refused calls.
// tests/gpu/calls_test.cpp tests the other verbs and the errors of all verbs.
#include "fake_devices.hpp"
#include "support/caught_stderr.hpp"
#include "support/patience.hpp"

#include <dirent.h>
#include <signal.h>

#include <collx/algo/binomial.hpp>
#include <collx/algo/linear.hpp>
#include <collx/algo/ring.hpp>
#include <collx/gpu/device_group.hpp>

namespace {

using memory = device_memory<int>;

// Element i of the part from rank `from` to rank `to`.
int part(int from, int to, std::size_t i) { return from * 1'000'003 + to * 10'007 + static_cast<int>(i); }

// The number of elements from rank `from` to rank `to`: none, one, more than a slot, or more than a staging buffer.
std::size_t count(int from, int to) {
    constexpr std::size_t counts[] = {0, 5000, 1, 333};
    return counts[static_cast<std::size_t>(from + 2 * to) % 4];
}

template <class Comm>
void check_rooted(communicator& w, Comm c, fake_gpus& g, void* s, int root, std::size_t n) {
    const int ranks = w.size(), me = w.rank();
    const std::size_t all = n * static_cast<std::size_t>(ranks);
    memory mine(g, me, n), whole(g, me, me == root ? all : 0), here(g, me, me == root ? all : 0), got(g, me, n);
    for (std::size_t i = 0; i < n; ++i) mine[i] = part(me, root, i);
    gather(c, mine, whole, {.stream = s, .root = root});
    if (me == root) { // in place
        const device_view<int> part_of_it(here.data() + static_cast<std::size_t>(me) * n, n);
        for (std::size_t i = 0; i < n; ++i) part_of_it[i] = part(me, root, i);
        gather(c, part_of_it, here, {.stream = s, .root = root});
    } else {
        gather(c, mine, here, {.stream = s, .root = root});
    }
    scatter(c, whole, got, {.stream = s, .root = root});
    synchronize(c, {.stream = s});
    for (std::size_t i = 0; i < n; ++i) EXPECT_AT(i, got[i] == mine[i]);
    for (std::size_t i = 0; me == root && i < all; ++i) {
        EXPECT_AT(i, whole[i] == part(static_cast<int>(i / n), root, i % n));
        EXPECT_AT(i, here[i] == whole[i]);
    }
}

// To the next rank and to itself, from the last rank and from itself.
template <class Comm>
void check_neighbors(communicator& w, Comm c, fake_gpus& g, void* s) {
    const int ranks = w.size(), me = w.rank(), next = (me + 1) % ranks, last = (me + ranks - 1) % ranks;
    const neighbors graph = ranks > 1 ? neighbors{{last, me}, {me, next}} : neighbors{{me}, {me}};
    const std::size_t n = 700, k = graph.sources.size(), to_next = (k - 1) * n;
    const std::vector<std::size_t> counts(k, n);
    memory in(g, me, k * n), out(g, me, k * n), out_v(g, me, k * n), all(g, me, k * n), all_v(g, me, k * n);
    for (std::size_t i = 0; i < n; ++i) {
        in[i] = part(me, me, i);
        in[to_next + i] = part(me, next, i);
    }
    const device_view<int> mine(in.data() + to_next, n);
    neighbor_all_to_all(c, graph, in, out, {.stream = s});
    neighbor_all_to_all_v(c, graph, in, counts, out_v, counts, {.stream = s});
    neighbor_all_gather(c, graph, mine, all, {.stream = s});
    neighbor_all_gather_v(c, graph, mine, all_v, counts, {}, {.stream = s});
    synchronize(c, {.stream = s});
    for (std::size_t i = 0; i < n; ++i) {
        EXPECT_AT(i, out[i] == part(last, me, i) && out[(k - 1) * n + i] == part(me, me, i));
        EXPECT_AT(i, all[i] == part(last, me, i) && all[(k - 1) * n + i] == part(me, next, i));
    }
    for (std::size_t i = 0; i < k * n; ++i) EXPECT_AT(i, out_v[i] == out[i] && all_v[i] == all[i]);
    for (std::size_t i = 0; i < k * n; ++i) all_v[i] = -1;
    neighbor_all_gather_v(c, graph, mine, all_v, counts, {.stream = s});
    synchronize(c, {.stream = s});
    for (std::size_t i = 0; i < k * n; ++i) EXPECT_AT(i, all_v[i] == all[i]);
    const auto e = thrown<error>(w, [&] { neighbor_all_to_all(c, {{me, me}, {me, me}}, in, out, {.stream = s}); });
    EXPECT(e.code() == errc::unsupported && e.peer() == me && says(e, "is a destination more than once"));
}

template <class Comm>
void check_counts(communicator& w, Comm c, fake_gpus& g, void* s) {
    const int ranks = w.size(), me = w.rank(), root = ranks - 1;
    const auto n = static_cast<std::size_t>(ranks), mine = static_cast<std::size_t>(me);
    std::vector<std::size_t> to_me(n), from_me(n), shown(n), gaps(n);
    std::size_t out_all = 0, in_all = 0, shown_all = 0, gaps_end = 0;
    for (std::size_t k = 0; k < n; ++k) {
        const int r = static_cast<int>(k);
        in_all += from_me[k] = count(me, r);
        out_all += to_me[k] = count(r, me);
        shown_all += shown[k] = count(r, 1);
        gaps[k] = gaps_end + 3;
        gaps_end = gaps[k] + shown[k];
    }
    memory out(g, me, in_all), in(g, me, out_all), one(g, me, shown[mine]), whole(g, me, gaps_end),
        gathered(g, me, shown_all), back(g, me, shown[mine]), reduced(g, me, shown[mine]), operand(g, me, shown_all);
    for (std::size_t k = 0, at = 0; k < n; ++k)
        for (std::size_t i = 0; i < from_me[k]; ++i) out[at++] = part(me, static_cast<int>(k), i);
    for (std::size_t i = 0; i < shown[mine]; ++i) one[i] = part(me, 1, i);
    for (std::size_t i = 0; i < shown_all; ++i) operand[i] = static_cast<int>(i) + me;
    const std::vector<std::size_t> none;
    all_to_all_v(c, out, from_me, in, to_me, {.stream = s});
    all_gather_v(c, one, whole, shown, gaps, {.stream = s});
    gather_v(c, one, gathered, me == root ? shown : none, none, {.stream = s, .root = root});
    scatter_v(c, gathered, back, me == root ? shown : none, none, {.stream = s, .root = root});
    reduce_scatter_v(c, operand, reduced, shown, plus{}, {.stream = s});
    synchronize(c, {.stream = s});
    std::size_t at = 0, begin = 0;
    for (std::size_t k = 0; k < n; ++k) {
        const int r = static_cast<int>(k);
        for (std::size_t i = 0; i < to_me[k]; ++i) EXPECT_AT(i, in[at++] == part(r, me, i));
        for (std::size_t i = 0; i < shown[k]; ++i) EXPECT_AT(i, whole[gaps[k] + i] == part(r, 1, i));
        for (std::size_t i = 0; i < 3; ++i) EXPECT_AT(i, whole[gaps[k] - 1 - i] == 0); // gaps between parts
        if (k < mine) begin += shown[k];
        if (me == root)
            for (std::size_t i = 0; i < shown[k]; ++i)
                EXPECT_AT(i, gathered[gaps[k] - 3 * (k + 1) + i] == part(r, 1, i));
    }
    for (std::size_t i = 0; i < shown[mine]; ++i) {
        EXPECT_AT(i, back[i] == part(me, 1, i));
        EXPECT_AT(i, reduced[i] == static_cast<int>(begin + i) * ranks + ranks * (ranks - 1) / 2);
    }
    EXPECT(at == out_all);
    // Options in the place of offsets and operator.
    memory all(g, me, shown_all), gathered_again(g, me, shown_all), back_again(g, me, shown[mine]),
        reduced_again(g, me, shown[mine]);
    const std::vector<std::size_t>& at_root = me == root ? shown : none;
    all_gather_v(c, one, all, shown, {.stream = s});
    gather_v(c, one, gathered_again, at_root, {.stream = s, .root = root});
    scatter_v(c, gathered_again, back_again, at_root, {.stream = s, .root = root});
    reduce_scatter_v(c, operand, reduced_again, shown, {.stream = s});
    synchronize(c, {.stream = s});
    for (std::size_t k = 0, i = 0; k < n; ++k)
        for (std::size_t j = 0; j < shown[k]; ++j, ++i) EXPECT_AT(i, all[i] == part(static_cast<int>(k), 1, j));
    for (std::size_t i = 0; i < shown_all; ++i) EXPECT_AT(i, gathered_again[i] == gathered[i]);
    for (std::size_t i = 0; i < shown[mine]; ++i)
        EXPECT_AT(i, back_again[i] == back[i] && reduced_again[i] == reduced[i]);
}

template <class Comm>
void check_scans(communicator& w, Comm c, fake_gpus& g, void* s, std::size_t n) {
    const int me = w.rank();
    memory x(g, me, n), y(g, me, n, -1), in_place(g, me, n), before(g, me, n, -7);
    for (std::size_t i = 0; i < n; ++i) x[i] = in_place[i] = static_cast<int>(i) + me;
    scan(c, x, y, plus{}, {.stream = s});
    scan(c, in_place, plus{}, {.stream = s});
    exclusive_scan(c, x, before, plus{}, {.stream = s});
    exclusive_scan(c, x, plus{}, {.stream = s});
    synchronize(c, {.stream = s});
    for (std::size_t i = 0; i < n; ++i) {
        const int k = static_cast<int>(i), up_to_me = (me + 1) * k + me * (me + 1) / 2;
        EXPECT_AT(i, y[i] == up_to_me);
        EXPECT_AT(i, in_place[i] == up_to_me);
        EXPECT_AT(i, before[i] == (me == 0 ? -7 : up_to_me - k - me));
        EXPECT_AT(i, x[i] == (me == 0 ? k : up_to_me - k - me)); // rank 0 keeps its value
    }
}

template <class Comm>
void check_messages(communicator& w, Comm c, fake_gpus& g, void* s) {
    const int ranks = w.size(), me = w.rank(), next = (me + 1) % ranks, last = (me + ranks - 1) % ranks;
    // A ring in which all ranks send first; messages of different lengths in both directions; a rank sends to itself.
    for (const std::size_t n : {0u, 7u, 20'000u}) {
        const std::size_t from_last = n + static_cast<std::size_t>(last), to_next = n + static_cast<std::size_t>(me);
        memory out(g, me, to_next), in(g, me, from_last);
        for (std::size_t i = 0; i < to_next; ++i) out[i] = part(me, next, i);
        sendrecv(c, out, next, in, last, {.stream = s});
        synchronize(c, {.stream = s});
        for (std::size_t i = 0; i < from_last; ++i) EXPECT_AT(i, in[i] == part(last, me, i));
    }
    if (ranks < 2 || me > 1) return;
    memory x(g, me, 3 * 9000), y(g, me, 500, me);
    for (std::size_t i = 0; i < 9000; ++i) x[3 * i] = static_cast<int>(i);
    if (me == 0) { // sent in order
        collx::send(c, on_device(strided(x.data(), 9000, 3)), 1, {.stream = s});
        collx::send(c, y, 1, {.stream = s});
    } else {
        memory z(g, me, 9000);
        collx::recv(c, z, 0, {.stream = s});
        collx::recv(c, y, 0, {.stream = s});
        synchronize(c, {.stream = s});
        for (std::size_t i = 0; i < 9000; ++i) EXPECT_AT(i, z[i] == static_cast<int>(i));
    }
    synchronize(c, {.stream = s});
    EXPECT(y[0] == 0 && y[499] == 0);
}

// Two messages to each neighbour, one to itself, and collectives.
template <class Comm>
void check_group(communicator& w, Comm c, fake_gpus& g, void* s) {
    const int ranks = w.size(), me = w.rank(), next = (me + 1) % ranks, last = (me + ranks - 1) % ranks;
    memory a(g, me, 9001), from_a(g, me, 9001), sum(g, me, 700), root_sum(g, me, 5, me), sent(g, me, 40, me),
        all(g, me, 40 * static_cast<std::size_t>(ranks));
    device_memory<char> b(g, me, 13, static_cast<char>(me)), from_b(g, me, 13), odd(g, me, 4001), even(g, me, 4000);
    for (std::size_t i = 0; i < 4000; ++i) odd[i + 1] = static_cast<char>(me + static_cast<int>(i));
    for (std::size_t i = 0; i < 9001; ++i) a[i] = part(me, next, i);
    for (std::size_t i = 0; i < 700; ++i) sum[i] = part(me, 0, i);
    device_group group(c);
    group.recv(from_a, last);
    group.send(a, next);
    group.send(b, next);
    group.recv(from_b, last);
    // Words at one end, bytes at the other.
    group.send(device_view<char>(odd.data() + 1, 4000), next);
    group.recv(even, last);
    group.all_reduce(sum, collx::max{});
    group.reduce(root_sum, ranks - 1);
    group.all_gather(sent, all);
    group.broadcast(sent, 0);
    memory upto_me(g, me, 30), before_me(g, me, 30);
    for (std::size_t i = 0; i < 30; ++i) upto_me[i] = before_me[i] = part(me, 0, i);
    group.scan(upto_me, collx::max{});
    group.exclusive_scan(before_me, collx::max{});
    EXPECT(group.size() == 12);
    group.launch({.stream = s});
    EXPECT(group.size() == 0);
    synchronize(c, {.stream = s});
    for (std::size_t i = 0; i < 9001; ++i) EXPECT_AT(i, from_a[i] == part(last, me, i));
    for (std::size_t i = 0; i < 13; ++i) EXPECT_AT(i, from_b[i] == static_cast<char>(last));
    for (std::size_t i = 0; i < 700; ++i) EXPECT_AT(i, sum[i] == part(ranks - 1, 0, i));
    EXPECT(root_sum[4] == (me == ranks - 1 ? ranks * (ranks - 1) / 2 : me));
    for (std::size_t i = 0; i < all.collx_buffer().size(); ++i) EXPECT_AT(i, all[i] == static_cast<int>(i / 40));
    for (std::size_t i = 0; i < 4000; ++i) EXPECT_AT(i, even[i] == static_cast<char>(last + static_cast<int>(i)));
    EXPECT(sent[39] == 0);
    for (std::size_t i = 0; i < 30; ++i) {
        EXPECT_AT(i, upto_me[i] == part(me, 0, i));
        EXPECT_AT(i, before_me[i] == part(me == 0 ? 0 : me - 1, 0, i));
    }
}

template <class Comm>
void check_all(communicator& w, Comm c, fake_gpus& g) {
    device::fake_stream s(fake_runtime(g).current());
    for (const std::size_t n : {0u, 1u, 3001u}) {
        check_rooted(w, c, g, &s, w.size() - 1, n);
        check_scans(w, c, g, &s, n);
    }
    check_rooted(w, c, g, &s, 0, 77);
    check_counts(w, c, g, &s);
    check_neighbors(w, c, g, &s);
    check_messages(w, c, g, &s);
    check_group(w, c, g, &s);
}

} // namespace

TEST_CASE("parts on device memory, by kernels and by way of the host") {
    for (const bool staged : {false, true})
        for (const int ranks : {1, 2, 4}) {
            fake_gpus g;
            on_gpus(ranks, g, [&](communicator& w, fake_runtime r) {
                const auto c = w.with(gpus{r});
                use_device(c, small(staged));
                at("ranks=%d staged=%d", ranks, staged);
                check_all(w, c, g);
                w.set_checked(true);
                check_counts(w, c, g, nullptr);
                check_neighbors(w, c, g, nullptr);
                check_messages(w, c, g, nullptr);
                check_group(w, c, g, nullptr);
            });
            CHECK(g.pieces() == 0);
        }
}

TEST_CASE("parts on several hosts, of more ranks than a kernel joins, and by other algorithms") {
    fake_gpus g({.devices = 18});
    on_hosts(3, {.ranks_per_host = 2}, [&](communicator& w) {
        fake_runtime r(g);
        r.use(w.rank());
        const auto c = w.with(gpus{r});
        use_device(c, small());
        check_all(w, c, g);
    });
    on_gpus(18, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r});
        use_device(c, small());
        EXPECT(device_route(c).find("a kernel joins 16 ranks at most") != std::string::npos);
        check_counts(w, c, g, nullptr);
        check_rooted(w, c, g, nullptr, 17, 100);
    });
    on_gpus(4, g, [&](communicator& w, fake_runtime r) {
        for (const bool checked : {false, true}) {
            w.set_checked(checked);
            const auto c = w.with(gpus{r}, algo::binomial_gather{}, algo::binomial_scatter{}, algo::ring_all_gather{});
            use_device(c, small());
            check_rooted(w, c, g, nullptr, 2, 1000);
            const std::vector<std::size_t> shown{3000, 0, 1, 70}, none;
            memory mine(g, w.rank(), shown[static_cast<std::size_t>(w.rank())], w.rank()), all(g, w.rank(), 3071);
            all_gather_v(c, mine, all, shown);
            synchronize(c);
            EXPECT(all[2999] == 0 && all[3000] == 2 && all[3001] == 3 && all[3070] == 3);
            const auto e = thrown<error>(w, [&] { gather_v(c, mine, all, w.rank() == 0 ? shown : none); });
            EXPECT(e.code() == errc::unsupported && says(e, "needs counts that all ranks know"));
        }
    });
    CHECK(g.pieces() == 0);
}

namespace {
struct rgb { // three bytes, aligned as one: parts of four of them are whole words
    std::uint8_t r, g, b;
    bool operator==(const rgb&) const = default;
};
rgb colour(int rank, std::size_t i) {
    const auto x = static_cast<std::uint8_t>(rank * 50 + static_cast<int>(i) * 3);
    return {x, static_cast<std::uint8_t>(x + 1), static_cast<std::uint8_t>(x + 2)};
}
} // namespace
TEST_CASE("elements of several bytes that are aligned as one arrive whole") {
    for (const bool staged : {false, true})
        for (const std::size_t n : {4u, 5u}) {
            fake_gpus g;
            on_gpus(2, g, [&](communicator& w, fake_runtime r) {
                const auto c = w.with(gpus{r});
                use_device(c, small(staged));
                const int me = w.rank(), peer = 1 - me;
                device_memory<rgb> x(g, me, 2 * n), y(g, me, n), z(g, me, n), all(g, me, 3 * n);
                for (std::size_t i = 0; i < 2 * n; ++i) x[i] = colour(me, i);
                scatter(c, x, y);
                sendrecv(c, device_view<rgb>(x.data(), n), peer, z, peer);
                const std::size_t mine = me == 0 ? n : 2 * n;
                all_gather_v(c, device_view<rgb>(x.data(), mine), all, std::vector<std::size_t>{n, 2 * n});
                synchronize(c);
                for (std::size_t i = 0; i < n; ++i) {
                    EXPECT_AT(i, y[i] == colour(0, static_cast<std::size_t>(me) * n + i));
                    EXPECT_AT(i, z[i] == colour(peer, i));
                }
                for (std::size_t i = 0; i < 3 * n; ++i)
                    EXPECT_AT(i, all[i] == (i < n ? colour(0, i) : colour(1, i - n)));
            });
        }
}

TEST_CASE("messages of a group may read what others read, and write no memory that another one uses") {
    for (const bool staged : {false, true}) {
        fake_gpus g;
        on_gpus(2, g, [&](communicator& w, fake_runtime r) {
            const auto c = w.with(gpus{r});
            use_device(c, small(staged));
            const int me = w.rank(), peer = 1 - me;
            memory x(g, me, 3000, me + 1), y(g, me, 3000);
            const auto e = thrown<invalid_argument>(w, [&] {
                device_group group(c);
                group.send(device_view<int>(x.data(), 2000), peer);
                group.recv(device_view<int>(x.data() + 1999, 1000), peer);
                group.launch();
            });
            EXPECT(says(e, "share memory, and one of them is written"));
            device_group group(c);
            group.send(device_view<int>(x.data(), 2000), peer);
            group.send(device_view<int>(x.data() + 500, 1000), peer);
            group.recv(device_view<int>(y.data(), 2000), peer);
            group.recv(device_view<int>(y.data() + 2000, 1000), peer);
            group.launch();
            synchronize(c);
            EXPECT(y[0] == peer + 1 && y[1999] == peer + 1 && y[2999] == peer + 1);
        });
    }
}

TEST_CASE("a device_group that is destroyed without launch() says so, also one in a chain") {
    collx_test::caught_stderr caught;
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        w.set_checked(false);
        const auto c = w.with(gpus{r});
        memory x(g, w.rank(), 10, w.rank());
        device_group(c).all_reduce(x).broadcast(x, 0).launch();
        if (w.rank() == 1) {
            device_group group(c);
            group.send(x, 0);
            (void)device_group(c).recv(x, 0).all_reduce(x);
        }
        synchronize(c);
        EXPECT(x[0] == 1); // the sum that was launched
    });
    CHECK(caught.text() ==
          "collx: warning: rank 1: a group was destroyed without launch(): none of its 2 calls was made, "
          "the first is recv (call launch())\n"
          "collx: warning: rank 1: a group was destroyed without launch(): none of its 1 calls was made, "
          "the first is send (call launch())\n");
}

TEST_CASE("counts that differ are named, and what cannot be is refused") {
    for (const bool staged : {false, true}) {
        fake_gpus g;
        on_gpus(2, g, [&](communicator& w, fake_runtime r) {
            const auto c = w.with(gpus{r});
            const int me = w.rank();
            const std::size_t n = 10, half = 5;
            memory x(g, me, n, me), y(g, me, n), whole(g, me, 2 * n);
            const std::vector<std::size_t> wrong_number{1, 2, 3}, none;
            const auto refuses = [&](const char* text, auto&& f) {
                const auto e = thrown<invalid_argument>(w, f);
                if (!says(e, text)) throw wrong(std::string(e.what()) + " instead of " + text);
            };
            refuses("a message is between two", [&] { collx::send(c, x, 1 - me); });
            use_device(c, small(staged));
            refuses("peer 2 of 2 ranks", [&] { collx::send(c, x, 2); });
            refuses("peer -1 of 2 ranks", [&] { sendrecv(c, x, 1 - me, y, -1); });
            refuses("to itself alone", [&] { collx::recv(c, x, me); });
            refuses("to itself has 10 elements, and it receives 5",
                    [&] { sendrecv(c, x, me, device_view<int>(y.data(), half), me); });
            refuses("to itself has 5 elements, and it receives 10",
                    [&] { sendrecv(c, device_view<int>(x.data(), half), me, y, me); });
            refuses("has no root", [&] { collx::send(c, x, 1 - me, {.root = 1}); });
            refuses("has no root", [&] { sendrecv(c, x, 1 - me, y, 1 - me, {.root = 1}); });
            refuses("has no root", [&] { neighbor_all_gather(c, neighbors{{me}, {me}}, x, y, {.root = 1}); });
            refuses("has no root", [&] { barrier(c, device_call_options{.root = 1}); });
            device_group once(c);
            once.broadcast(y, 1);
            refuses("has no root", [&] { once.launch({.root = 1}); });
            once.launch();
            refuses("root 7 of 2 ranks", [&] { gather(c, x, whole, {.root = 7}); });
            refuses("has 10 elements and needs 20", [&] { gather(c, x, y, {.root = me}); });
            refuses("input buffer has 10 elements and needs 20", [&] { scatter(c, x, y, {.root = me}); });
            refuses("3 numbers for 2 ranks", [&] { all_gather_v(c, x, whole, wrong_number); });
            refuses("counts need 11", [&] { all_to_all_v(c, x, std::vector{5, 6}, y, std::vector{5, 5}); });
            refuses("overlap", [&] { all_to_all_v(c, x, std::vector{5, 5}, x, std::vector{5, 5}); });
            refuses("overlap",
                    [&] { scan(c, device_view<int>(x.data(), half), device_view<int>(x.data() + 1, half)); });
            refuses("group's buffer lies in the host's", [&] {
                device_group group(c);
                int on_the_host = 0;
                group.send(device_view<int>(&on_the_host, 1), 1 - me);
                group.launch();
            });
            barrier(c, device_call_options{});
            synchronize(c); // none of these errors had an effect
            // Always when staged; with kernels only if calls are checked. Too long by several whole pieces.
            w.set_checked(!staged);
            memory many(g, me, 20'000);
            if (me == 0) { // part of the message may have been sent before the error is found
                (void)try_::send(c, many, 1);
                try {
                    synchronize(c);
                } catch (const error& e) {
                    EXPECT(e.code() != errc::timeout);
                }
            } else {
                const auto e = thrown<mismatch>(w, [&] {
                    collx::recv(c, device_view<int>(many.data(), 2048), 0);
                    synchronize(c);
                });
                EXPECT(e.peer() == 0);
                EXPECT(says(e, "rank 0 sends 80000 bytes, and this rank receives 8192"));
            }
        });
        on_gpus(2, g, [&](communicator& w, fake_runtime r) {
            const auto c = w.with(gpus{r});
            use_device(c, small(staged));
            w.set_checked(true);
            memory x(g, w.rank(), 100), y(g, w.rank(), 100);
            const std::vector<std::size_t> equal{50, 50}, wide{60, 40}, odd{50, 40};
            const auto e = thrown<mismatch>(w, [&] {
                if (w.rank() == 0) all_to_all_v(c, x, equal, y, equal);
                else all_to_all_v(c, x, wide, y, odd);
                synchronize(c);
            });
            EXPECT(says(e, "rank 1 sends 60 elements to rank 0, where the counts say 50"));
        });
    }
}

// Element i of the sum of `ranks` inputs in which rank r has r + i.
int sum_of(int ranks, std::size_t i) { return ranks * (ranks - 1) / 2 + ranks * static_cast<int>(i); }

TEST_CASE("collectives of a group that follow one another and are of one kind are one kernel") {
    constexpr int ranks = 3;
    fake_gpus g;
    std::atomic<int>& launches = g.fused_launches;
    on_gpus(ranks, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r});
        use_device(c, small());
        const int me = w.rank();
        std::vector<std::unique_ptr<memory>> x;
        const auto fill_all = [&] {
            for (const auto& m : x)
                for (std::size_t i = 0; i < m->collx_buffer().size(); ++i) (*m)[i] = me + static_cast<int>(i);
        };
        // 20 short sums of different lengths (one empty), which use one lane or two.
        for (std::size_t k = 0; k < 20; ++k) x.push_back(std::make_unique<memory>(g, me, k * 97));
        fill_all();
        const auto kernels_of = [&](auto&& f) { // of all ranks
            barrier(w);
            const int before = launches.load();
            barrier(w);
            f();
            synchronize(c);
            barrier(w);
            return launches.load() - before;
        };
        device_group group(c);
        const int few = kernels_of([&] {
            for (const auto& m : x) group.all_reduce(*m);
            group.launch();
        });
        EXPECT(few == 2 * ranks); // 16 and 4 calls
        for (const auto& m : x)
            for (std::size_t i = 0; i < m->collx_buffer().size(); ++i) EXPECT_AT(i, (*m)[i] == sum_of(ranks, i));

        // Another kind in between, another length (LL words end at 256 KiB), another operator.
        x.clear();
        for (const std::size_t n : {10u, 20u, 80'000u, 90'000u, 40u, 5u, 6u})
            x.push_back(std::make_unique<memory>(g, me, n));
        fill_all();
        const int kinds = kernels_of([&] {
            group.all_reduce(*x[0]);
            group.all_reduce(*x[1]);
            group.all_reduce(*x[2]);
            group.all_reduce(*x[3]);
            group.all_reduce(*x[4], collx::max{});
            group.broadcast(*x[5], 2);
            group.broadcast(*x[6], 1);
            group.launch();
        });
        EXPECT(kinds == 4 * ranks);
        for (const int k : {0, 1, 2, 3})
            for (std::size_t i = 0; i < x[static_cast<std::size_t>(k)]->collx_buffer().size(); ++i)
                EXPECT_AT(i, (*x[static_cast<std::size_t>(k)])[i] == sum_of(ranks, i));
        EXPECT((*x[4])[39] == ranks - 1 + 39);
        EXPECT((*x[5])[4] == 2 + 4 && (*x[6])[5] == 1 + 5);

        // A call that uses another one's output stays behind it, whether on one rank or on all.
        x.clear();
        for (int k = 0; k < 3; ++k) x.push_back(std::make_unique<memory>(g, me, 5000));
        fill_all();
        memory whole(g, me, 15'000), again(g, me, 45'000);
        const int in_order = kernels_of([&] {
            group.all_reduce(*x[0]);
            group.all_reduce(*x[0]);
            group.all_reduce(*x[me == 0 ? 0 : 1]);
            group.all_reduce(*x[2]);
            group.all_gather(*x[0], whole);
            group.all_gather(whole, again);
            group.launch();
        });
        EXPECT(in_order == 4 * ranks + 1);
        for (std::size_t i = 0; i < 5000; ++i) {
            const int once = sum_of(ranks, i), twice = ranks * once;
            // Rank 0 gave its sums to the third call, the other ranks their inputs.
            const int third = twice + 1 + 2 + 2 * static_cast<int>(i);
            EXPECT_AT(i, (*x[0])[i] == (me == 0 ? third : twice));
            EXPECT_AT(i, (*x[1])[i] == (me == 0 ? static_cast<int>(i) : third));
            EXPECT_AT(i, (*x[2])[i] == once);
            for (std::size_t part_of_it = 0; part_of_it < 9; ++part_of_it)
                EXPECT_AT(i, again[part_of_it * 5000 + i] == (part_of_it % 3 == 0 ? third : twice));
        }
    });
    CHECK(g.pieces() == 0);
}

using floats = device_memory<float>;

// The group type of all tests: messages of words, sums, all_gathers and broadcasts, any number of each.
template <class Comm>
using mixed_group = decltype(device_group(std::declval<Comm&>())
                                 .send(std::declval<memory&>(), 0)
                                 .recv(std::declval<memory&>(), 0)
                                 .all_reduce(std::declval<memory&>())
                                 .all_gather(std::declval<memory&>(), std::declval<memory&>())
                                 .broadcast(std::declval<memory&>(), 0)
                                 .broadcast(std::declval<floats&>(), 0));

// Calls of several kinds, types and lengths; with n elements where one lane is not enough.
void check_chain(communicator& w, fake_runtime r, fake_gpus& g, std::size_t n, bool by_kernels) {
    auto c = w.with(gpus{r});
    const int ranks = w.size(), me = w.rank(), next = (me + 1) % ranks, last = (me + ranks - 1) % ranks;
    const auto all = static_cast<std::size_t>(ranks);
    at("%d ranks, %zu elements, %s", ranks, n, by_kernels ? "kernels" : "host");
    device::fake_stream s(me);
    memory sent(g, me, n), got(g, me, n), few(g, me, 33), many(g, me, n), mine(g, me, n), whole(g, me, n * all),
        seed(g, me, 3), more(g, me, 44, me), got_more(g, me, 44);
    floats shared(g, me, 501);
    std::vector<std::unique_ptr<memory>> layers;
    for (std::size_t k = 0; k < 12; ++k) layers.push_back(std::make_unique<memory>(g, me, 50 * k));
    const auto begin = [&] {
        for (std::size_t i = 0; i < 33; ++i) few[i] = me + static_cast<int>(i);
        for (std::size_t i = 0; i < n; ++i) {
            sent[i] = part(me, 0, i);
            mine[i] = part(me, 1, i);
            got[i] = -1;
        }
        for (std::size_t i = 0; i < n; ++i) many[i] = me + static_cast<int>(i);
        for (std::size_t i = 0; i < 501; ++i) shared[i] = value(me, i);
        for (std::size_t i = 0; i < 44; ++i) got_more[i] = -1;
        for (const auto& x : layers)
            for (std::size_t i = 0; i < x->collx_buffer().size(); ++i) (*x)[i] = me + static_cast<int>(i);
        seed[2] = me;
    };
    const auto check = [&] {
        synchronize(c, {.stream = &s});
        for (std::size_t i = 0; i < 33; ++i) EXPECT_AT(i, few[i] == sum_of(ranks, i));
        for (std::size_t i = 0; i < n; ++i) EXPECT_AT(i, got[i] == part(last, 0, i) && many[i] == sum_of(ranks, i));
        for (std::size_t i = 0; i < n * all; ++i) EXPECT_AT(i, whole[i] == part(static_cast<int>(i / n), 1, i % n));
        for (std::size_t i = 0; i < 501; ++i) EXPECT_AT(i, shared[i] == value(ranks - 1, i));
        for (std::size_t i = 0; i < 44; ++i) EXPECT_AT(i, got_more[i] == last);
        for (const auto& x : layers)
            for (std::size_t i = 0; i < x->collx_buffer().size(); ++i) EXPECT_AT(i, (*x)[i] == sum_of(ranks, i));
        EXPECT(seed[2] == 0);
    };
    const auto launch_all = [&] {
        auto group = device_group(c)
                         .send(sent, next)
                         .recv(got, last)
                         .all_reduce(few)
                         .all_gather(mine, whole)
                         .broadcast(seed, 0)
                         .broadcast(shared, ranks - 1);
        static_assert(std::is_same_v<decltype(group), mixed_group<decltype(c)>>);
        // Any number of calls of each kind, also a second message to the same rank.
        group.all_reduce(many);
        group.send(more, next);
        group.recv(got_more, last);
        for (const auto& x : layers) group.all_reduce(*x);
        EXPECT(group.size() == 21);
        group.launch({.stream = &s});
    };
    begin();
    const int launches = kernels_of(w, g, launch_all);
    check(); // first, because it waits for kernels that use this memory
    if (by_kernels) EXPECT(launches == ranks);
    begin();
    fake_runtime::begin_capture(s);
    launch_all();
    const auto graph = fake_runtime::end_capture(s);
    if (by_kernels) EXPECT(graph.size() == 1);
    for (int k = 0; k < 2; ++k) {
        begin();
        fake_runtime::launch(graph, s);
        check();
    }
}

TEST_CASE("a group that is one chain is one kernel, whatever its kinds") {
    for (const int ranks : {2, 3, 4}) {
        fake_gpus g;
        on_gpus(ranks, g, [&](communicator& w, fake_runtime r) {
            use_device(w.with(gpus{r}), small());
            for (const std::size_t n : {0u, 5u, 20'000u}) check_chain(w, r, g, n, true);
        });
        CHECK(g.pieces() == 0);
    }
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        use_device(w.with(gpus{r}), small(true));
        check_chain(w, r, g, 3000, false);
    });
}

namespace {
// Adds what lies elsewhere, from behind, so that an element needs what other blocks have stored.
struct add_from {
    const int* from;
    std::size_t n;
    int operator()(int x, hook_context c) const { return x + from[n - 1 - c.index]; }
};
struct scaled_by {
    int factor;
    int operator()(int x) const { return x * factor; }
};
static_assert(!detail::may_refer_v<plus> && !detail::may_refer_v<with_post_op<commutative_op<collx::max>, scaled_by>>);
static_assert(!detail::may_refer_v<premultiplied_sum<double>> && detail::may_refer_v<premultiplied_sum<add_from>>);
static_assert(detail::may_refer_v<commutative_op<with_pre_op<plus, add_from>>>);
} // namespace

TEST_CASE("a hook of a group's call reads what the call before it has written") {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r});
        use_device(c, small());
        const int me = w.rank();
        const std::size_t n = 20'000;
        memory bias(g, me, n, 5), y(g, me, n, 1), z(g, me, n, 1);
        const auto with_bias = with_post(plus{}, add_from{bias.data(), n}),
                   with_sum = with_post(plus{}, add_from{y.data(), n});
        const int apart = kernels_of(w, g, [&] {
            device_group group(c);
            group.all_reduce(y, with_bias);
            group.all_reduce(z, with_sum);
            group.launch();
            synchronize(c);
        });
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < n; ++i) wrong += y[i] != 7 || z[i] != 9;
        EXPECT(apart == 2 * 2 && wrong == 0);
        const int chained = kernels_of(w, g, [&] {
            device_group(c).all_reduce(y, with_bias).all_reduce(z, with_sum).launch();
            synchronize(c);
        });
        for (std::size_t i = 0; i < n; ++i) wrong += y[i] != 19 || z[i] != 37;
        EXPECT(chained == 2 * 2 && wrong == 0);
        const int together = kernels_of(w, g, [&] { // a factor is no pointer
            device_group group(c);
            group.all_reduce(y, with_post(plus{}, scaled_by{2}));
            group.all_reduce(z, with_post(plus{}, scaled_by{3}));
            group.launch();
            synchronize(c);
        });
        EXPECT(together == 2 && y[0] == 4 * 19 && z[0] == 6 * 37);
    });
    CHECK(g.pieces() == 0);
}

TEST_CASE("what a chain's calls need begins another kernel, and what is wrong in it is named") {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        auto c = w.with(gpus{r});
        use_device(c, small());
        const int me = w.rank(), other = 1 - me;
        memory x(g, me, 100, 1), y(g, me, 100, me), z(g, me, 100);
        mixed_group<decltype(c)> group(c);
        // Received data is reduced, then sent to all: three kernels. Data that is only read twice needs one kernel.
        const int in_order = kernels_of(w, g, [&] {
            group.send(y, other);
            group.recv(z, other);
            group.all_reduce(z);
            group.broadcast(z, 1);
            group.broadcast(x, 0);
            group.launch();
            synchronize(c);
        });
        EXPECT(in_order == 3 * 2 && z[99] == 1 && x[0] == 1);
        // More calls than fit into a kernel.
        const int many = kernels_of(w, g, [&] {
            group.all_reduce(x);
            group.broadcast(y, 0);
            for (std::size_t k = 0; k < 31; ++k) group.broadcast(device_view<int>(z.data() + k, 1), 0);
            group.launch();
            synchronize(c);
        });
        EXPECT(many == 2 * 2 && x[99] == 2 && y[0] == 0);

        // One rank makes one kernel of its calls, the other three.
        device_group plain(c);
        const auto add = [&](auto& to) {
            to.send(y, other);
            to.recv(device_view<int>(z.data(), 100), other);
            to.all_reduce(device_view<int>(x.data(), 60));
            to.broadcast(device_view<int>(x.data() + 60, 40), 0);
            to.launch();
        };
        for (std::size_t i = 0; i < 100; ++i) x[i] = y[i] = me + 1;
        const int uneven = kernels_of(w, g, [&] {
            if (me == 0) add(group);
            else add(plain);
            synchronize(c);
        });
        EXPECT(uneven == 1 + 3 && z[99] == other + 1 && x[59] == 3 && x[60] == 1);
        for (std::size_t i = 0; i < 100; ++i) {
            x[i] = 2;
            y[i] = 0;
        }

        int on_the_host = 0;
        const device_view<int> wrong(&on_the_host, 1);
        group.broadcast(x, 1);
        group.all_reduce(y);
        group.broadcast(wrong, 0);
        const auto e = thrown<invalid_argument>(w, [&] { group.launch(); });
        EXPECT(says(e, "call 3 of the group: the input buffer lies in the host's memory") && e.rank() == me);
        group.all_reduce(x);
        group.send(wrong, other);
        group.recv(z, other);
        const auto in_message = thrown<invalid_argument>(w, [&] { group.launch(); });
        EXPECT(says(in_message, "group's buffer lies in the host's memory"));
        synchronize(c);
        EXPECT(x[99] == 2); // only the calls before the wrong ones were made
        barrier(w);
        g.busy = g.what().processors;
        barrier(w);
        group.send(x, other);
        group.recv(y, other);
        group.all_reduce(z);
        const auto full = thrown<error>(w, [&] { group.launch(); });
        EXPECT(full.code() == errc::resource &&
               says(full, "the messages and calls 1 to 1 of the group: launching a fused kernel"));
        barrier(w);
        g.busy = 0;
        barrier(w);
        // The same calls in another order on rank 1.
        if (me == 0) {
            group.all_reduce(x);
            group.broadcast(y, 1);
        } else {
            group.broadcast(y, 1);
            group.all_reduce(x);
        }
        const auto differ = thrown<mismatch>(w, [&] {
            group.launch();
            synchronize(c);
            barrier(c, device_call_options{});
            synchronize(c);
        });
        EXPECT(differ.peer() >= 0);
        EXPECT(says(differ, "in broadcast and this rank in all_reduce") ||
               says(differ, "in all_reduce and this rank in broadcast") || says(differ, "in different calls") ||
               says(differ, "of another call"));
        r.synchronize(nullptr); // before memory is freed that kernels use
    });
}

TEST_CASE("groups in a graph, on their way by the host, and by a bound algorithm") {
    for (const bool staged : {false, true}) {
        fake_gpus g;
        on_gpus(2, g, [&](communicator& w, fake_runtime r) {
            const auto c = w.with(gpus{r}, algo::ring_all_reduce{});
            use_device(c, small(staged));
            const int me = w.rank();
            device::fake_stream s(me);
            memory x(g, me, 4000, 1), y(g, me, 300, 2), in(g, me, 2000, 3), out(g, me, 1000), all(g, me, 2000);
            fake_runtime::begin_capture(s);
            device_group group(c);
            group.all_reduce(x);
            group.all_reduce(y);
            group.reduce_scatter(in, out);
            group.all_to_all(in, all);
            group.launch({.stream = &s});
            const auto graph = fake_runtime::end_capture(s);
            if (!staged) EXPECT(graph.size() == 3);
            for (int k = 0; k < 3; ++k) fake_runtime::launch(graph, s);
            synchronize(c, {.stream = &s});
            EXPECT(x[3999] == 8 && y[299] == 16 && out[999] == 6 && all[1999] == 3);
        });
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("errors of a group name the call and the rank, and calls before it are made") {
    fake_gpus g;
    std::atomic<bool> has_heard{false};
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r});
        use_device(c, small());
        const int me = w.rank();
        memory x(g, me, 10, 1), y(g, me, 10, 1), z(g, me, 10, 1);
        int on_the_host = 0;
        device_group group(c);
        group.all_reduce(x);
        group.all_reduce(y);
        group.broadcast(device_view<int>(&on_the_host, 1), 0);
        const auto e = thrown<invalid_argument>(w, [&] { group.launch(); });
        EXPECT(says(e, "call 3 of the group: the input buffer lies in the host's memory") && e.rank() == me);
        synchronize(c);
        EXPECT(x[9] == 2 && y[9] == 2);
        barrier(w);
        g.busy = g.what().processors;
        barrier(w);
        group.all_reduce(x);
        group.all_reduce(y);
        group.broadcast(z, 1);
        const auto full = thrown<error>(w, [&] { group.launch(); });
        EXPECT(full.code() == errc::resource && says(full, "calls 1 to 2 of the group: launching a fused kernel"));
        barrier(w);
        g.busy = 0;
        barrier(w);
        if (me == 1) return until([&] { return has_heard.load(); }); // it makes no call
        group.all_reduce(x);
        group.all_reduce(y);
        group.all_reduce(z);
        group.launch({.timeout = std::chrono::milliseconds(300)});
        const auto late = thrown<timed_out>(w, [&] { synchronize(c); });
        EXPECT(says(late, "call 1 of the group: a kernel waited too long for") && late.peer() == 1);
        has_heard = true;
    });
}

TEST_CASE("kernels of calls that are not checked find out that ranks are in different ones") {
    fake_gpus g;
    const auto cut = [](memory& m, std::size_t n) { return device_view<int>(m.data(), n); };
    const auto disagree = [&](const char* what, int ranks, auto&& odd_call, auto&& call,
                              std::vector<const char*> texts) {
        on_gpus(ranks, g, [&](communicator& w, fake_runtime r) {
            const auto c = w.with(gpus{r});
            use_device(c, small());
            w.set_timeout(collx_test::patient(std::chrono::seconds(40)));
            const int me = w.rank();
            memory x(g, me, 6000, 1), y(g, me, 6000, 1), z(g, me, 18'000);
            struct drained { // waits before memory is freed that kernels use
                fake_runtime& runtime;
                ~drained() { runtime.synchronize(nullptr); }
            } const last{r};
            at("%s, %d ranks", what, ranks);
            const std::int64_t began = now_ns();
            const auto e = thrown<mismatch>(w, [&] {
                // correct
                all_reduce(c, x);
                all_gather(c, cut(y, 500), cut(z, 500 * static_cast<std::size_t>(ranks)));
                synchronize(c);
                if (me == 1) odd_call(c, x, y, z);
                else call(c, x, y, z);
                synchronize(c);
                barrier(c, device_call_options{}); // a rank that only sends may get the error in the next call
                synchronize(c);
            });
            at("%s: rank %d: %s", what, me, e.what());
            bool found = false;
            for (const char* t : texts) found = found || says(e, t);
            EXPECT(found);
            EXPECT(e.peer() >= 0 && e.peer() < ranks && now_ns() - began < collx_test::patient(30'000'000'000));
            EXPECT(thrown<mismatch>(w, [&] { all_reduce(c, x); }).peer() >= 0); // the communicator stays failed
        });
    };
    const auto reduces = [&](std::size_t n) {
        return [=](auto& c, auto& x, auto&, auto&) { all_reduce(c, cut(x, n)); };
    };
    // The last text comes from the barrier behind the call, if a slow rank learns of the error there first.
    const auto others = {"are in different calls", "has another size than this call expects", "or of another call"};
    const auto with = [&](std::vector<const char*> t) {
        t.insert(t.end(), others.begin(), others.end());
        return t;
    };
    for (const int ranks : {2, 3}) {
        disagree("few, packets", ranks, reduces(20), reduces(10),
                 with({"count is 20 on rank 1 and 10 on this", "count is 10 on rank"}));
        disagree("in packets of one length", ranks, reduces(1001), reduces(1000),
                 with({"count is 1001 on rank 1", "count is 1000 on rank"}));
        disagree(
            "another operator", ranks, [](auto& c, auto& x, auto&, auto&) { all_reduce(c, x, collx::max{}); },
            [](auto& c, auto& x, auto&, auto&) { all_reduce(c, x); }, with({"element type, operator"}));
        disagree(
            "another type", ranks,
            [](auto& c, auto& x, auto&, auto&) {
                broadcast(c, device_view<float>(reinterpret_cast<float*>(x.data()), 100));
            },
            [&](auto& c, auto& x, auto&, auto&) { broadcast(c, cut(x, 100)); }, with({"element type, operator"}));
        disagree(
            "another verb", ranks, [&](auto& c, auto& x, auto&, auto&) { broadcast(c, cut(x, 100)); }, reduces(100),
            with({"rank 1 is in broadcast and this rank in all_reduce", "is in all_reduce and this rank in broad"}));
        disagree(
            "another root", ranks, [&](auto& c, auto& x, auto&, auto&) { broadcast(c, cut(x, 5000), {.root = 1}); },
            [&](auto& c, auto& x, auto&, auto&) { broadcast(c, cut(x, 5000)); },
            with({"the root is 1 on rank 1 and 0 on this rank", "the root is 0 on rank"}));
        disagree(
            "one lane and two", ranks,
            [&](auto& c, auto& x, auto& y, auto&) { reduce_scatter(c, cut(x, 5400), cut(y, 5400 / ranks)); },
            [&](auto& c, auto& x, auto& y, auto&) { reduce_scatter(c, cut(x, 6), cut(y, 6 / ranks)); },
            with({"in reduce_scatter the count is"}));
        disagree(
            "a verb whose parts are messages", ranks,
            [&](auto& c, auto& x, auto& y, auto&) { gather(c, cut(x, 10), cut(y, 10 * ranks), {.root = 1}); },
            reduces(100), with({"is in gather and this rank in all_reduce", "in all_reduce and this rank in gather"}));
        disagree(
            "a group", ranks,
            [&](auto& c, auto& x, auto& y, auto&) {
                device_group group(c);
                group.all_reduce(cut(x, 50));
                group.all_reduce(cut(y, 49));
                group.launch();
            },
            [&](auto& c, auto& x, auto& y, auto&) {
                device_group group(c);
                group.all_reduce(cut(x, 50));
                group.all_reduce(cut(y, 50));
                group.launch();
            },
            with({"count is 49 on rank 1", "count is 50 on rank"}));
    }
    const auto exchange = [&](std::size_t out, std::size_t in) {
        return [=](auto& c, auto& x, auto& y, auto&) {
            all_to_all_v(c, x, std::vector{out, std::size_t{5}, std::size_t{5}}, y,
                         std::vector{in, std::size_t{5}, std::size_t{5}});
        };
    };
    disagree(
        "a part of another length", 3,
        [&](auto& c, auto& x, auto& y, auto&) {
            all_to_all_v(c, x, std::vector{60, 5, 5}, y, std::vector{5, 5, 5});
        },
        exchange(5, 5), with({"rank 1 sends 240 bytes, and this rank receives 20"}));
    disagree(
        "a part that is not sent", 3,
        [&](auto& c, auto& x, auto& y, auto&) {
            all_to_all_v(c, x, std::vector{0, 5, 5}, y, std::vector{5, 5, 5});
        },
        exchange(5, 5), with({"rank 1 sends 0 bytes, and this rank receives 20"}));
    disagree(
        "a message of another length", 2, [&](auto& c, auto& x, auto&, auto&) { collx::send(c, cut(x, 3000), 0); },
        [&](auto& c, auto& x, auto&, auto&) { collx::recv(c, cut(x, 300), 1); },
        with({"rank 1 sends 12000 bytes, and this rank receives 1200"}));
    disagree(
        "a message that no rank receives", 2,
        [&](auto& c, auto& x, auto& y, auto&) {
            collx::send(c, cut(x, 3), 0);
            gather(c, cut(x, 3), cut(y, 6), {.root = 0});
        },
        [&](auto& c, auto& x, auto& y, auto&) { gather(c, cut(x, 3), cut(y, 6), {.root = 0}); },
        with({"sent 12 bytes in another call than the one that receives 12"}));
    CHECK(g.fused_launches > 0);
}

// Two ranks that only send: the first is done before the other begins.
TEST_CASE("what a rank says too late for a call is compared in the next one") {
    fake_gpus g;
    std::atomic<bool> is_done{false};
    for (const std::size_t odd : {0u, 4u}) {
        is_done = false;
        on_gpus(3, g, [&](communicator& w, fake_runtime r) {
            at("%zu elements for rank 0", odd);
            const auto c = w.with(gpus{r});
            use_device(c, small());
            const int me = w.rank();
            memory x(g, me, 100, me), y(g, me, 100);
            const std::vector<std::size_t> none(3), from_all{5, 5, 0};
            if (me == 1)
                for (const deadline limit = deadline::in_ns(collx_test::patient(40'000'000'000));
                     !is_done && !limit.passed();)
                    sched_yield();
            all_to_all_v(c, x, me == 2 ? none : std::vector<std::size_t>{me == 1 ? odd : 0, 0, 5}, y,
                         me == 2 ? from_all : none);
            if (me == 0) {
                synchronize(c);
                is_done = true;
            }
            const auto next = [&] {
                barrier(c, device_call_options{});
                synchronize(c);
            };
            if (odd == 0) {
                next();
                EXPECT(me != 2 || (y[0] == 0 && y[9] == 1));
                return;
            }
            const auto e = thrown<mismatch>(w, [&] {
                next();
                if (me != 0) next(); // other ranks may finish before rank 0 finds the mismatch
            });
            at("rank %d: %s", me, e.what());
            EXPECT(me != 0 || (e.peer() == 1 && says(e, "rank 1 sends 16 bytes, and this rank receives 0")));
        });
    }
}

// The number of threads of this process that block this signal.
int threads_that_block(int signal) {
    int count = 0;
    DIR* const all = ::opendir("/proc/self/task");
    while (const dirent* d = all != nullptr ? ::readdir(all) : nullptr) {
        std::FILE* const f = std::fopen((std::string("/proc/self/task/") + d->d_name + "/status").c_str(), "r");
        unsigned long long mask = 0;
        char line[200];
        while (f != nullptr && std::fgets(line, sizeof line, f) != nullptr)
            if (std::sscanf(line, "SigBlk: %llx", &mask) == 1) break;
        if (f != nullptr) std::fclose(f);
        count += (mask >> (signal - 1) & 1) != 0;
    }
    if (all != nullptr) ::closedir(all);
    return count;
}

TEST_CASE("the program's signal handlers do not run on the threads beside the kernels") {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r});
        use_device(c, small(true));
        memory x(g, w.rank(), 10, 1);
        all_reduce(c, x);
        synchronize(c);
        barrier(w);
        collx_test::until([&] { return threads_that_block(SIGUSR1) == w.size(); }); // a thread that ends blocks all
        sigset_t now;
        ::pthread_sigmask(SIG_BLOCK, nullptr, &now);
        EXPECT(::sigismember(&now, SIGUSR1) == 0 && x[9] == 2);
        barrier(w);
    });
}

TEST_CASE("parts in a graph, replayed, and barriers of streams") {
    for (const bool staged : {false, true}) {
        fake_gpus g;
        on_gpus(2, g, [&](communicator& w, fake_runtime r) {
            const auto c = w.with(gpus{r});
            use_device(c, small(staged));
            const int me = w.rank();
            device::fake_stream s(me);
            memory x(g, me, 3000, 1), parts(g, me, 6000), back(g, me, 3000);
            fake_runtime::begin_capture(s);
            gather(c, x, parts, {.stream = &s, .root = 1});
            scatter(c, parts, back, {.stream = &s, .root = 1});
            scan(c, back, x, plus{}, {.stream = &s});
            barrier(c, device_call_options{.stream = &s});
            const auto graph = fake_runtime::end_capture(s);
            for (int k = 0; k < 3; ++k) fake_runtime::launch(graph, s);
            synchronize(c, {.stream = &s});
            // x of rank 0 stays 1; x of rank 1 grows by it each time.
            EXPECT(x[0] == 1 + 3 * me && x[2999] == 1 + 3 * me);

            static std::atomic<int> came{0};
            if (me == 0) {
                barrier(w);
                came = 1;
            }
            barrier(c, device_call_options{.stream = &s});
            bool was_there = false;
            s.put([&] { was_there = came.load() == 1; });
            if (me == 1) barrier(w); // only now may rank 0 continue
            synchronize(c, {.stream = &s});
            EXPECT(was_there);
            barrier(w);
            if (me == 0) came = 0;
        });
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("counts and offsets beyond 2^31") {
    constexpr std::size_t far = (std::size_t{1} << 32) + 4096;
    // Memory whose pages are allocated only when accessed.
    for (const bool staged : {false, true}) {
        fake_gpus g;
        on_gpus(2, g, [&](communicator& w, fake_runtime r) {
            const auto c = w.with(gpus{r});
            use_device(c, small(staged));
            const int me = w.rank();
            const auto mine = static_cast<std::size_t>(me);
            auto* p = static_cast<unsigned char*>(g.allocate(2 * far + 100, me));
            const device_view<unsigned char> x(p, 2 * far + 100);
            device_memory<unsigned char> mine_here(g, me, 100);
            for (std::size_t i = 0; i < 100; ++i)
                mine_here[i] = static_cast<unsigned char>(me * 100 + static_cast<int>(i));
            const std::vector<std::size_t> sizes{100, 100}, at{7, 2 * far};
            all_gather_v(c, mine_here, x, sizes, at);
            synchronize(c);
            for (std::size_t i = 0; i < 100; ++i) {
                EXPECT_AT(i, p[7 + i] == i);
                EXPECT_AT(i, p[2 * far + i] == static_cast<unsigned char>(100 + i));
            }
            const std::size_t wrong = far + mine;
            const auto e = thrown<invalid_argument>(w, [&] { all_gather(c, device_view<unsigned char>(p, wrong), x); });
            EXPECT(says(e, std::to_string(2 * wrong).c_str())); // not truncated to 32 bits
            g.free(p);
        });
        CHECK(g.pieces() == 0);
    }
    // Pieces cover every element once.
    device::own_cuts cuts;
    cuts.sizes[0][0] = far;
    cuts.at[0][0] = 5;
    cuts.sizes[1][1] = 3 * far;
    cuts.at[1][1] = far;
    CHECK(cuts.largest(2, 2) == 3 * far);
    const std::size_t elems = 1 << 20;
    std::size_t next = far;
    for (std::size_t k = 0; k * elems < 3 * far; ++k) {
        const device::part one = device::cut(cuts, true, 0, 1, k, elems);
        if (one.at != next || one.count == 0) FAIL("piece " << k);
        next += one.count;
    }
    CHECK(next == 4 * far);
    CHECK(device::cut(cuts, false, 0, 0, far / elems, elems).count == 4096);
    device::staging_runs runs;
    runs.add(9, far);
    runs.add(3 * far, far);
    CHECK(runs.size() == 2 * far);
    CHECK(runs.index(far - 1) == far + 8);
    CHECK(runs.index(far) == 3 * far);
    const device::staging_range range{.at = 1, .count = far, .pitch = 2 * far, .blocks = 3};
    CHECK(range.index(2 * far + 6) == 4 * far + 7);
}
