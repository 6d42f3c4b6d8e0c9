// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300
//
// Waiting for several handles: empty lists, lists of all kinds, several communicators, calls that fail.
#include "support.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <span>
#include <thread>

using namespace collx_test;
using namespace std::chrono_literals;

namespace {

using works = std::vector<collx::work<void>>;

// Rank 1 waits for a flag of rank 0, without a call of collx.
void wait_until(const std::atomic<bool>& go) {
    until([&] { return go.load(); });
}

} // namespace

TEST_CASE("wait_all waits for all handles, of a list or by name, whatever they hold") {
    for (const int ranks_per_host : {0, 1})
        on_hosts(3, {ranks_per_host}, [](collx::communicator& w) {
            std::vector<std::vector<int>> x;
            for (int k = 0; k < 9; ++k) x.emplace_back(20'000 * static_cast<std::size_t>(k), w.rank() + k);
            works list;
            for (auto& v : x) list.push_back(collx::async::all_reduce(w, v));
            collx::wait_all(list);
            for (int k = 1; k < 9; ++k) EXPECT_AT(k, x[static_cast<std::size_t>(k)].back() == 3 + 3 * k);
            for (auto& l : list) EXPECT(l.test());
            collx::wait_all(list); // nothing is left to wait for
            auto a = collx::async::all_reduce(w, std::vector<int>(5000, 2));
            auto b = collx::async::broadcast(w, x[3], {.root = 1});
            auto c = collx::async::all_gather(w, std::vector<long>(1, w.rank()), std::vector<long>(3));
            collx::wait_all(a, b, c);
            EXPECT(a.wait().back() == 6 && c.wait() == std::vector<long>({0, 1, 2})); // the results are kept
            std::array<collx::work<void>, 2> pair{collx::async::barrier(w), collx::async::barrier(w)};
            collx::wait_all(pair);
            collx::wait_all(std::span(pair));
            EXPECT(w.progress() == 0);
        });
}

TEST_CASE("an empty list is waited for at once") {
    on_ranks(1, [](collx::communicator& w) {
        works none;
        collx::wait_all(none);
        EXPECT(collx::wait_any(none) == collx::no_work && collx::wait_some(none).empty());
        collx::wait_all();
        EXPECT(collx::wait_any() == collx::no_work && collx::wait_some().size() == 0);
    });
}

TEST_CASE("wait_any and wait_some return each handle once, and nothing while none is done") {
    std::atomic<bool> go{false};
    on_ranks(2, [&](collx::communicator& w) {
        constexpr int calls = 6;
        std::vector<int> x(calls, -1);
        if (w.rank() == 1) {
            wait_until(go);
            for (const int k : {3, 0}) collx::send(w, collx::value(k), 0);
            std::array<std::size_t, 1> rest{};
            collx::recv(w, rest, 0); // rank 0 has received the first two
            for (const int k : {5, 1, 2, 4}) collx::send(w, collx::value(k), 0);
            return EXPECT(rest[0] == 2);
        }
        works list;
        for (int k = 0; k < calls; ++k)
            list.push_back(collx::async::recv(w, collx::value(x[static_cast<std::size_t>(k)]), 1));
        EXPECT(!list[0].wait_for(2ms));
        go = true;
        std::size_t any = collx::wait_any(list), other = collx::wait_any(list);
        EXPECT(any == 0 && other == 1 && x[0] == 3 && x[1] == 0); // messages of one rank keep their order
        std::array<std::size_t, 1> rest{2};
        collx::send(w, rest, 1);
        std::vector<std::size_t> seen;
        for (;;) {
            const auto some = collx::wait_some(list);
            if (some.empty()) break;
            seen.insert(seen.end(), some.begin(), some.end());
        }
        EXPECT(seen == std::vector<std::size_t>({2, 3, 4, 5}) && x == std::vector<int>({3, 0, 5, 1, 2, 4}));
        EXPECT(collx::wait_any(list) == collx::no_work);
    });
}

TEST_CASE("one handle's wait moves its own communicator only, and the error of ranks in different orders says so") {
    on_ranks(2, [](collx::communicator& w) {
        collx::communicator one = w.dup(), other = w.dup();
        one.set_timeout(200ms);
        other.set_timeout(200ms);
        // The rank that starts a call last may complete its part at once. So the rank that does not wait for a call
        // starts it first. Checked mode would make both ranks start together.
        one.set_checked(false);
        other.set_checked(false);
        std::vector<float> x(1 << 20, 1), y(1 << 20, 1);
        if (w.rank() == 0) collx::barrier(w); // rank 1 has started a
        auto a = collx::async::all_reduce(one, x);
        if (w.rank() == 1) { // rank 0 has started b
            collx::barrier(w);
            collx::barrier(w);
        }
        auto b = collx::async::all_reduce(other, y);
        if (w.rank() == 0) collx::barrier(w);
        const auto e = thrown<collx::timed_out>(w, [&] { (w.rank() == 0 ? a : b).wait(); });
        EXPECT(says(e, "wait_all() moves all of them"));
        collx::barrier(w); // does not advance a or b
        (void)thrown<collx::error>(w, [&] { collx::wait_all(a, b); });
    });
}

TEST_CASE("handles of several communicators move on together, in whatever order the ranks list them") {
    for (const int ranks_per_host : {0, 1})
        on_hosts(2, {ranks_per_host}, [](collx::communicator& w) {
            auto d = w.dup();
            std::vector<int> x(3'000'000, 1), y(3'000'000, 2); // much more than a channel holds
            auto a = collx::async::all_reduce(w, x);
            auto b = collx::async::all_reduce(d, y);
            if (w.rank() == 0) collx::wait_all(a, b);
            else collx::wait_all(b, a);
            EXPECT(x.back() == 2 && y.back() == 4 && x.front() == 2 && y.front() == 4);
        });
}

TEST_CASE("where calls fail, wait_all waits for the others and throws what was noticed first") {
    on_ranks(2, [](collx::communicator& w) {
        auto good = w.dup(), bad = w.dup();
        std::vector<int> x(50'000, 1), y(50'000, 1), z(50'000, 1);
        auto a = collx::async::all_reduce(good, x);
        auto b = collx::async::all_reduce(good, y);
        if (w.rank() == 0) {
            auto lost = collx::async::recv(bad, z, 1, {.timeout = 1ms}); // rank 1 never sends it
            auto behind = collx::async::recv(bad, z, 1);
            const auto e = thrown<collx::timed_out>(w, [&] { collx::wait_all(a, behind, lost, b); });
            EXPECT(e.peer() == 1 && bad.internals().pending.empty());
            EXPECT(a.test() && b.test());
            (void)thrown<collx::timed_out>(w, [&] { lost.wait(); }); // a failed call must not look successful
            (void)thrown<collx::timed_out>(w, [&] { (void)behind.test(); });
            collx::wait_all(a, behind, lost, b); // all have already been waited for
        } else {
            collx::wait_all(a, b);
        }
        EXPECT(x.front() == 2 && x.back() == 2 && y.front() == 2 && y.back() == 2);
        collx::barrier(good);
    });
}

TEST_CASE("an exception of the program's own operator is what wait_all throws") {
    std::atomic<int> started{0};
    on_ranks(2, [&](collx::communicator& w) {
        w.set_checked(false);
        std::vector<int> x(10, 1), y(10, 1);
        const auto op = [&](int a, int b) { return w.rank() == 0 && started == 2 ? throw wrong("mine") : a + b; };
        collx_test::until([&] { return started == w.rank(); }); // rank 0 must wait for rank 1
        works list;
        list.push_back(collx::async::all_reduce(w, x, op));
        if (w.rank() == 1) list.push_back(collx::async::all_reduce(w, y)); // before the failure
        ++started;
        collx_test::until([&] { return started == 2; });
        if (w.rank() == 0) {
            (void)thrown<wrong>(w, [&] { collx::wait_all(list); });
            EXPECT(w.internals().pending.empty());
        } else {
            (void)thrown<collx::aborted>(w, [&] { collx::wait_all(list); });
            EXPECT(w.internals().pending.empty());
        }
    });
}

TEST_CASE("wait_any and wait_some throw a failure once; the loop may go on with the others") {
    for (const bool some : {false, true}) {
        std::atomic<bool> go{false};
        on_ranks(2, [some, &go](collx::communicator& w) {
            auto good = w.dup(), bad = w.dup();
            std::vector<int> x(100, 1), y(100, 1);
            works list;
            list.push_back(collx::async::all_reduce(good, y));
            if (w.rank() == 0) {
                list.push_back(collx::async::recv(bad, x, 1));
                list.push_back(collx::async::recv(bad, x, 1));
                go = true;
            } else {
                wait_until(go);
                bad.abort();
            }
            int done = 0, failed = 0;
            for (int turns = 0; turns < 100; ++turns) {
                try {
                    if (some) {
                        const auto k = collx::wait_some(list);
                        if (k.empty()) break;
                        done += static_cast<int>(k.size());
                    } else {
                        const std::size_t k = collx::wait_any(list);
                        if (k == collx::no_work) break;
                        EXPECT(k == 0);
                        ++done;
                    }
                } catch (const collx::aborted& e) {
                    EXPECT(e.peer() == 1);
                    ++failed;
                }
            }
            EXPECT(done == 1 && failed == (w.rank() == 0 ? 2 : 0) && y.back() == 2);
        });
    }
}

TEST_CASE("handles that were moved from, or whose communicator is gone, may be in the list, also first") {
    on_ranks(2, [](collx::communicator& w) {
        std::vector<int> x(100, 1);
        auto a = collx::async::all_reduce(w, x);
        auto b = std::move(a);
        collx::wait_all(a, b);
        EXPECT(collx::wait_any(a, b) == collx::no_work && x.back() == 2);
        works list;
        {
            auto other = w.dup();
            list.push_back(collx::async::barrier(other));
            collx_test::until([&] { return list[0].test(); });
            list.push_back(collx::async::barrier(w));
        }
        collx::wait_all(list);
        auto p = collx::persistent::all_reduce(w, x);
        auto q = std::move(p);
        collx::wait_all(p, q); // neither is under way
        EXPECT(collx::wait_some(p, q).empty());
    });
}

TEST_CASE("persistent calls in a list: those under way are waited for, and can be started again") {
    for (const int ranks_per_host : {0, 1})
        on_hosts(2, {ranks_per_host}, [](collx::communicator& w) {
            std::vector<int> x(10, 1), y(40'000, 1), from(3), to(3, w.rank());
            std::vector<collx::persistent_call> list;
            list.push_back(collx::persistent::all_reduce(w, x));
            list.push_back(collx::persistent::all_reduce(w, y));
            list.push_back(collx::persistent::send(w, to, 1 - w.rank()));
            list.push_back(collx::persistent::recv(w, from, 1 - w.rank()));
            for (int k = 1; k <= 3; ++k) {
                EXPECT(collx::wait_any(list) == collx::no_work);
                for (auto& c : list) c.start();
                auto fence = collx::async::barrier(w);
                std::size_t seen = 0;
                if (k == 1) {
                    std::size_t at = 0;
                    for (int turns = 0; turns < 5 && (at = collx::wait_any(list)) != collx::no_work; ++turns)
                        seen |= 1u << at;
                } else if (k == 2) {
                    for (int turns = 0; turns < 5; ++turns)
                        for (const std::size_t at : collx::wait_some(list)) seen |= 1u << at;
                } else {
                    collx::wait_all(list[3], fence, list[1], list[2], list[0]);
                    seen = 15;
                }
                collx::wait_all(fence);
                EXPECT(seen == 15 && x.back() == 1 << k && y.back() == 1 << k && from.back() == 1 - w.rank());
                EXPECT(w.progress() == 0);
                const auto e = thrown<collx::invalid_argument>(w, [&] { list[0].wait(); });
                EXPECT(says(e, "start() it first")); // wait_all() was its wait()
            }
        });
}

TEST_CASE("one handle may be listed twice") {
    on_ranks(2, [](collx::communicator& w) {
        std::vector<int> x(100, 1), y(100, 1);
        auto p = collx::persistent::all_reduce(w, x);
        for (int i = 0; i < 2; ++i) {
            auto k = collx::async::all_reduce(w, y);
            p.start();
            collx::wait_all(p, k, p, k);
        }
        EXPECT(x[0] == 4 && y[0] == 4);
    });
}

TEST_CASE("a persistent call that fails in a list leaves nothing under way") {
    for (const int how : {0, 1, 2}) { // wait_all, wait_any, wait_some
        std::atomic<bool> go{false};
        on_ranks(2, [how, &go](collx::communicator& w) {
            auto good = w.dup(), bad = w.dup();
            std::vector<int> x(100, 1), y(100, 1), z(100, 1);
            auto fine = collx::persistent::all_reduce(good, y);
            auto lost = collx::persistent::recv(bad, x, 1 - w.rank());
            auto never = collx::persistent::recv(bad, z, 1 - w.rank());
            fine.start();
            if (w.rank() == 1) {
                wait_until(go);
                bad.abort();
                fine.wait();
                EXPECT(y.back() == 2);
                return;
            }
            lost.start();
            go = true;
            if (how == 0) (void)thrown<collx::aborted>(w, [&] { collx::wait_all(lost, never, fine); });
            if (how == 1)
                (void)thrown<collx::aborted>(w, [&] {
                    while (collx::wait_any(never, lost, fine) == 2) {
                    }
                });
            if (how == 2)
                (void)thrown<collx::aborted>(w, [&] {
                    while (!collx::wait_some(never, lost, fine).empty()) {
                    }
                });
            EXPECT(bad.internals().pending.empty());
            collx::wait_all(lost, never, fine); // the failure was thrown once
            EXPECT(y.back() == 2);
            (void)thrown<collx::aborted>(w, [&] { lost.wait(); });
            (void)thrown<collx::aborted>(w, [&] { (void)lost.test(); });
            (void)thrown<collx::aborted>(w, [&] { lost.start(); });
            (void)thrown<collx::aborted>(w, [&] { never.start(); });
        });
    }
}
