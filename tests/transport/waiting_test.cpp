// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which rank waits for which: the waiting words that ranks publish, and where a chain of them ends.
#include <collx/transport/failure.hpp>
#include <collx/transport/wait.hpp>

#include <chrono>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

using namespace collx;
using why = awaited::why;

namespace {

constexpr std::int64_t now = 100'000'000'000, fresh = 1'000'000'000;

struct job {
    explicit job(int n) : words(static_cast<std::size_t>(n)) {}
    waiting_words all() { return {words.data(), static_cast<int>(words.size())}; }
    void wait(int r, awaited a, std::int64_t age = 0) { all().say(r, waiting_word(now - age, a)); }
    chain_end follow(int first, awaited a, std::int64_t late = 0) {
        return follow_chain(all(), first, a, now, fresh, late);
    }
    std::vector<atomic<std::uint64_t>> words;
};

} // namespace

TEST_CASE("a waiting word holds a rank, a reason and a time") {
    for (const int r : {0, 1, 255, 16'381})
        for (const why w : {why::one_of_several, why::message, why::room}) {
            const waiting_word word(now, {r, w});
            CHECK((word.peer() == r && word.what() == w));
            CHECK((word.said_at_ns() <= now && now - word.said_at_ns() < waiting_word::unit_ns));
        }
    for (const int r : {-2, -1, 16'383, 20'000}) CHECK(waiting_word(now, {r, why::room}).peer() == -1);
    CHECK(waiting_word::fresh_ns(60'000'000'000) == 15'000'000'000);
    CHECK(waiting_word::fresh_ns(1'000'000'000) == 750'000'000);
    CHECK(waiting_word::fresh_ns(2'000'000'000) == 1'000'000'000);
}

TEST_CASE("of what is heard of a rank the newest stays") {
    job j(2);
    j.all().hear(1, waiting_word(now, {0, why::room}));
    j.all().hear(1, waiting_word(now - fresh, {1, why::message}));
    CHECK((j.all().of(1).peer() == 0 && j.all().of(1).what() == why::room));
    j.all().hear(1, waiting_word(now + fresh, {1, why::message}));
    CHECK(j.all().of(1).peer() == 1);
    j.all().say(0, waiting_word(now, {3, why::room}));
    j.all().say_end(0);
    j.all().hear(0, waiting_word(now + fresh, {1, why::message})); // from a host that has heard of it late
    CHECK((j.all().of(0).is_end() && j.all().of(0).peer() == 3 && j.all().of(0).what() == why::room));
    CHECK(now - j.all().of(0).said_at_ns() < 100'000);
}

TEST_CASE("a chain ends at the rank that does not wait") {
    job j(5);
    j.wait(1, {2, why::message});
    j.wait(2, {3, why::room});
    CHECK((j.follow(0, {1, why::message}).rank == 3 && !j.follow(0, {1, why::message}).is_circle));
    j.wait(3, {4, why::message}, 2 * fresh); // too old
    CHECK(j.follow(0, {1, why::message}).rank == 3);
    CHECK(j.follow(0, {1, why::message}, fresh).rank == 4); // words from other hosts are late by a hop each
    j.wait(3, -1);
    CHECK(j.follow(0, {1, why::message}).rank == -1); // it waits for several ranks
    CHECK(j.follow(0, -1).rank == -1);
}

TEST_CASE("circles of any length are found, by those in them and by those who wait for them") {
    for (const int n : {2, 3, 4, 17, 256}) {
        job j(n + 2);
        for (int r = 0; r < n; ++r) j.wait(r, {(r + 1) % n, why::room});
        for (const int r : {0, n - 1}) {
            const chain_end e = j.follow(r, {(r + 1) % n, why::room});
            CHECK((e.is_circle && e.is_certain && e.rank == r));
        }
        j.wait(n, {1, why::message});
        const chain_end outside = j.follow(n + 1, {n, why::message});
        CHECK((outside.is_circle && outside.is_certain && outside.rank < n));
        j.wait(0, {1, why::one_of_several});
        CHECK((j.follow(n - 1, {0, why::room}).is_circle && !j.follow(n - 1, {0, why::room}).is_certain));
        CHECK((j.follow(n + 1, {n, why::message}).is_circle && !j.follow(n + 1, {n, why::message}).is_certain));
        CHECK(!j.follow(0, {1, why::one_of_several}).is_certain);
    }
}

TEST_CASE("the first failure stays, and learns that all had come") {
    atomic<std::uint64_t> word{0};
    CHECK(!failure(failure::all_came_bit));
    report_in(word, failure(errc::timeout, 3));
    report_in(word, failure(errc::aborted, 1));
    CHECK((failure(word.load()).code() == errc::timeout && failure(word.load()).rank() == 3));
    CHECK(!failure(word.load()).has_all_come());
    report_in(word, failure(failure(errc::aborted, 1).word | failure::all_came_bit));
    CHECK((failure(word.load()).code() == errc::timeout && failure(word.load()).rank() == 3));
    CHECK(failure(word.load()).has_all_come());

    atomic<std::uint64_t> other{failure::all_came_bit};
    report_in(other, failure::circle_of(0));
    const failure f(other.load());
    CHECK((f && f.has_all_come() && f.is_circle() && f.code() == errc::timeout && f.rank() == 0));
    CHECK(failure(errc::security, 7).code_word() == static_cast<std::uint64_t>(errc::security));
}

TEST_CASE("a wait asks its slow questions every millisecond, however long a yield takes") {
    const auto slow_turn = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
    backoff wait({.spins = 0, .nap_after_ns = 1'000'000'000'000});
    (void)wait.pause();
    slow_turn();
    CHECK(wait.pause());
    slow_turn();
    wait.reset(); // a message has arrived, as may happen repeatedly
    CHECK(wait.pause());
    int turns = 0; // every 64 turns if turns are short
    while (turns < 64 && !wait.pause()) ++turns;
    CHECK(turns < 64);
}
