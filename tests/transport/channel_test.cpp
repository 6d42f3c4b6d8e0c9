// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The contract of channels, for memory shared by threads and memory shared by processes.
//
// collx-test: timeout=240
#include <collx/transport/memory.hpp>
#include <collx/transport/shm.hpp>

#include <cstring>
#include <deque>
#include <random>
#include <thread>
#include <utility>

#include "support/processes.hpp"
#include "transport/channel_contract.hpp"
#include "transport/shm_support.hpp"

using namespace collx;
using namespace collx_test;

namespace {

constexpr std::size_t small = std::size_t{64} << 20;

struct thread_world {
    channel_shape shape;
    decltype(make_memory_arena(2, small)) memory;
    std::byte* base;

    explicit thread_world(channel_shape s, bool is_memfd = false)
        : shape(s), memory(is_memfd ? join_shm(nullptr, 0, 1, {}, small) : make_memory_arena(2, small)),
          base(memory->at(memory->take(s.bytes()))) {}
    sending_end sender() { return {base, shape}; }
    receiving_end receiver() { return {base, shape}; }
    template <class Send, class Receive>
    std::pair<int, int> run(Send send, Receive receive) {
        std::pair<int, int> result{-1, -1};
        std::thread other([&] {
            sending_end tx = sender();
            result.first = send(tx);
        });
        receiving_end rx = receiver();
        result.second = receive(rx);
        other.join();
        return result;
    }
};

struct sealed_memory_world : thread_world {
    explicit sealed_memory_world(channel_shape s) : thread_world(s, true) {}
};

// Two processes, each with its own mapping of the memory.
struct process_world {
    channel_shape shape;
    explicit process_world(channel_shape s) : shape(s) {}
    template <class Send, class Receive>
    std::pair<int, int> run(Send send, Receive receive) {
        const std::string job = fresh_job();
        const auto as_rank = [&](int rank, auto&& work) {
            auto memory = join_shm(job.c_str(), rank, 2, deadline::in_ns(collx_test::patient(10'000'000'000)), small);
            return work(memory->at(round_up(sizeof(arena_header), page_bytes)));
        };
        processes p;
        p.start(0, [&] {
            return as_rank(0, [&](std::byte* base) {
                sending_end tx(base, shape);
                return send(tx);
            });
        });
        p.start(1, [&] {
            return as_rank(1, [&](std::byte* base) {
                receiving_end rx(base, shape);
                return receive(rx);
            });
        });
        p.wait();
        return {p[0].exit_code, p[1].exit_code};
    }
};

} // namespace

TEMPLATE_TEST_CASE("channels keep order and content", "", thread_world, sealed_memory_world, process_world) {
    check_order_and_content<TestType>();
}
TEMPLATE_TEST_CASE("channels carry many short messages", "", thread_world, sealed_memory_world, process_world) {
    check_short_messages<TestType>();
}
TEMPLATE_TEST_CASE("channels give credit for their depth and no more", "", thread_world, sealed_memory_world) {
    check_credit<TestType>();
}

TEMPLATE_TEST_CASE("messages on the way lie apart", "", thread_world, sealed_memory_world) {
    check_messages_lie_apart<TestType>();
}

TEMPLATE_TEST_CASE("few long messages are on the way at once where the ring is short", "", thread_world,
                   sealed_memory_world) {
    check_few_long_messages<TestType>();
}

TEST_CASE("a short message lies in its slot's header line, a long one in the body") {
    const channel_shape shape{.depth = 2, .slot_bytes = 4096};
    thread_world world(shape);
    auto tx = world.sender();
    const auto offset = [&](const std::byte* p) { return static_cast<std::size_t>(p - world.base); };
    for (const std::size_t bytes : {0, 1, 111, 112}) {
        CHECK(offset(tx.try_acquire(bytes)) == page_bytes + offsetof(slot_header, payload));
        CHECK(offset(tx.try_acquire(bytes)) + slot_header::inline_bytes == page_bytes + sizeof(slot_header));
    }
    CHECK(offset(tx.try_acquire(113)) == 2 * page_bytes);
    tx.commit(113);
    // The next message follows on its own line, with a gap.
    CHECK(offset(tx.try_acquire(4096)) == 2 * page_bytes + 2 * cache_line_bytes + 1024);
    CHECK(2 * page_bytes + shape.ring_bytes() == shape.bytes());
}

TEST_CASE("two directions between two ranks do not disturb each other") {
    const channel_shape shape{.depth = 2, .slot_bytes = 1024};
    auto memory = make_memory_arena(2, small);
    std::byte* there = memory->at(memory->take(shape.bytes()));
    std::byte* back = memory->at(memory->take(shape.bytes()));
    constexpr std::uint64_t rounds = 2000;
    int answer = -1;
    std::thread other([&] {
        receiving_end rx(there, shape);
        sending_end tx(back, shape);
        answer = 0;
        for (std::uint64_t m = 0; m < rounds && answer == 0; ++m) {
            answer = receive_message(rx, m, m % 1000);
            if (answer == 0) answer = send_message(tx, m + 1, m % 999);
        }
    });
    sending_end tx(there, shape);
    receiving_end rx(back, shape);
    int mine = 0;
    for (std::uint64_t m = 0; m < rounds && mine == 0; ++m) {
        mine = send_message(tx, m, m % 1000);
        if (mine == 0) mine = receive_message(rx, m + 1, m % 999);
    }
    other.join();
    CHECK(mine == 0);
    CHECK(answer == 0);
    CHECK(tx.messages == rounds);
}

TEST_CASE("a single copy is back when the receiver has taken it, and not before") {
    thread_world world({.depth = 4, .slot_bytes = 4096});
    auto tx = world.sender();
    auto rx = world.receiver();
    const int there[4] = {1, 2, 3, 4};
    CHECK(tx.has_all_back()); // no single copy has been made
    REQUIRE(tx.has_room(sizeof there));
    tx.commit_single_copy(there, sizeof there, 7);
    CHECK_FALSE(tx.has_all_back());
    REQUIRE(tx.try_acquire(8) != nullptr);
    tx.commit(8); // sent through a slot
    REQUIRE(rx.has_message());
    CHECK((rx.is_single_copy() && rx.is_expected(sizeof there, 7) && !rx.is_expected(sizeof there, 8)));
    CHECK(rx.sender_address() == reinterpret_cast<std::uint64_t>(there));
    CHECK_FALSE(tx.has_all_back());
    rx.release_single_copy();
    CHECK(tx.has_all_back());
    CHECK_FALSE(tx.is_drained());
    REQUIRE(rx.has_message());
    CHECK_FALSE(rx.is_single_copy());
    rx.release(8);
    CHECK(tx.is_drained());
}

TEST_CASE("a ring begins anew when it is empty, and not before") {
    const channel_shape shape{.depth = 4, .slot_bytes = 4096};
    thread_world world(shape);
    auto tx = world.sender();
    auto rx = world.receiver();
    const std::byte* const beginning = world.base + 2 * page_bytes;
    const auto send = [&](std::size_t bytes) {
        const std::byte* const at = tx.try_acquire(bytes);
        tx.commit(bytes);
        return at;
    };
    CHECK(send(1000) == beginning);
    tx.restart_if_empty(); // the message is in transit
    CHECK(send(1000) > beginning);
    rx.release(1000);
    tx.restart_if_empty(); // one of two messages is still in transit
    const std::byte* const third = send(1000);
    CHECK(third > beginning + 2000);
    rx.release(1000);
    CHECK(rx.peek(1000) == third);
    rx.release(1000);
    tx.restart_if_empty();
    send(8); // travels in its slot's line: the ring restarts with the next long message
    CHECK(send(1000) == beginning);
    REQUIRE(rx.has_message());
    CHECK((rx.is_expected(8) && rx.message_bytes() == 8));
    rx.release(8);
    CHECK((rx.is_expected(1000) && rx.message_bytes() == 1000));
    CHECK(rx.peek(1000) == beginning);
    rx.release(1000);
    CHECK(send(1000) > beginning); // no restart was requested
}

TEST_CASE("content is kept however often a ring begins anew") {
    thread_world world({.depth = 4, .slot_bytes = 4096});
    auto tx = world.sender();
    auto rx = world.receiver();
    std::mt19937 random(7);
    std::deque<std::pair<std::size_t, unsigned char>> under_way;
    int restarts = 0;
    for (int i = 0; i < 20'000; ++i) {
        const std::size_t bytes = random() % 3 == 0 ? random() % 100 : 1 + random() % 4096;
        if (random() % 2 == 0) {
            restarts += tx.is_drained();
            tx.restart_if_empty();
        }
        if (random() % 5 < 3) {
            if (std::byte* const to = tx.try_acquire(bytes)) {
                const auto value = static_cast<unsigned char>(i);
                std::memset(to, value, bytes);
                tx.commit(bytes);
                under_way.emplace_back(bytes, value);
            }
        } else if (!under_way.empty()) {
            const auto [length, value] = under_way.front();
            under_way.pop_front();
            REQUIRE((rx.has_message() && rx.message_bytes() == length));
            const std::byte* const from = rx.peek(length);
            bool same = true;
            for (std::size_t b = 0; b < length; ++b) same = same && from[b] == std::byte{value};
            REQUIRE(same);
            rx.release(length);
        }
    }
    CHECK(restarts > 100);
}

TEST_CASE("a cost comes down quickly and goes up slowly") {
    piece_cost c;
    CHECK(c.ns_per_mib == 0);
    c.add(1000, 1 << 20);
    CHECK(c.ns_per_mib == 1001);
    c.add(1'000'000, 1 << 20); // one outlier: the core was preempted
    CHECK(c.ns_per_mib < 2000);
    c.add(0, 1 << 20);
    CHECK(c.ns_per_mib < 1000);
    for (int i = 0; i < 20; ++i) c.add(50'000, 1 << 20);
    CHECK(c.ns_per_mib > 40'000);
    for (int i = 0; i < 200; ++i) c.add(INT64_MAX / (1 << 21), 1);
    CHECK(c.ns_per_mib <= 1u << 30);
}

TEST_CASE("the sender goes by what both ways cost, and looks again") {
    constexpr std::size_t bytes = 64 * 1024, mib = 1 << 20;
    const channel_shape shape{.depth = 4, .slot_bytes = bytes};
    for (const bool reading_is_cheap : {false, true}) {
        thread_world world(shape);
        sending_end tx = world.sender();
        receiving_end rx = world.receiver();
        CHECK(rx.proof_at() == 0);
        tx.offer_single_copy();
        CHECK(*reinterpret_cast<const std::uint64_t*>(rx.proof_at()) == collx::detail::proof_of_reading);
        CHECK_FALSE(tx.prefers_single_copy(bytes, bytes)); // the receiver has not yet said that it can read
        rx.say_can_read();
        const std::vector<std::byte> mine(bytes);
        std::uint64_t copied = 0, read = 0;
        for (int i = 0; i < 40'000; ++i) {
            if (tx.prefers_single_copy(bytes, bytes)) {
                tx.commit_single_copy(mine.data(), bytes, 7);
                REQUIRE(rx.has_message());
                CHECK(rx.is_single_copy());
                CHECK(rx.is_expected(bytes, 7));
                CHECK_FALSE(rx.is_expected(bytes + 1, 7));
                CHECK(rx.sender_address() == reinterpret_cast<std::uint64_t>(mine.data()));
                CHECK_FALSE(tx.is_drained());
                rx.say_cost(true, reading_is_cheap ? 1000 : 9000, bytes);
                rx.release_single_copy();
                ++read;
            } else {
                REQUIRE(tx.try_acquire(bytes) != nullptr);
                if (tx.is_sampled()) tx.add_cost(2000, bytes);
                tx.commit(bytes, 7);
                REQUIRE(rx.has_message());
                CHECK_FALSE(rx.is_single_copy());
                if (rx.is_sampled()) rx.say_cost(false, 2000, bytes);
                rx.release(bytes);
                ++copied;
            }
            CHECK(tx.is_drained());
        }
        CHECK(tx.messages == 40'000);
        CHECK(tx.single_copy_messages == read);
        const std::uint64_t good = reading_is_cheap ? read : copied, other = reading_is_cheap ? copied : read;
        CHECK(good > 36'000);
        CHECK(other > 4 * (mib / bytes)); // the other way was tried again several times
    }
}
