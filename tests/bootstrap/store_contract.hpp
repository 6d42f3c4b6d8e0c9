// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every store must do. A world gives each rank a store and runs a function as all ranks; store_test.cpp
// instantiates the contract for all models. A new store is accepted when it passes.
#pragma once

#include <collx/bootstrap/rendezvous.hpp>
#include <collx/bootstrap/store.hpp>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "support/patience.hpp"

namespace collx_test {

inline collx::deadline soon(std::int64_t ms = collx_test::patient(30'000)) {
    return collx::deadline::in_ns(ms * 1'000'000);
}

template <class F>
collx::errc code_thrown(F&& f) {
    try {
        f();
    } catch (const collx::error& e) {
        return e.code();
    }
    return collx::errc::forked; // stands for "no error"
}

// Runs f(rank, store) on `ranks` threads, each with its own store. Returns each rank's error text, "" if none.
template <class World, class F>
std::vector<std::string> as_ranks(World& world, int ranks, F f) {
    std::vector<std::string> thrown(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
            try {
                auto&& store = world.connect();
                f(r, store);
            } catch (const std::exception& e) {
                thrown[static_cast<std::size_t>(r)] = e.what();
            }
        });
    for (auto& t : threads) t.join();
    return thrown;
}

template <class World>
void check_values() {
    World world;
    auto&& a = world.connect();
    auto&& b = world.connect();
    STATIC_REQUIRE(collx::Store<std::remove_reference_t<decltype(a)>>);

    a.set("key", "value");
    CHECK(b.get("key", soon()) == "value");
    a.set("key", "other"); // the last value counts
    CHECK(b.get("key", soon()) == "other");
    CHECK(a.get("key", soon()) == "other");
    b.set("empty", "");
    CHECK(a.get("empty", soon()).empty());
    // With a deadline in the past, get() still looks once.
    CHECK(a.get("key", collx::deadline{1}) == "other");

    std::string bytes;
    for (int i = 0; i < 70000; ++i) bytes += static_cast<char>(i * 7);
    for (const std::size_t n :
         {std::size_t{1}, std::size_t{4095}, std::size_t{4096}, std::size_t{4097}, collx::most_value_bytes}) {
        a.set("bytes", bytes.substr(0, n));
        CHECK((b.get("bytes", soon()) == bytes.substr(0, n)));
    }
}

template <class World>
void check_keys() {
    World world;
    auto&& a = world.connect();
    auto&& b = world.connect();
    std::vector<std::string> keys = {
        "a", "A", "a/b", "a%2fb", "../x", ".", "..", "lock", "k.a", "\xc3\xa4", "a b", "a\nb", std::string("a\0b", 3),
        "/", "~", "*"};
    keys.push_back(std::string(collx::most_key_bytes, 'x'));
    keys.push_back(std::string(collx::most_key_bytes - 1, 'x'));
    keys.push_back(std::string(collx::most_key_bytes, '/'));
    keys.push_back(std::string(collx::most_key_bytes - 1, '/') + "?");
    for (const auto& k : keys) a.set(k, "value of " + k);
    for (const auto& k : keys) CHECK((b.get(k, soon()) == "value of " + k));
}

template <class World>
void check_refusals() {
    World world;
    auto&& s = world.connect();
    const std::string long_key(collx::most_key_bytes + 1, 'k'), long_value(collx::most_value_bytes + 1, 'v');
    CHECK(code_thrown([&] { s.set("", "v"); }) == collx::errc::invalid_argument);
    CHECK(code_thrown([&] { s.set(long_key, "v"); }) == collx::errc::invalid_argument);
    CHECK(code_thrown([&] { s.set("k", long_value); }) == collx::errc::invalid_argument);
    CHECK(code_thrown([&] { (void)s.get("", soon()); }) == collx::errc::invalid_argument);
    CHECK(code_thrown([&] { (void)s.get(long_key, soon()); }) == collx::errc::invalid_argument);
    CHECK(code_thrown([&] { (void)s.add("", 1); }) == collx::errc::invalid_argument);
    CHECK(code_thrown([&] { s.barrier("b", 0, soon()); }) == collx::errc::invalid_argument);
    s.set("word", "twelve");
    CHECK(code_thrown([&] { (void)s.add("word", 1); }) == collx::errc::invalid_argument);
    CHECK(s.get("word", soon()) == "twelve");
    for (const char* none : {"", "-", "1 ", "99999999999999999999", "9223372036854775808", "-9223372036854775809"}) {
        INFO("'" << none << "'");
        s.set("no number", none);
        CHECK(code_thrown([&] { (void)s.add("no number", 1); }) == collx::errc::invalid_argument);
    }
    for (const char* edge : {"9223372036854775807", "-9223372036854775808"}) {
        s.set("a number", edge);
        CHECK(std::to_string(s.add("a number", 0)) == edge);
    }
    // The store still works.
    s.set("k", "v");
    CHECK(s.get("k", soon()) == "v");
}

template <class World>
void check_waiting() {
    World world;
    {
        auto&& s = world.connect();
        const std::int64_t begin = collx::now_ns();
        CHECK(code_thrown([&] { (void)s.get("never", soon(100)); }) == collx::errc::timeout);
        const std::int64_t took_ms = (collx::now_ns() - begin) / 1'000'000;
        CHECK(took_ms >= 100);
        CHECK(took_ms < collx_test::patient(10'000));
        s.set("still", "works");
        CHECK(s.get("still", soon()) == "works");
    }
    std::atomic<bool> is_set{false};
    const auto thrown = as_ranks(world, 3, [&](int r, auto& s) {
        if (r == 0) {
            collx::detail::nap_ns(50'000'000);
            is_set = true;
            s.set("later", "now");
        } else if (s.get("later", soon()) != "now" || !is_set) {
            throw std::runtime_error("came too early");
        }
    });
    for (const auto& t : thrown) CHECK(t == "");
}

template <class World>
void check_sums() {
    World world;
    {
        auto&& s = world.connect();
        CHECK(s.add("n", 5) == 5);
        CHECK(s.add("n", -7) == -2);
        CHECK(s.add("n", 0) == -2);
        CHECK(s.get("n", soon()) == "-2");
        s.set("n", "40");
        CHECK(s.add("n", 2) == 42);
        CHECK(s.add("least", INT64_MIN) == INT64_MIN);
        CHECK(s.add("least", 1) == INT64_MIN + 1);
        CHECK(s.add("most", INT64_MAX) == INT64_MAX);
    }
    constexpr int ranks = 4, times = 100;
    std::atomic<long> seen{0};
    const auto thrown = as_ranks(world, ranks, [&](int, auto& s) {
        for (int i = 0; i < times; ++i) seen += s.add("together", 1);
    });
    for (const auto& t : thrown) CHECK(t == "");
    CHECK(seen == ranks * times * (ranks * times + 1) / 2); // every sum from 1 to 400 occurred exactly once
}

// A reader gets the old or the new value, never a mixture.
template <class World>
void check_whole_values() {
    World world;
    constexpr std::size_t bytes = 50'000;
    world.connect().set("big", std::string(bytes, 'a'));
    const auto thrown = as_ranks(world, 3, [&](int r, auto& s) {
        for (int i = 0; i < 60; ++i) {
            if (r == 0) {
                s.set("big", std::string(bytes, static_cast<char>('a' + i % 26)));
                continue;
            }
            const std::string v = s.get("big", soon());
            if (v != std::string(bytes, v.empty() ? '?' : v[0])) throw std::runtime_error("half a value");
        }
    });
    for (const auto& t : thrown) CHECK(t == "");
}

template <class World>
void check_barrier() {
    World world;
    constexpr int ranks = 4;
    std::atomic<int> arrived{0};
    const auto thrown = as_ranks(world, ranks, [&](int r, auto& s) {
        for (int round = 1; round <= 10; ++round) {
            if (r == round % ranks) collx::detail::nap_ns(2'000'000);
            ++arrived;
            s.barrier("b", ranks, soon());
            if (arrived < round * ranks) throw std::runtime_error("passed before all came");
            s.barrier("b", ranks, soon());
        }
    });
    for (const auto& t : thrown) CHECK(t == "");

    auto&& s = world.connect();
    const auto alone_in = [&](const char* name) -> std::string {
        try {
            s.barrier(name, 3, soon(50));
        } catch (const collx::timed_out& e) {
            return e.what();
        }
        return "passed";
    };
    CHECK(alone_in("incomplete").find("1 of 3 ranks came to barrier 'incomplete'") != std::string::npos);
    // Those who came to an earlier round do not count.
    for (const auto& t : as_ranks(world, 3, [](int, auto& store) { store.barrier("twice", 3, soon()); }))
        CHECK(t == "");
    CHECK(alone_in("twice").find("1 of 3 ranks came to barrier 'twice'") != std::string::npos);
}

template <class World>
void check_rendezvous() {
    World world;
    for (const int ranks : {1, 2, 5}) {
        std::vector<std::string> first(static_cast<std::size_t>(ranks)), second = first;
        const auto thrown = as_ranks(world, ranks, [&](int r, auto& s) {
            first[static_cast<std::size_t>(r)] = collx::rendezvous(s, r, ranks, soon());
            second[static_cast<std::size_t>(r)] = collx::rendezvous(s, r, ranks, soon());
        });
        for (const auto& t : thrown) CHECK(t == "");
        CHECK(first[0].size() == 32);
        CHECK(first[0] != second[0]);
        for (const auto& t : first) CHECK(t == first[0]);
        for (const auto& t : second) CHECK(t == second[0]);
        world.renew();
    }

    auto thrown = as_ranks(world, 3, [&](int r, auto& s) { (void)collx::rendezvous(s, r, r == 2 ? 4 : 3, soon()); });
    for (const auto& t : thrown) CHECK(t.find("rank 2 says 4 ranks, rank 0 says 3") != std::string::npos);

    world.renew();
    thrown =
        as_ranks(world, 2, [&](int r, auto& s) { (void)collx::rendezvous(s, r, 5, soon(r == 0 ? 1000 : 20'000)); });
    for (const auto& t : thrown) CHECK(t.find("3 of 5 ranks did not come to the store: 2, 3, 4") != std::string::npos);

    // Where ranks of an earlier job came without the others, later ones cannot tell its words from their own.
    world.renew();
    thrown = as_ranks(world, 1, [&](int, auto& s) { (void)collx::rendezvous(s, 0, 2, soon(100)); });
    CHECK(thrown[0].find("1 of 2 ranks did not come to the store: 1") != std::string::npos);
    thrown =
        as_ranks(world, 2, [&](int r, auto& s) { (void)collx::rendezvous(s, r, 2, soon(r == 0 ? 1000 : 20'000)); });
    CHECK(
        thrown[0].find("rank 1 has begun 1 start in this store, and another rank 2: it is missing, or the store is not "
                       "new (start it, with a store that no job has used") != std::string::npos);
    CHECK(thrown[1].find("the others did not wait for this rank, or the store is not new: 1 of 2 ranks") !=
          std::string::npos);

    world.renew();
    thrown = as_ranks(world, 1, [&](int, auto& s) { (void)collx::rendezvous(s, 1, 2, soon(100)); });
    CHECK(thrown[0].find("rank 0 published no job") != std::string::npos);
}

} // namespace collx_test
