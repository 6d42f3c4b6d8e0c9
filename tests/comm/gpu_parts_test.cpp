// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=nightly
//
// Calls on device memory in which ranks have parts: gather, scatter, the v-variants, scans, messages, barriers. Over
// the fake runtime, by kernels and by way of the host, with parts of no element and parts of many pieces, and what is
// refused. tests/comm/gpu_calls_test.cpp has the other verbs and what can go wrong in all of them.
#include "gpu_support.hpp"

#include <collx/algo/linear.hpp>
#include <collx/algo/ring.hpp>

namespace {

using memory = device_memory<int>;

// Element i of what rank `from` has for rank `to`.
int part(int from, int to, std::size_t i) { return from * 1'000'003 + to * 10'007 + static_cast<int>(i); }

// How many elements rank `from` has for rank `to`: none, one, or more than a slot and than a staging buffer.
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

template <class Comm>
void check_counts(communicator& w, Comm c, fake_gpus& g, void* s) {
    const int ranks = w.size(), me = w.rank(), root = ranks - 1;
    const auto n = static_cast<std::size_t>(ranks), mine = static_cast<std::size_t>(me);
    std::vector<std::size_t> to_me(n), from_me(n), shown(n), gaps(n);
    std::size_t out_all = 0, in_all = 0, shown_all = 0, gaps_end = 0;
    for (std::size_t k = 0; k < n; ++k) {
        const int r = static_cast<int>(k);
        in_all += from_me[k] = count(me, r), out_all += to_me[k] = count(r, me);
        shown_all += shown[k] = count(r, 1);
        gaps[k] = gaps_end + 3, gaps_end = gaps[k] + shown[k];
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
        for (std::size_t i = 0; i < 3; ++i) EXPECT_AT(i, whole[gaps[k] - 1 - i] == 0); // between parts
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
        EXPECT_AT(i, x[i] == (me == 0 ? k : up_to_me - k - me)); // rank 0 keeps what it held
    }
}

template <class Comm>
void check_messages(communicator& w, Comm c, fake_gpus& g, void* s) {
    const int ranks = w.size(), me = w.rank(), next = (me + 1) % ranks, last = (me + ranks - 1) % ranks;
    // A ring in which everybody sends first; messages of other lengths both ways; one rank to itself.
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
    if (me == 0) { // in order
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

template <class Comm>
void check_all(communicator& w, Comm c, fake_gpus& g) {
    device::fake_stream s(fake_runtime(g).current());
    for (const std::size_t n : {0u, 1u, 3001u}) check_rooted(w, c, g, &s, w.size() - 1, n), check_scans(w, c, g, &s, n);
    check_rooted(w, c, g, &s, 0, 77);
    check_counts(w, c, g, &s);
    check_messages(w, c, g, &s);
}

} // namespace

TEST_CASE("parts on device memory, by kernels and by way of the host") {
    for (const bool by_host : {false, true})
        for (const int ranks : {1, 2, 4}) {
            fake_gpus g;
            on_gpus(ranks, g, [&](communicator& w, fake_runtime r) {
                const auto c = w.with(gpus{r});
                use_device(c, small(by_host));
                at("ranks=%d by_host=%d", ranks, by_host);
                check_all(w, c, g);
                w.set_checked(true);
                check_counts(w, c, g, nullptr);
                check_messages(w, c, g, nullptr);
            });
            CHECK(g.pieces() == 0);
        }
}
