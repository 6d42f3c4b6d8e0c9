// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every library of verbs must do. A World has two devices that reach each other, left() and right(); the checks
// connect queue pairs of them. They require nothing that transport/verbs_device.hpp leaves open, such as how many
// completions report a failed queue pair, or how soon.
#pragma once

#include <algorithm>
#include <string>
#include <thread>

#include "support/patience.hpp"
#include "transport/channel_contract.hpp"
#include "transport/verbs_ends.hpp"

namespace collx_test {

// Data, then its head: heads of all lengths, writes of all lengths at odd offsets, and no other byte changed.
template <class World>
void check_writes_and_heads() {
    World world;
    constexpr std::size_t guard = 64, room = 4 << 20;
    verbs_ends e(world, {.sends = 2, .writes = 2, .receives = 2, .head_bytes = 128}, room + 2 * guard);
    std::uint64_t message = 0;
    const auto check = [&](std::uint32_t head, std::size_t bytes, std::size_t from, std::size_t to) {
        CAPTURE(head, bytes, from, to);
        std::fill(e.right.bytes.begin(), e.right.bytes.end(), std::byte{0x55});
        fill_message(e.left.bytes.data() + from, ++message, bytes);
        e.right.post_receive(message);
        REQUIRE(e.left.post({e.write(from, to, bytes)}, message, head));
        const auto c = e.right.next();
        REQUIRE(is_message(e.right.bytes.data() + to, message, bytes)); // at once: the head says that it is there
        REQUIRE((c.what == done::received && c.id == message && c.bytes == head));
        REQUIRE(is_message(e.right.head(message), message, head));
        const auto other = [&](std::byte b) { return b != std::byte{0x55}; };
        REQUIRE(std::none_of(e.right.bytes.data(), e.right.bytes.data() + to, other));
        REQUIRE(std::none_of(e.right.bytes.data() + to + bytes, e.right.bytes.data() + to + bytes + guard, other));
        REQUIRE(e.left.next().is(done::sent, message));
    };
    for (std::uint32_t head = 1; head <= std::min(128u, world.left().most_head_bytes()); head += head < 16 ? 1 : 7)
        check(head, head * 3, head % 7, head % 5);
    for (const std::size_t bytes : {0, 1, 2, 3, 4, 63, 64, 65, 1023, 4095, 4096, 4097, 65535, 65536, 65537, 1'000'003})
        check(16, bytes, bytes % 13, guard - bytes % 3);
    check(128, std::min<std::size_t>(room, world.left().most_write_bytes()), guard, guard);
}

// post() copies the head, so the caller may change it at once; without writes the head goes alone.
template <class World>
void check_heads_alone() {
    World world;
    verbs_ends e(world, {.sends = 8, .writes = 0, .receives = 8, .head_bytes = 64}, 64);
    for (std::uint64_t round = 0; round < 20; ++round) {
        for (std::uint64_t i = 0; i < 8; ++i) {
            e.right.post_receive(i);
            REQUIRE(e.left.post({}, round * 8 + i, static_cast<std::uint32_t>(16 + i)));
        }
        for (std::uint64_t i = 0; i < 8; ++i) {
            const auto c = e.right.next();
            REQUIRE((c.what == done::received && c.id == i && c.bytes == 16 + i));
            REQUIRE(is_message(e.right.head(i), round * 8 + i, c.bytes));
        }
        for (std::uint64_t i = 0; i < 8; ++i) REQUIRE(e.left.next().is(done::sent, round * 8 + i));
    }
}

// One head for many writes, in its own post and in posts before it: all writes are complete when it arrives.
template <class World>
void check_many_writes() {
    World world;
    constexpr std::size_t piece = 1500;
    constexpr int count = 64;
    verbs_ends e(world, {.sends = 1, .writes = count, .receives = 1, .head_bytes = 16}, piece * count);
    for (const int in_a_post : {count, 1, 5}) {
        CAPTURE(in_a_post);
        std::fill(e.right.bytes.begin(), e.right.bytes.end(), std::byte{});
        fill_message(e.left.bytes.data(), static_cast<std::uint64_t>(in_a_post), piece * count);
        e.right.post_receive(9);
        std::vector<collx::verbs_write> writes;
        for (std::size_t i = 0; i < count; ++i) {
            writes.push_back(e.write(i * piece, i * piece, piece));
            if (i + 1 == count) REQUIRE(e.left.post(writes, 9, 16));
            if (writes.size() != static_cast<std::size_t>(in_a_post) || i + 1 == count) continue;
            REQUIRE(e.left.post(writes, 0, 0));
            writes.clear();
        }
        REQUIRE(e.right.next().is(done::received, 9));
        REQUIRE(is_message(e.right.bytes.data(), static_cast<std::uint64_t>(in_a_post), piece * count));
        REQUIRE(e.left.next().is(done::sent, 9)); // and all write entries are free again
    }
}

// Keeps the allowed number under way, repeatedly: completions free entries, and ids complete in order.
template <class World>
void check_limits() {
    World world;
    constexpr std::uint64_t sends = 7, writes = 21, receives = 5, rounds = 30;
    verbs_ends e(world, {.sends = sends, .writes = writes, .receives = receives, .head_bytes = 32}, 64 * writes);
    std::uint64_t posted = 0, sent = 0, offered = 0, received = 0;
    const auto until = collx::deadline::in_ns(collx_test::patient(60'000'000'000));
    while (sent < rounds * sends || received < rounds * sends) {
        for (; offered < rounds * sends && offered - received < receives; ++offered) e.right.post_receive(offered);
        for (; posted < offered && posted - sent < sends; ++posted) {
            const std::size_t at = posted % sends * 3 * 64;
            fill_message(e.left.bytes.data() + at, posted, 3 * 64);
            REQUIRE(e.left.post({e.write(at, at, 64), e.write(at + 64, at + 64, 64), e.write(at + 128, at + 128, 64)},
                                posted, 32));
        }
        collx::verbs_completion c[3];
        for (int n = e.left.pair->poll(c, 3), i = 0; i < n; ++i) {
            REQUIRE((c[i].what == done::sent && c[i].id == sent));
            ++sent;
        }
        for (int n = e.right.pair->poll(c, 3), i = 0; i < n; ++i) {
            REQUIRE((c[i].what == done::received && c[i].id == received));
            REQUIRE(is_message(e.right.bytes.data() + received % sends * 3 * 64, received, 3 * 64));
            ++received;
        }
        REQUIRE(!until.passed());
    }
    collx::verbs_completion c[1];
    CHECK((e.left.pair->poll(c, 1) == 0 && e.right.pair->poll(c, 1) == 0)); // returns without waiting
    CHECK((e.left.pair->poll(c, 0) == 0));
}

// Both sides write and wait only for their own completions, each in its own thread.
template <class World>
void check_both_directions() {
    World world;
    constexpr std::uint64_t messages = 400;
    constexpr std::size_t depth = 4, slot = 3000;
    verbs_ends e(world, {.sends = depth, .writes = depth, .receives = depth, .head_bytes = 16}, 2 * depth * slot);
    // Half of the bytes is for sending, half for receiving. A head says how many messages its side has taken, so a
    // side may be ahead of what the peer has acknowledged by at most its depth.
    const auto run = [&](verbs_end& me, verbs_end& peer) -> int {
        std::uint64_t posted = 0, sent = 0, got = 0, taken_there = 0;
        const auto until = collx::deadline::in_ns(collx_test::patient(60'000'000'000));
        while (sent < messages || got < messages) {
            if (posted < messages && posted - sent < depth && posted - taken_there < depth && posted < got + 2) {
                const std::size_t at = posted % depth * slot, bytes = posted * 37 % slot + 1;
                fill_message(me.bytes.data() + at, posted, bytes);
                const collx::verbs_write w = write_between(me, at, peer, depth * slot + at, bytes);
                const std::uint64_t head[2] = {posted, got};
                if (!me.pair->post(&w, 1, head, sizeof head, posted)) return 1;
                ++posted;
            }
            collx::verbs_completion c[2];
            for (int n = me.pair->poll(c, 2), i = 0; i < n; ++i) {
                if (c[i].what == done::failed) return 2;
                if (c[i].what == done::sent) {
                    if (c[i].id != sent++) return 3;
                    continue;
                }
                std::uint64_t head[2];
                std::memcpy(head, me.head(c[i].id), sizeof head);
                if (c[i].id != got % depth || head[0] != got || c[i].bytes != sizeof head) return 4;
                taken_there = head[1];
                if (!is_message(me.bytes.data() + (depth + got % depth) * slot, got, got * 37 % slot + 1)) return 5;
                if (++got + depth <= messages) me.post_receive((got - 1) % depth);
            }
            if (until.passed()) return 6;
            std::this_thread::yield();
        }
        return 0;
    };
    for (std::uint64_t i = 0; i < depth; ++i) {
        e.left.post_receive(i);
        e.right.post_receive(i);
    }
    int there = -1;
    std::thread other([&] { there = run(e.right, e.left); });
    CHECK(run(e.left, e.right) == 0);
    other.join();
    CHECK(there == 0);
}

// Receives may be posted before connect(), and nothing arrives before it. Polling is allowed from the start.
template <class World>
void check_before_connecting() {
    World world;
    verbs_end left(world.left(), {1, 1, 1, 16}, 100), right(world.right(), {1, 1, 3, 16}, 100);
    collx::verbs_completion c[2];
    CHECK(left.pair->address().number != right.pair->address().number);
    CHECK((left.pair->address().number >> 24) == 0);
    CHECK(left.pair->poll(c, 2) == 0);
    for (std::uint64_t i = 0; i < 3; ++i) right.post_receive(i);
    CHECK(right.pair->poll(c, 2) == 0);
    left.pair->connect(right.pair->address());
    right.pair->connect(left.pair->address());
    for (std::uint64_t i = 0; i < 3; ++i) {
        fill_message(left.bytes.data(), i, 100);
        REQUIRE(left.post({write_between(left, 0, right, 0, 100)}, i, 16));
        REQUIRE(right.next().is(done::received, i));
        REQUIRE(is_message(right.bytes.data(), i, 100));
        REQUIRE(left.next().is(done::sent, i));
    }
}

// Memory may be registered twice, in parts, and as one byte; each key is valid for its own range only.
template <class World>
void check_memory() {
    World world;
    verbs_ends e(world, {4, 4, 4, 16}, 10'000);
    const auto part = world.right().register_memory(e.right.bytes.data() + 4001, 1);
    const auto again = world.right().register_memory(e.right.bytes.data(), 10'000);
    const auto mine = world.left().register_memory(e.left.bytes.data() + 77, 1);
    const auto address = [&](std::size_t i) { return reinterpret_cast<std::uint64_t>(e.right.bytes.data() + i); };
    e.left.bytes[77] = std::byte{1};
    e.left.bytes[78] = std::byte{2};
    const std::byte* const from = e.left.bytes.data();
    e.right.post_receive(0);
    REQUIRE(e.left.post({{from + 77, 1, mine->local_key, address(4001), part->remote_key},
                         {from + 77, 2, e.left.memory->local_key, address(9998), again->remote_key},
                         {from + 78, 1, e.left.memory->local_key, address(0), e.right.memory->remote_key}},
                        5, 16));
    REQUIRE(e.right.next().is(done::received, 0));
    CHECK((e.right.bytes[4001] == std::byte{1} && e.right.bytes[4000] == std::byte{}));
    CHECK((e.right.bytes[9998] == std::byte{1} && e.right.bytes[9999] == std::byte{2}));
    CHECK((e.right.bytes[0] == std::byte{2} && e.right.bytes[4002] == std::byte{}));
    REQUIRE(e.left.next().is(done::sent, 5));
}

// ------------------------------------------------------------------------------------------------ transfers
// Writes and reads without a head, of all lengths at odd offsets: the peer does not poll and is not notified. Written
// data is there once a later read has completed.
template <class World>
void check_transfers() {
    World world;
    constexpr std::size_t guard = 64, room = 1 << 20;
    verbs_ends e(world, {.receives = 1, .head_bytes = 16, .transfers = 2}, room + 2 * guard);
    std::uint64_t id = 0;
    for (const std::size_t bytes : {1, 2, 3, 63, 64, 65, 1023, 4095, 4096, 4097, 65'537, 1'000'003}) {
        CAPTURE(bytes);
        const std::size_t from = bytes % 13, to = guard - bytes % 3;
        const auto other = [](std::byte b) { return b != std::byte{0x55}; };
        std::fill(e.right.bytes.begin(), e.right.bytes.end(), std::byte{0x55});
        fill_message(e.left.bytes.data() + from, bytes, bytes);
        REQUIRE(e.left.post_alone(false, from, e.right, to, bytes, ++id));
        REQUIRE(e.left.next().is(done::sent, id));
        std::fill(e.left.bytes.begin(), e.left.bytes.end(), std::byte{0x55}); // the peer's device has the data
        REQUIRE(e.left.post_alone(true, to, e.right, from + 40, bytes, ++id));
        REQUIRE(e.left.next().is(done::sent, id));
        REQUIRE(is_message(e.right.bytes.data() + to, bytes, bytes));
        REQUIRE(std::none_of(e.right.bytes.data(), e.right.bytes.data() + to, other));
        REQUIRE(std::none_of(e.right.bytes.data() + to + bytes, e.right.bytes.data() + to + bytes + guard, other));
        REQUIRE(std::none_of(e.left.bytes.data(), e.left.bytes.data() + to, other));
        REQUIRE(std::none_of(e.left.bytes.data() + to + bytes, e.left.bytes.data() + to + bytes + guard, other));
        REQUIRE(e.left.post_alone(true, to, e.right, to, bytes, ++id));
        REQUIRE(e.left.next().is(done::sent, id));
        REQUIRE(is_message(e.left.bytes.data() + to, bytes, bytes));
    }
    collx::verbs_completion c;
    CHECK(e.right.pair->poll(&c, 1) == 0);
}

// Writes to one place arrive in order, and before the head that follows. Completions have the order of the posts.
template <class World>
void check_transfers_in_order() {
    World world;
    verbs_ends e(world, {.sends = 1, .writes = 1, .receives = 1, .head_bytes = 16, .transfers = 8}, 8 * 4096);
    for (std::uint64_t round = 0; round < 40; ++round) {
        e.right.post_receive(0);
        for (std::uint64_t i = 0; i < 8; ++i) {
            fill_message(e.left.bytes.data() + i * 4096, 8 * round + i, 4096);
            REQUIRE(e.left.post_alone(false, i * 4096, e.right, 100, 4096 - i, i));
        }
        REQUIRE(e.left.post({}, 8, 16));
        REQUIRE(e.right.next().is(done::received, 0));
        REQUIRE(is_message(e.right.bytes.data() + 100, 8 * round + 7, 4096 - 7));
        for (std::uint64_t i = 0; i <= 8; ++i) REQUIRE(e.left.next().is(done::sent, i));
        // A read between two writes sees the first of them.
        REQUIRE(e.left.post_alone(false, 0, e.right, 0, 64, 1));
        REQUIRE(e.left.post_alone(true, 4096, e.right, 0, 64, 2));
        REQUIRE(e.left.next().is(done::sent, 1));
        REQUIRE(e.left.next().is(done::sent, 2));
        REQUIRE(is_message(e.left.bytes.data() + 4096, 8 * round, 64));
    }
}

// Keeps the allowed number of transfers under way, repeatedly, alternating with heads and their writes.
template <class World>
void check_transfer_limits() {
    World world;
    constexpr std::uint64_t transfers = 5, rounds = 60;
    verbs_ends e(world, {.sends = 1, .writes = 1, .receives = 1, .head_bytes = 16, .transfers = transfers}, 8 * 512);
    for (std::uint64_t round = 0; round < rounds; ++round) {
        const bool has_head = round % 3 == 0;
        if (has_head) e.right.post_receive(9);
        if (has_head) REQUIRE(e.left.post({e.write(7 * 512, 7 * 512, 512)}, 9, 16));
        for (std::uint64_t i = 0; i < transfers; ++i)
            REQUIRE(e.left.post_alone((round + i) % 2 == 0, i * 512, e.right, i * 512, 512, i));
        if (has_head) REQUIRE(e.left.next().is(done::sent, 9));
        if (has_head) REQUIRE(e.right.next().is(done::received, 9));
        for (std::uint64_t i = 0; i < transfers; ++i) REQUIRE(e.left.next().is(done::sent, i));
    }
}

// ------------------------------------------------------------------------------------------------ failures
// After poll() has returned "failed", only failures follow, and every post is refused.
inline void check_failed(verbs_ends& e, std::uint64_t first_id) {
    const auto c = e.left.next();
    REQUIRE(c.what == done::failed);
    CHECK(c.id == first_id);
    REQUIRE(c.why != nullptr);
    CHECK(std::string(c.why) != "");
    CHECK(!e.left.post({}, 99, 16));
    collx::verbs_completion more[4];
    for (int i = 0; i < 200; ++i)
        for (int n = e.left.pair->poll(more, 4), k = 0; k < n; ++k) REQUIRE(more[k].what == done::failed);
    CHECK(!e.left.post({}, 100, 16));
    CHECK(!e.left.pair->post_alone({e.left.bytes.data(), 1, 0, 0, 0, true}, 101));
}

// An access that the peer did not allow fails and writes nothing, and what was posted behind it does not arrive.
template <class World>
void check_forbidden_writes() {
    struct forged {
        const char* what;
        std::int64_t key, to, bytes;
    };
    for (const forged& f : {forged{"another key", 1, 0, 10},
                            {"before the memory", 0, -10, 10},
                            {"behind it", 0, 1000, 10},
                            {"across its end", 0, 996, 5}}) {
        CAPTURE(f.what);
        World world;
        world.forgives();
        verbs_ends e(world, {4, 4, 4, 16}, 1000);
        for (std::uint64_t i = 0; i < 3; ++i) e.right.post_receive(i);
        std::fill(e.left.bytes.begin(), e.left.bytes.end(), std::byte{7});
        auto w = e.write(0, 0, 10);
        REQUIRE(e.left.post({w}, 20, 16));
        REQUIRE(e.right.next().is(done::received, 0));
        REQUIRE(e.left.next().is(done::sent, 20));
        std::fill(e.right.bytes.begin(), e.right.bytes.end(), std::byte{});
        w.to += static_cast<std::uint64_t>(f.to);
        w.bytes = static_cast<std::uint32_t>(f.bytes);
        if (f.key == 1) w.remote_key ^= 0xffff00;
        REQUIRE(e.left.post({w}, 21, 16));
        (void)e.left.post({e.write(0, 500, 10)}, 22, 16);
        check_failed(e, 21);
        collx::verbs_completion c[4];
        for (int i = 0; i < 200; ++i)
            for (int n = e.right.pair->poll(c, 4), k = 0; k < n; ++k) CHECK(c[k].what == done::failed);
        CHECK(std::count(e.right.bytes.begin(), e.right.bytes.begin() + 500, std::byte{}) == 500);
        CHECK(std::count(e.right.bytes.begin() + 510, e.right.bytes.end(), std::byte{}) == 490);
    }
}

// The same for transfers: another key, beyond the memory, memory that others may write but not read, or that its
// device has deregistered. Nothing is written at either end, and no head posted behind it arrives.
template <class World>
void check_forbidden_transfers() {
    enum class how { key, before, behind, across, unreadable, forgotten };
    for (const bool is_read : {false, true})
        for (const how h : {how::key, how::before, how::behind, how::across, how::unreadable, how::forgotten}) {
            if (h == how::unreadable && !is_read) continue;
            CAPTURE(is_read, static_cast<int>(h));
            World world;
            world.forgives();
            verbs_ends e(world, {4, 4, 4, 16, 4}, 1000);
            e.right.post_receive(0);
            std::fill(e.left.bytes.begin(), e.left.bytes.end(), std::byte{7});
            auto part = world.right().register_memory(e.right.bytes.data() + 100, 800,
                                                      h == how::unreadable ? collx::peers_may::write
                                                                           : collx::peers_may::write_and_read);
            const auto at = [&](std::size_t i) { return reinterpret_cast<std::uint64_t>(e.right.bytes.data() + i); };
            collx::verbs_transfer t{e.left.bytes.data(), 10,     e.left.memory->local_key, at(100),
                                    part->remote_key,    is_read};
            if (h == how::key) t.remote_key ^= 0xffff00;
            if (h == how::before) t.there = at(99);
            if (h == how::behind) t.there = at(900);
            if (h == how::across) t.there = at(891);
            if (h == how::forgotten) part = nullptr;
            REQUIRE(e.left.pair->post_alone(t, 21));
            (void)e.left.post({}, 22, 16);
            check_failed(e, 21);
            collx::verbs_completion c[4];
            for (int i = 0; i < 200; ++i)
                for (int n = e.right.pair->poll(c, 4), k = 0; k < n; ++k) CHECK(c[k].what == done::failed);
            CHECK(std::count(e.right.bytes.begin(), e.right.bytes.end(), std::byte{}) == 1000);
            CHECK(std::count(e.left.bytes.begin() + 10, e.left.bytes.end(), std::byte{7}) == 990);
        }
}

// A queue pair whose peer is gone fails after a while, with everything under way, in order.
template <class World>
void check_peer_gone() {
    World world;
    world.is_impatient();
    verbs_ends e(world, {4, 4, 4, 16}, 1000);
    for (std::uint64_t i = 0; i < 4; ++i) e.right.post_receive(i);
    REQUIRE(e.left.post({e.write(0, 0, 10)}, 30, 16));
    REQUIRE(e.left.next().is(done::sent, 30));
    const auto w = e.write(0, 0, 10);
    e.right.pair = nullptr;
    e.right.memory = nullptr;
    for (std::uint64_t i = 31; i < 34; ++i) REQUIRE(e.left.post({w}, i, 16));
    check_failed(e, 31);
}

// A head without a posted receive waits for one. If it waits longer than the device's patience, it fails.
template <class World>
void check_no_receive() {
    World world;
    world.is_impatient();
    verbs_ends e(world, {4, 4, 4, 16}, 1000);
    REQUIRE(e.left.post({e.write(0, 0, 10)}, 1, 16));
    check_failed(e, 1);
    CHECK(std::string(e.left.last_why).size() > 3);
}

// ------------------------------------------------------------------------------------------------ ends
// Queue pairs are destroyed before memory, otherwise in any order, whatever is posted; then the devices still work.
template <class World>
void check_ends() {
    World world;
    world.is_impatient();
    for (int order = 0; order < 8; ++order)
        for (const bool is_busy : {false, true}) {
            CAPTURE(order, is_busy);
            verbs_ends e(world, {2, 2, 2, 16}, 100'000);
            e.right.post_receive(0);
            e.right.post_receive(1);
            e.left.post_receive(0);
            if (is_busy) REQUIRE(e.left.post({e.write(0, 0, 100'000)}, 1, 16));
            verbs_end& first = order % 2 == 0 ? e.left : e.right;
            verbs_end& second = order % 2 == 0 ? e.right : e.left;
            first.pair = nullptr;
            if (order & 2) first.memory = nullptr;
            collx::verbs_completion c[1];
            (void)second.pair->poll(c, 1);
            if (order & 4) first.heads_memory = nullptr;
            second.pair = nullptr;
        }
    verbs_ends e(world, {1, 1, 1, 16}, 100);
    e.right.post_receive(3);
    REQUIRE(e.left.post({e.write(0, 0, 100)}, 4, 16));
    REQUIRE(e.right.next().is(done::received, 3));
    REQUIRE(e.left.next().is(done::sent, 4));
}

} // namespace collx_test
