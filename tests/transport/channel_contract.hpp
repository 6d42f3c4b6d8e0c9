// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every channel must do, whatever its memory: order, credit, sizes, no message before its payload. A world makes
// a channel and runs one function for each end (in threads or processes). channel_test.cpp instantiates the contract
// for all memory models. A new transport is accepted when it passes.
#pragma once

#include <collx/transport/channel.hpp>
#include <collx/transport/wait.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

#include <catch2/catch.hpp>

#include "support/patience.hpp"
#include "support/sanitizers.hpp"

namespace collx_test {

inline constexpr std::size_t interesting_sizes[] = {0, 1, 63, 64, 65, 111, 112, 113, 4095, 4096, 4097, 65535, 65536};

// Content whose every byte depends on the message's number.
inline std::byte byte_of(std::uint64_t message, std::size_t i) {
    return static_cast<std::byte>(message * 31 + i * 7 + (i >> 8));
}
inline void fill_message(std::byte* to, std::uint64_t message, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) to[i] = byte_of(message, i);
}
inline bool is_message(const std::byte* from, std::uint64_t message, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
        if (from[i] != byte_of(message, i)) return false;
    return true;
}

// Both ends wait with a deadline, so that a lost message fails the test instead of hanging it.
template <class Look>
bool wait_until(Look&& look) {
    const auto until = collx::deadline::in_ns(collx_test::patient(60'000'000'000));
    // Sleeps early: where other programs keep the cores busy, a yield waits until all of them had their turn.
    for (collx::backoff b(collx::wait_policy{.spins = 100, .nap_after_ns = 200'000}); !look();)
        if (b.pause() && until.passed()) return false;
    return true;
}

// The functions of both ends return 0 or the number of the check that failed.
template <class Sender>
int send_message(Sender& tx, std::uint64_t message, std::size_t bytes) {
    std::byte* to = nullptr;
    if (!wait_until([&] { return (to = tx.try_acquire(bytes)) != nullptr; })) return 1;
    fill_message(to, message, bytes);
    tx.commit(bytes, static_cast<std::uint32_t>(message));
    return 0;
}
template <class Receiver>
int receive_message(Receiver& rx, std::uint64_t message, std::size_t bytes) {
    if (!wait_until([&] { return rx.has_message(); })) return 2;
    const auto tag = static_cast<std::uint32_t>(message);
    if (!rx.is_expected(bytes, tag)) return 3;
    if (rx.is_expected(bytes + 1, tag) || rx.is_expected(bytes, tag + 1)) return 4;
    if (!is_message(rx.peek(bytes), message, bytes)) return 5;
    rx.release(bytes);
    return 0;
}

template <class World>
void check_order_and_content() {
    for (const int depth : {1, 2, 3, 8}) {
        World world({.depth = depth, .slot_bytes = 65536});
        const auto size_of = [](std::uint64_t m) {
            return interesting_sizes[(m * 5 + m / 13) % std::size(interesting_sizes)];
        };
        constexpr std::uint64_t messages = 300;
        const auto [sent, received] = world.run(
            [&](auto& tx) {
                for (std::uint64_t m = 0; m < messages; ++m)
                    if (const int r = send_message(tx, m, size_of(m))) return r;
                return 0;
            },
            [&](auto& rx) {
                for (std::uint64_t m = 0; m < messages; ++m)
                    if (const int r = receive_message(rx, m, size_of(m))) return r;
                return rx.has_message() ? 7 : 0;
            });
        INFO("depth " << depth);
        CHECK(sent == 0);
        CHECK(received == 0);
    }
}

template <class World>
void check_short_messages() {
    World world({.depth = 2, .slot_bytes = 64});
    constexpr std::uint64_t messages = times(10'000, 2'000);
    const auto [sent, received] = world.run(
        [&](auto& tx) {
            for (std::uint64_t m = 0; m < messages; ++m)
                if (const int r = send_message(tx, m, m % 65)) return r;
            return 0;
        },
        [&](auto& rx) {
            for (std::uint64_t m = 0; m < messages; ++m)
                if (const int r = receive_message(rx, m, m % 65)) return r;
            return 0;
        });
    CHECK(sent == 0);
    CHECK(received == 0);
}

// Both ends in one thread: how much fits, nothing is visible before commit, released slots come back singly.
template <class World>
void check_credit() {
    for (const int depth : {1, 2, 5, 8}) {
        World world({.depth = depth, .slot_bytes = 128});
        auto tx = world.sender();
        auto rx = world.receiver();
        for (int round = 0; round < 3; ++round) {
            const auto first = static_cast<std::uint64_t>(round * depth);
            REQUIRE(!rx.has_message());
            for (int i = 0; i < depth; ++i) {
                const std::size_t bytes = i % 2 == 0 ? 100 : 10;
                std::byte* to = tx.try_acquire(bytes);
                REQUIRE(to != nullptr);
                REQUIRE(tx.try_acquire(bytes) == to); // a second acquire without commit returns the same slot
                fill_message(to, first + static_cast<std::uint64_t>(i), bytes);
                REQUIRE((i > 0 || !rx.has_message()));
                tx.commit(bytes);
            }
            REQUIRE(tx.try_acquire(1) == nullptr);
            for (int i = 0; i < depth; ++i) {
                const std::size_t bytes = i % 2 == 0 ? 100 : 10;
                REQUIRE(rx.has_message());
                REQUIRE(rx.is_expected(bytes));
                REQUIRE(is_message(rx.peek(bytes), first + static_cast<std::uint64_t>(i), bytes));
                REQUIRE((i > 0 || tx.try_acquire(1) == nullptr));
                rx.release(bytes);
                REQUIRE(tx.try_acquire(1) != nullptr);
            }
            REQUIRE(!rx.has_message());
        }
        CHECK(tx.messages == static_cast<std::uint64_t>(3 * depth));
    }
}

// In any sequence of sizes, as many messages as the depth can be in transit without overlapping.
template <class World>
void check_messages_lie_apart() {
    std::uint64_t state = 1;
    const auto random = [&] { return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33; };
    constexpr std::size_t slot_bytes = 8192;
    for (const collx::channel_shape shape : {collx::channel_shape{.depth = 1, .slot_bytes = 1024},
                                             {.depth = 2, .slot_bytes = 1024},
                                             {.depth = 3, .slot_bytes = slot_bytes},
                                             {.depth = 8, .slot_bytes = 1024},
                                             {.depth = 8, .slot_bytes = slot_bytes, .ring_slots = 1},
                                             {.depth = 16, .slot_bytes = slot_bytes, .ring_slots = 4},
                                             {.depth = 16, .slot_bytes = slot_bytes, .ring_slots = 15}}) {
        INFO("depth " << shape.depth << ", slots in the ring " << shape.ring_slots);
        World world(shape);
        auto tx = world.sender();
        auto rx = world.receiver();
        std::vector<std::size_t> on_the_way;
        std::uint64_t sent = 0, received = 0;
        std::size_t most_on_the_way = 0;
        while (received < 3000) {
            // Includes runs of short messages, so that the greatest possible number is in transit.
            const bool are_short = sent / 64 % 2 == 0;
            const std::size_t most = are_short && shape.small_bytes() != 0 ? shape.small_bytes() : shape.slot_bytes;
            const std::size_t bytes = random() % 3 == 0 ? most - random() % 2 : random() % (most + 1);
            if (std::byte* to = tx.try_acquire(bytes)) {
                REQUIRE((to >= world.base && to + bytes <= world.base + world.shape.bytes())); // and inside the channel
                fill_message(to, sent++, bytes);
                tx.commit(bytes);
                on_the_way.push_back(bytes);
                most_on_the_way = std::max(most_on_the_way, on_the_way.size());
                if (random() % 4 != 0) continue; // keeps the channel mostly full
            }
            REQUIRE(rx.is_expected(on_the_way.front()));
            REQUIRE(is_message(rx.peek(on_the_way.front()), received, on_the_way.front()));
            rx.release(on_the_way.front());
            on_the_way.erase(on_the_way.begin());
            ++received;
        }
        CHECK(most_on_the_way == static_cast<std::size_t>(shape.depth));
    }
}

// A ring that is shorter than `depth` slots: how many long messages fit, and that short ones wait behind them.
template <class World>
void check_few_long_messages() {
    const collx::channel_shape shape{.depth = 16, .slot_bytes = 8192, .ring_slots = 3};
    World world(shape);
    auto tx = world.sender();
    auto rx = world.receiver();
    const auto send_all = [&](std::size_t bytes) {
        int n = 0;
        for (; tx.try_acquire(bytes) != nullptr; ++n) tx.commit(bytes);
        return n;
    };
    const auto take = [&](int n, std::size_t bytes) {
        for (; n > 0; --n) rx.release(bytes);
    };
    const std::size_t small = shape.small_bytes(), large = small + 1;
    REQUIRE((small > collx::slot_header::inline_bytes && large <= shape.slot_bytes));
    CHECK(send_all(large) == 3);
    CHECK(send_all(small) == 0);
    CHECK(tx.least_taken(small) == 1);
    CHECK(send_all(1) == 13); // one-byte messages need no space in the ring
    take(3, large);
    take(13, 1);
    CHECK(send_all(small) == 16);
    CHECK(send_all(large) == 0);
    CHECK(tx.least_taken(large) == tx.messages + 1 - 3);
    take(13, small);
    CHECK(send_all(large) == 0);
    take(1, small);
    CHECK(send_all(large) == 1);
    CHECK(send_all(small) == 0); // while the long one is there
}

} // namespace collx_test
