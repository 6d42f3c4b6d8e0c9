// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300
//
// Communicators over sockets that share one connection to each rank behave as if each had its own. Their data does
// not mix, none waits for another, and the failure or end of one does not affect the others.
#include "comm/support.hpp"

#include <thread>

using namespace collx_test;
using collx::errc;

namespace {

constexpr spread plain{.ranks_per_host = 1, .is_shared = true},
    odd{.ranks_per_host = 1, .bad_day = true, .has_key = true, .is_shared = true},
    local{.ranks_per_host = 2, .is_unix = true, .is_shared = true};

bool shares(collx::communicator& c) { return collx::remote_members::shares(c.internals().id); }

void add_ranks(collx::communicator& c, collx::communicator& w, std::size_t elems = 3) {
    std::vector<int> x(elems, c.rank());
    collx::all_reduce(c, x);
    EXPECT(x[0] == c.size() * (c.size() - 1) / 2 && x[elems - 1] == x[0]);
}

} // namespace

TEST_CASE("calls of several communicators that share connections are under way together, and none mixes with another") {
    for (const spread& s : {plain, odd, local})
        on_hosts(4, s, [](collx::communicator& w) {
            EXPECT(shares(w));
            const int n = w.size();
            std::vector<collx::communicator> all;
            for (int k = 0; k < 4; ++k) all.push_back(k % 2 == 0 ? w.dup() : w.split(0, -w.rank()));
            std::vector<std::vector<int>> x;
            for (int turn = 0; turn < 3; ++turn) {
                for (std::size_t k = 0; k < 4; ++k)
                    x.emplace_back(k % 2 == 0 ? 150'000u : 5u, all[k].rank() + 100 * static_cast<int>(k));
                const auto begin = [&](std::size_t k) { return collx::async::all_reduce(all[k], x[k]); };
                decltype(begin(0)) calls[] = {begin(0), begin(1), begin(2), begin(3)};
                for (std::size_t k = 4; k-- > 0;) { // waits for the last one first, then in other orders
                    const std::size_t which = (k + static_cast<std::size_t>(turn)) % 4;
                    calls[which].wait();
                    EXPECT_AT(which, x[which].front() == n * (n - 1) / 2 + 100 * static_cast<int>(which) * n);
                    EXPECT_AT(which, x[which].back() == x[which].front());
                }
                x.clear();
            }
            add_ranks(w, w);
        });
}

TEST_CASE("a rank that takes nothing in one communicator is reached in the others") {
    for (const spread& s : {plain, odd})
        on_hosts(3, s, [](collx::communicator& w) {
            auto other = w.dup();
            std::vector<int> x(3'000'000, w.rank()); // more than slots and sockets hold
            const auto call_on = [&] {
                for (int i = 0; i < 20; ++i) add_ranks(other, w, 1000);
            };
            if (w.rank() == 0) {
                auto h = collx::async::send(w, x, 2);
                call_on();
                h.wait();
            } else {
                call_on();
                if (w.rank() == 2) collx::recv(w, x, 0);
            }
            EXPECT(x[2'999'999] == (w.rank() == 2 ? 0 : w.rank()));
        });
}

TEST_CASE("a failure of one communicator is heard on it and on no other that shares its connections") {
    for (const spread& s : {plain, odd, local})
        on_hosts(4, s, [](collx::communicator& w) {
            for (int culprit = 0; culprit < w.size(); ++culprit) {
                at("rank %d fails", culprit);
                auto victim = w.split(0);
                std::vector<int> large(800'000, 1);
                add_ranks(victim, w);
                collx::barrier(w); // an abort overtakes outstanding messages
                if (w.rank() == culprit) victim.abort();
                const auto e = thrown<collx::error>(w, [&] {
                    for (;;) collx::all_reduce(victim, large);
                });
                EXPECT_AT(e.code(), e.code() == errc::aborted && (w.rank() == culprit || e.peer() == culprit));
                add_ranks(w, w, 100'000);
                auto again = victim.shrink();
                EXPECT(again.size() == w.size() && shares(again));
                add_ranks(again, w, 100'000);
            }
        });
}

TEST_CASE("a communicator that one rank has ended is lost to those who still send, and to no other") {
    for (const spread& s : {plain, odd})
        on_hosts(3, s, [](collx::communicator& w) {
            for (int leaver = 0; leaver < w.size(); ++leaver) {
                at("rank %d leaves", leaver);
                auto left = w.split(0);
                add_ranks(left, w);
                collx::barrier(w);
                if (w.rank() == leaver) {
                    auto gone = std::move(left);
                } else {
                    std::vector<int> x(3'000'000, 1);
                    const auto e = thrown<collx::error>(w, [&] { collx::send(left, x, leaver); });
                    EXPECT_AT(e.code(), e.code() == errc::peer_failed && e.peer() == leaver);
                }
                add_ranks(w, w, 10'000);
            }
        });
}

TEST_CASE("a rank that has ended a communicator is named by one that was never connected to it there") {
    for (const spread& s : {plain, odd})
        on_hosts(4, s, [](collx::communicator& w) {
            for (const auto& who : {std::pair(0, 3), std::pair(2, 1), std::pair(1, 2)}) {
                const int leaver = who.first, waits = who.second;
                at("rank %d leaves", leaver);
                auto left = w.split(0);
                collx::barrier(w);
                if (w.rank() == leaver) {
                    auto gone = std::move(left);
                } else if (w.rank() == waits) {
                    int x = 0;
                    const auto e = thrown<collx::error>(w, [&] { collx::recv(left, collx::value(x), leaver); });
                    EXPECT_AT(e.code(), e.code() == errc::peer_failed && e.peer() == leaver);
                }
                add_ranks(w, w, 10'000);
            }
        });
}

TEST_CASE("what is sent over a communicator arrives although its sender has ended it") {
    on_hosts(3, plain, [](collx::communicator& w) {
        for (int i = 0; i < 20; ++i) {
            auto c = w.split(0);
            int x = w.rank();
            if (w.rank() == i % 3) collx::send(c, collx::value(x), (i + 1) % 3);
            else if (w.rank() == (i + 1) % 3) collx::recv(c, collx::value(x), i % 3);
            EXPECT(w.rank() != (i + 1) % 3 || x == i % 3);
        }
    });
}

TEST_CASE("threads of a rank use communicators that share connections, each its own") {
    on_hosts(2, plain, [](collx::communicator& w) {
        std::vector<collx::communicator> all;
        for (int k = 0; k < 3; ++k) all.push_back(w.dup());
        std::atomic<int> wrong{0};
        std::vector<std::thread> threads;
        for (auto& c : all)
            threads.emplace_back([&wrong, &c] {
                for (int i = 0; i < 60; ++i) {
                    std::vector<int> x(i % 7 == 0 ? 100'000u : 10u, i + c.rank());
                    collx::all_reduce(c, x);
                    if (x.front() != 2 * i + 1 || x.back() != x.front()) ++wrong;
                }
            });
        for (auto& t : threads) t.join();
        EXPECT(wrong == 0);
    });
}

TEST_CASE("what was read along with a large message is not forgotten while its rank waits elsewhere") {
    on_hosts(3, {.ranks_per_host = 1, .is_shared = true}, [](collx::communicator& w) {
        auto other = w.dup();
        other.set_checked(false);
        w.set_checked(false);
        w.set_timeout(patient(std::chrono::seconds(20)));
        EXPECT(shares(w));
        std::vector<char> x(20'000, 'x'), y(8'200, 'y');
        for (int k = 0; k < 60; ++k) {
            if (w.rank() == 0) {
                collx::send(w, x, 1);
                collx::send(w, y, 1);
            }
            if (w.rank() == 1) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1)); // both have come
                collx::recv(w, x, 0);
                collx::recv(w, y, 0);
                EXPECT(x.back() == 'x' && y.back() == 'y');
            }
            collx::barrier(other);
        }
    });
}
