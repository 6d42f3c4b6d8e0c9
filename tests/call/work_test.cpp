// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300
//
// Calls that run while the program computes.
#include <collx/comm/progress.hpp>

#include "comm/support.hpp"
#include "support/caught_stderr.hpp"
#include "support/computed.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <optional>
#include <thread>

using namespace collx_test;
using namespace std::chrono_literals;

TEST_CASE("a time is what std::chrono says, in nanoseconds, and turns into it") {
    using collx::duration;
    STATIC_REQUIRE(duration(5s).count() == 5'000'000'000);
    STATIC_REQUIRE(duration(2min) == duration(120s));
    STATIC_REQUIRE(duration(7us).count() == 7'000);
    STATIC_REQUIRE(duration().count() == 0);
    STATIC_REQUIRE(duration(std::chrono::hours::max()).count() == INT64_MAX);
    STATIC_REQUIRE(duration(std::chrono::hours::min()).count() == INT64_MIN);
    STATIC_REQUIRE(collx::call_options{.timeout = 3ms}.timeout == duration::from_ns(3'000'000));
    STATIC_REQUIRE(std::chrono::nanoseconds(duration(-1ms)) == -1ms);
    // Durations that would be rounded are not accepted.
    STATIC_REQUIRE_FALSE(std::is_convertible_v<std::chrono::duration<double>, duration>);
    STATIC_REQUIRE_FALSE(std::is_convertible_v<std::chrono::duration<int, std::pico>, duration>);
    STATIC_REQUIRE_FALSE(std::is_convertible_v<int, duration>);
}

TEST_CASE("work is done when test() says so, while the program computes") {
    for (const int n : {1, 2, 4})
        on_ranks(n, [n](collx::communicator& w) {
            for (const std::size_t size : {1u, 1000u, 300'001u}) {
                auto x = samples(w.rank(), size);
                auto work = collx::async::all_reduce(w, x);
                while (!work.test()) {
                }
                for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, x[i] == folded(i, 0, n));
                EXPECT(work.test() && w.progress() == 0);
                work.wait();
            }
        });
}

TEST_CASE("several calls under way, waited for in any order, by different ranks in different orders") {
    for (const int n : {1, 2, 5})
        on_ranks(n, [n](collx::communicator& w) {
            constexpr std::size_t calls = 13; // more than there are ports
            for (int round = 0; round < 8; ++round) {
                std::vector<std::vector<int>> x;
                std::vector<std::optional<collx::work<void>>> works(calls);
                for (std::size_t k = 0; k < calls; ++k)
                    x.push_back(samples(w.rank() + static_cast<int>(k), k * k * 250));
                for (std::size_t k = 0; k < calls; ++k) works[k].emplace(collx::async::all_reduce(w, x[k]));
                for (std::size_t k = 0; k < calls; ++k) {
                    const std::size_t j = (k * 5 + static_cast<std::size_t>(w.rank() + round)) % calls;
                    works[j]->wait();
                    works[j].reset();
                    for (std::size_t i = 0; i < x[j].size(); ++i)
                        EXPECT_AT(i, x[j][i] == folded(i, static_cast<int>(j), static_cast<int>(j) + n));
                }
                EXPECT(w.progress() == 0);
            }
        });
}

TEST_CASE("all verbs may be under way at once, beside blocking calls") {
    on_ranks(4, [](collx::communicator& w) {
        const auto u = static_cast<std::size_t>(w.rank());
        for (const std::size_t size : {4u, 4000u, 40'000u}) {
            std::vector<int> a(size, 1), b(size, w.rank()), c(size, 1), d(size / 4, w.rank()), e(size), f(size, 1),
                g(size / 4), h(size), i(size, 1), j(size), k(size, 2);
            std::iota(h.begin(), h.end(), w.rank() * 1000);
            auto w1 = collx::async::all_reduce(w, a);
            auto w2 = collx::async::broadcast(w, b, {.root = 3});
            auto w3 = collx::async::reduce(w, c, collx::plus{}, {.root = 1});
            auto w4 = collx::async::all_gather(w, d, e);
            auto w5 = collx::async::reduce_scatter(w, f, g);
            auto w6 = collx::async::all_to_all(w, h, j);
            auto w7 = collx::async::scan(w, i);
            auto w8 = collx::async::barrier(w);
            collx::all_reduce(w, k); // blocking, before all of them complete
            EXPECT(k.back() == 8);
            w8.wait();
            w6.wait();
            w7.wait();
            w3.wait();
            w5.wait();
            w2.wait();
            w4.wait();
            w1.wait();
            EXPECT(a.back() == 4 && b.back() == 3 && c.back() == (w.rank() == 1 ? 4 : 1) && g.back() == 4 &&
                   i.back() == w.rank() + 1);
            for (std::size_t r = 0; r < 4; ++r)
                EXPECT_AT(r, e[r * (size / 4)] == static_cast<int>(r) &&
                                 j[r * (size / 4)] == static_cast<int>(r * 1000 + u * (size / 4)));
        }
    });
}

TEST_CASE("v-variants under way keep their tables of counts alive") {
    on_ranks(3, [](collx::communicator& w) {
        std::vector<int> out(6, -1), back(static_cast<std::size_t>(w.rank()) + 1, -1),
            mine(static_cast<std::size_t>(w.rank()) + 1, w.rank());
        auto gathering = collx::async::all_gather_v(w, mine, out, std::vector<int>{1, 2, 3});
        std::vector<int> scratch(6, 77); // likely to reuse the table's memory, had it been freed
        gathering.wait();
        EXPECT(out == std::vector<int>({0, 1, 1, 2, 2, 2}) && scratch[0] == 77);
        auto exchanging =
            collx::async::all_to_all_v(w, out, std::vector<int>{2, 2, 2}, scratch, std::vector<int>{2, 2, 2});
        exchanging.wait();
        EXPECT(scratch[0] == out[static_cast<std::size_t>(2 * w.rank())]);
        collx::async::scatter_v(w, out, back, std::vector<int>{1, 2, 3}).wait();
        EXPECT(back.back() == std::vector<int>({0, 1, 2})[static_cast<std::size_t>(w.rank())]);
        collx::async::gather_v(w, mine, scratch, std::vector<int>{1, 2, 3}, std::vector<int>(), {.root = 2}).wait();
        EXPECT(w.rank() != 2 || scratch == out);
        collx::async::reduce_scatter_v(w, out, back, std::vector<int>{1, 2, 3}).wait();
        EXPECT(back[0] == 3 * w.rank());
    });
}

TEST_CASE("a buffer that is moved into the call comes back from wait()") {
    on_ranks(3, [](collx::communicator& w) {
        std::vector<int> x(5000, w.rank());
        const int* const memory = x.data();
        auto work = collx::async::all_reduce(w, std::move(x), collx::max{});
        std::vector<int> y = work.wait();
        EXPECT(y.data() == memory && y.size() == 5000 && y.back() == 2);
    });
}

TEST_CASE("every verb takes temporaries under way: outputs come back from wait(), inputs live as long as the handle") {
    for (const int ranks_per_host : {0, 2})
        on_hosts(3, {ranks_per_host}, [](collx::communicator& w) {
            using list = std::vector<int>;
            const int me = w.rank();
            const std::size_t m = 40'000, all = 3 * m;
            const auto u = static_cast<std::size_t>(me);
            const std::vector<std::size_t> counts(3, m);
            const auto mine = [me](std::size_t size) { return list(size, me + 1); };
            // All at once, so that memory freed too early would belong to another call when it is read.
            auto sum = collx::async::all_reduce(w, mine(all), list(all));
            auto there = collx::async::broadcast(w, mine(all), {.root = 1});
            auto at_root = collx::async::reduce(w, mine(all), collx::max{}, {.root = 2});
            auto at_root_out = collx::async::reduce(w, mine(all), list(all));
            auto gathered = collx::async::all_gather(w, mine(m), list(all));
            auto gathered_v = collx::async::all_gather_v(w, mine(m), list(all), counts);
            auto in_place = collx::async::all_gather(w, [&] {
                list x(all);
                std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(u * m), m, me + 1);
                return x;
            }());
            auto part = collx::async::reduce_scatter(w, mine(all), list(m));
            auto part_in_place = collx::async::reduce_scatter(w, mine(all));
            auto part_v = collx::async::reduce_scatter_v(w, mine(all), list(m), counts);
            auto part_v_in_place = collx::async::reduce_scatter_v(w, mine(all), counts);
            auto to_root = collx::async::gather(w, mine(m), list(all), {.root = 1});
            auto to_root_v = collx::async::gather_v(w, mine(m), list(all), counts);
            auto from_root = collx::async::scatter(w, mine(all), list(m), {.root = 2});
            auto from_root_v = collx::async::scatter_v(w, mine(all), list(m), counts);
            auto exchanged = collx::async::all_to_all(w, mine(all), list(all));
            auto exchanged_in_place = collx::async::all_to_all(w, mine(all));
            auto exchanged_v = collx::async::all_to_all_v(w, mine(all), counts, list(all), counts);
            auto exchanged_v_in_place = collx::async::all_to_all_v(w, mine(all), counts);
            auto so_far = collx::async::scan(w, mine(all));
            auto before = collx::async::exclusive_scan(w, mine(all), list(all, -1));
            auto received = collx::async::recv(w, list(all), (me + 2) % 3);
            collx::work<void> sent = collx::async::send(w, mine(all), (me + 1) % 3); // nothing is returned
            const list kept_input = mine(all);
            list result(all);
            collx::work<void> kept = collx::async::all_reduce(w, kept_input, result);            // nothing was moved in
            collx::work<void> seen = collx::async::all_reduce(w, collx::view(result.data(), 0)); // owns nothing
            seen.wait();
            kept.wait();
            sent.wait();
            const auto is = [&](const list& x, std::size_t size, int value) {
                return x.size() == size && std::count(x.begin(), x.end(), value) == static_cast<std::ptrdiff_t>(size);
            };
            const auto is_123 = [&](const list& x) {
                for (std::size_t i = 0; i < all; ++i)
                    if (x[i] != static_cast<int>(i / m) + 1) return false;
                return x.size() == all;
            };
            EXPECT(is(result, all, 6) && is(received.wait(), all, (me + 2) % 3 + 1));
            EXPECT(is(sum.wait(), all, 6) && is(there.wait(), all, 2));
            EXPECT(is(at_root.wait(), all, me == 2 ? 3 : me + 1) && is(at_root_out.wait(), all, me == 0 ? 6 : 0));
            EXPECT(is_123(gathered.wait()) && is_123(gathered_v.wait()) && is_123(in_place.wait()));
            EXPECT(is(part.wait(), m, 6) && is(part_v.wait(), m, 6));
            const list a = part_in_place.wait(), b = part_v_in_place.wait();
            EXPECT(a.size() == all && b.size() == all);
            for (std::size_t i = u * m; i < (u + 1) * m; ++i) EXPECT_AT(i, a[i] == 6 && b[i] == 6);
            const list c = to_root.wait(), d = to_root_v.wait();
            EXPECT((me == 1 ? is_123(c) : is(c, all, 0)) && (me == 0 ? is_123(d) : is(d, all, 0)));
            EXPECT(is(from_root.wait(), m, 3) && is(from_root_v.wait(), m, 1));
            EXPECT(is_123(exchanged.wait()) && is_123(exchanged_v.wait()));
            EXPECT(is_123(exchanged_in_place.wait()) && is_123(exchanged_v_in_place.wait()));
            EXPECT(is(so_far.wait(), all, (me + 1) * (me + 2) / 2) &&
                   is(before.wait(), all, me == 0 ? -1 : me * (me + 1) / 2));
        });
}

TEST_CASE("what only looks like a temporary is moved in as well, and handles may outlive the line in any order") {
    struct counted {
        std::vector<int> memory;
        auto collx_buffer() { return collx::view(memory.data(), memory.size()); }
        auto collx_buffer() const { return collx::view(memory.data(), memory.size()); }
    };
    on_ranks(2, [](collx::communicator& w) {
        auto first = collx::async::all_reduce(w, counted{std::vector<int>(3000, 1)});
        auto second = collx::async::all_gather(w, std::array<int, 2>{w.rank(), 7}, std::vector<int>(4));
        auto third = std::move(first);
        first = collx::async::all_reduce(w, counted{std::vector<int>(3000, 5)});
        const std::vector<int> gathered = second.wait();
        EXPECT(gathered == std::vector<int>({0, 7, 1, 7}));
        EXPECT(third.wait().memory.back() == 2 && first.wait().memory.back() == 10);
        // A refused call leaves nothing outstanding.
        const auto e = thrown<collx::invalid_argument>(
            w, [&] { (void)collx::async::all_gather(w, std::vector<int>(3), std::vector<int>(7)); });
        EXPECT(says(e, "the output buffer has 7 elements and needs 6") && w.progress() == 0);
    });
}

TEST_CASE("a lazy view is copied into a call under way and into a persistent one") {
    on_ranks(2, [](collx::communicator& w) {
        struct times {
            int by;
            int operator()(int i) const { return i * by; }
        };
        const int me = w.rank();
        using lazy = collx_test::computed<times>;
        std::optional<lazy> view(std::in_place, 50'000, times{me + 1});
        const lazy& seen = *view;
        std::vector<int> sum(50'000), again(50'000), here(50'000);
        auto summed = collx::async::all_reduce(w, *view, sum);
        auto sent = collx::async::send(w, seen, 1 - me);
        auto ready = collx::persistent::all_reduce(w, seen, again);
        view.emplace(50'000, times{1000}); // in the place of the first
        collx::recv(w, here, 1 - me);
        sent.wait();
        summed.wait();
        for (int k = 0; k < 2; ++k) {
            ready();
            EXPECT_AT(k, again.back() == 49'999 * 3);
            again.back() = 0;
        }
        EXPECT(sum.back() == 49'999 * 3 && here.back() == 49'999 * (2 - me));
    });
}

TEST_CASE("work may be moved, and waited for with a limit") {
    std::atomic<bool> go{false};
    on_ranks(2, [&](collx::communicator& w) {
        int x = w.rank(), y = -1;
        std::optional<collx::work<void>> kept;
        {
            auto work =
                w.rank() == 0 ? collx::async::recv(w, collx::value(y), 1) : collx::async::send(w, collx::value(x), 1);
            if (w.rank() == 1) work = collx::async::recv(w, collx::value(y), 1);
            kept.emplace(std::move(work));
        }
        if (w.rank() == 0) {
            EXPECT(!kept->wait_for(2ms) && !kept->test());
            go = true;
            kept->wait();
            EXPECT(y == 1 && kept->wait_for(1ms));
        } else {
            kept->wait();
            EXPECT(y == 1);
            until([&] { return go.load(); });
            collx::send(w, collx::value(x), 0);
        }
    });
}

TEST_CASE("a handle of an unfinished call says so when another takes its place, and the communicator ends") {
    caught_stderr caught;
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(false);
        int x = 1, y = 1;
        if (w.rank() == 0) { // no rank sends
            auto work = collx::async::recv(w, collx::value(x), 1), other = collx::async::recv(w, collx::value(y), 1);
            work = std::move(other);
            EXPECT(thrown<collx::aborted>(w, [&] { work.wait(); }).peer() == 0);
        }
        EXPECT(thrown<collx::aborted>(w, [&] { collx::barrier(w); }).peer() == 0);
        EXPECT(x == 1 && y == 1);
    });
    CHECK(caught.text() == "collx: warning: rank 0: the handle of an unfinished call was destroyed, which ends the "
                           "communicator (wait() for it first)\n");
}

TEST_CASE("a handle that is moved to itself stays as it is") {
    on_ranks(2, [](collx::communicator& w) {
        std::vector<int> x(5000, 1), y(5000, 1);
        auto k = collx::async::all_reduce(w, x);
        auto& same = k;
        k = std::move(same);
        k.wait();
        auto again = collx::persistent::all_reduce(w, y);
        again.start();
        auto& same_again = again;
        again = std::move(same_again);
        again.wait();
        EXPECT(x[4999] == 2 && y[4999] == 2);
        again();
        EXPECT(y[0] == 4);
    });
}

TEST_CASE("checked mode tells an async call from a blocking one") {
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(true);
        std::vector<int> x(3000, 1);
        const auto e = thrown<collx::mismatch>(w, [&] {
            if (w.rank() == 0) collx::async::broadcast(w, x).wait();
            else collx::broadcast(w, x);
        });
        EXPECT(says(e, "collective is async broadcast on rank 0 and broadcast on rank 1"));
    });
}

TEST_CASE("a call that throws leaves nothing under way that would touch its buffers") {
    std::atomic<bool> over{false};
    on_ranks(2, [&](collx::communicator& w) {
        const auto& pending = w.internals().pending;
        if (w.rank() == 0) { // a receive that waits behind another one
            std::vector<int> x(1000), y(1000);
            const auto first = collx::async::recv(w, x, 1);
            (void)thrown<collx::timed_out>(w, [&] { collx::recv(w, y, 1, {.timeout = 1ms}); });
            EXPECT(pending.empty()); // the communicator has ended, and so has the first receive
            over = true;
        } else {
            EXPECT(pending.size() == 0);
            collx_test::until([&] { return over.load(); }); // a rank that has left would be named as that
        }
    });
    std::atomic<int> started{0};
    on_ranks(2, [&](collx::communicator& w) { // a call in which the operator of another call throws
        w.set_checked(false);                 // otherwise each call waits for the other rank
        std::vector<int> x(10, 1), y(10, 1);
        const auto op = [&](int a, int b) { return w.rank() == 0 && started == 2 ? throw wrong("mine") : a + b; };
        collx_test::until([&] { return started == w.rank(); }); // rank 0 must wait for rank 1
        const auto first = collx::async::all_reduce(w, x, op);
        ++started;
        collx_test::until([&] { return started == 2; });
        if (w.rank() == 0) (void)thrown<wrong>(w, [&] { (void)collx::async::all_reduce(w, y); });
        else
            (void)thrown<collx::aborted>(w, [&] {
                for (;;) collx::all_reduce(w, y);
            });
        EXPECT(w.rank() != 0 || w.internals().pending.empty());
    });
}

TEST_CASE("after a wait has thrown, what still comes does not reach the buffer") {
    for (const int ranks_per_host : {0, 1})
        for (const bool by_thread : {false, true}) {
            std::atomic<bool> has_thrown{false}, is_sent{false};
            on_hosts(2, {ranks_per_host}, [&](collx::communicator& w) {
                at("%d ranks on a host, progress thread %d", ranks_per_host, by_thread);
                w.set_checked(false);
                constexpr int n = 1 << 20;
                if (w.rank() == 1) { // sends the first elements, and the others when the receiver has given up
                    const auto slow = collx_test::computed(n, [&](int i) {
                        if (i > 100'000 && !has_thrown) collx_test::until([&] { return has_thrown.load(); });
                        return i + 1;
                    });
                    EXPECT(thrown<collx::error>(w, [&] {
                               collx::send(w, slow, 0);
                               collx::barrier(w);
                           }).code() != collx::errc::resource);
                    is_sent = true;
                    return;
                }
                if (by_thread) (void)w.with(collx::progress::thread{});
                std::vector<int> x(n), y(10);
                auto first = collx::async::recv(w, x, 1, {.timeout = 50ms});
                auto second = collx::async::recv(w, y, 1);
                (void)thrown<collx::timed_out>(w, [&] { first.wait(); });
                x.assign(n, -7); // the program's again
                has_thrown = true;
                collx_test::until([&] {
                    (void)w.progress();
                    return is_sent.load();
                });
                (void)thrown<collx::timed_out>(w, [&] { second.wait(); });
                EXPECT(std::count(x.begin(), x.end(), -7) == n);
            });
        }
}

TEST_CASE("short waits, one after the other, notice what ends the call") {
    std::atomic<bool> is_under_way{false};
    on_ranks(2, [&](collx::communicator& w) {
        auto own = w.dup();
        own.set_checked(false);
        std::vector<int> x(10);
        if (w.rank() == 1) {
            collx_test::until([&] { return is_under_way.load(); });
            own.abort();
        } else {
            auto received = collx::async::recv(own, x, 1);
            is_under_way = true;
            const auto end = std::chrono::steady_clock::now() + collx_test::patient(20s);
            const auto e = thrown<collx::aborted>(w, [&] {
                while (!received.wait_for(0s) && std::chrono::steady_clock::now() < end) continue;
            });
            EXPECT(e.peer() == 1);
        }
        collx::barrier(w);
        EXPECT(x[0] == 0);
    });
}

TEST_CASE("a handle that is dropped ends the calls of other hosts at once") {
    collx_test::caught_stderr caught;
    for (const int ranks_per_host : {0, 1}) {
        std::atomic<bool> is_after_barrier{false}, has_noticed{false};
        on_hosts(2, {ranks_per_host}, [&](collx::communicator& w) {
            w.set_timeout(collx_test::patient(40s));
            w.set_checked(false);
            std::vector<int> x(10);
            collx::barrier(w);
            if (w.rank() == 1) {
                is_after_barrier = true; // which must not be what fails
                EXPECT(thrown<collx::aborted>(w, [&] { collx::recv(w, x, 0); }).peer() == 0);
                has_noticed = true;
                return;
            }
            collx_test::until([&] { return is_after_barrier.load(); });
            { const auto dropped = collx::async::recv(w, x, 1); }
            collx_test::until([&] { return has_noticed.load(); }); // this rank is in no call meanwhile
            EXPECT(has_noticed);
        });
    }
    CHECK(caught.text().find("the handle of an unfinished call was destroyed") != std::string::npos);
}

TEST_CASE("a handle that was moved from has no buffer to return") {
    collx::communicator w;
    auto sum = collx::async::all_reduce(w, std::vector<int>{1, 2});
    auto moved = std::move(sum);
    CHECK(moved.wait() == std::vector<int>{1, 2});
    CHECK_THROWS_WITH(sum.wait(), Catch::Contains("this handle was moved from")); // NOLINT(bugprone-use-after-move)
}

TEST_CASE("handles may outlive a communicator that has failed, in whatever way they learn of it") {
    for (const int ranks_per_host : {0, 1})
        for (const int way : {0, 1, 2, 3, 4}) {
            std::atomic<int> started{0};
            on_hosts(3, {ranks_per_host}, [&](collx::communicator& w) {
                at("%d ranks on a host, way %d", ranks_per_host, way);
                auto other = w.dup();
                other.set_checked(false);
                collx::barrier(w);
                if (w.rank() == 2) {
                    collx_test::until([&] { return started == 2; });
                    other.abort();
                    (void)thrown<collx::aborted>(w, [&] { collx::barrier(other); });
                    return collx::barrier(w);
                }
                std::vector<float> x(800, 1.0f), y(800, 1.0f);
                std::vector<collx::work<void>> list;
                list.push_back(collx::async::all_reduce(other, x));
                list.push_back(collx::async::all_reduce(other, y));
                ++started;
                collx_test::until([&] { return started == 2; });
                if (way == 0) collx_test::until([&] { return other.progress() == 0; });
                if (way == 1) (void)thrown<collx::aborted>(w, [&] { list[0].wait(); });
                if (way == 2) (void)thrown<collx::aborted>(w, [&] { collx::wait_all(list); });
                if (way == 3)
                    (void)thrown<collx::aborted>(w, [&] {
                        while (!list[0].test()) {
                        }
                    });
                { const collx::communicator gone = std::move(other); }
                for (auto& l : list) {
                    (void)thrown<collx::aborted>(w, [&] { l.wait(); });
                    (void)thrown<collx::aborted>(w, [&] { (void)l.test(); });
                    (void)thrown<collx::aborted>(w, [&] { (void)l.wait_for(1ms); });
                }
                if (way != 2) (void)thrown<collx::aborted>(w, [&] { collx::wait_all(list); });
                list.clear();
                collx::barrier(w);
            });
        }
}

TEST_CASE("an async call that one rank alone refuses takes no turn: made again, it is right") {
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(false);
        auto bound = w.with(collx::algo::zero_copy_all_reduce{});
        auto shared = collx::make_shared_vector<int>(w, 1024);
        std::vector<int> own(1024, 1);
        std::fill(shared.begin(), shared.end(), w.rank());
        if (w.rank() == 0)
            (void)thrown<collx::invalid_argument>(w, [&] { (void)collx::async::all_reduce(bound, own); });
        collx::async::all_reduce(bound, shared).wait();
        EXPECT(shared.front() == 1 && shared.back() == 1);
        if (w.rank() == 1)
            (void)thrown<collx::invalid_argument>(w, [&] { (void)collx::persistent::all_reduce(bound, own); });
        auto again = collx::persistent::all_reduce(bound, shared);
        again();
        EXPECT(shared.front() == 2 && shared.back() == 2);
    });
}

TEST_CASE("calls that need scratch memory may overlap with larger ones") {
    // Ports are reused in turn: every third call waits behind the first, and a larger one must not take its scratch
    // memory.
    on_ranks(5, [](collx::communicator& w) {
        w.set_checked(false); // so that one rank may run ahead
        for (int round = 0; round < 20; ++round) {
            std::vector<std::vector<int>> x;
            std::vector<collx::work<void>> works;
            if (round % 5 != w.rank()) std::this_thread::sleep_for(1ms);
            for (std::size_t k = 0; k < 9; ++k)
                x.push_back(samples(w.rank(), (k + 1) * 700 + static_cast<std::size_t>(round) * 300));
            for (std::size_t k = 0; k < 9; ++k) // pieces grow with every call, and so does the scratch memory
                works.push_back(collx::async::all_reduce(
                    w.with(collx::algo::binomial_all_reduce{}, collx::piece{(k + 1) * 400}), x[k]));
            for (auto& k : works) k.wait();
            for (auto& v : x)
                for (std::size_t i = 0; i < v.size(); ++i) EXPECT_AT(i, v[i] == folded(i, 0, 5));
        }
    });
}

TEST_CASE("a checked call carries on what is under way: another rank may wait for that first") {
    for (const int ranks_per_host : {0, 1})
        on_hosts(3, {ranks_per_host}, [](collx::communicator& w) {
            w.set_timeout(collx_test::patient(40s));
            w.set_checked(true);
            for (int round = 0; round < 4; ++round) {
                auto x = samples(w.rank(), 400'000);
                int y = 1;
                auto work = collx::async::all_reduce(w, x);
                if (w.rank() == round % 3) work.wait();
                collx::all_reduce(w, collx::value(y));
                work.wait();
                EXPECT(y == 3);
                for (std::size_t i = 0; i < x.size(); i += 997) EXPECT_AT(i, x[i] == folded(i, 0, 3));
            }
        });
}

TEST_CASE("making a communicator carries on what is under way in its parent") {
    for (const int ranks_per_host : {0, 1})
        on_hosts(3, {ranks_per_host}, [](collx::communicator& w) {
            w.set_timeout(collx_test::patient(40s));
            auto x = samples(w.rank(), 400'000);
            auto work = collx::async::all_reduce(w, x);
            if (w.rank() == 0) work.wait();
            auto all = w.split(0);
            work.wait();
            EXPECT(all.size() == 3);
            for (std::size_t i = 0; i < x.size(); i += 997) EXPECT_AT(i, x[i] == folded(i, 0, 3));
        });
}

TEST_CASE("between hosts a call returns though another one, under way, has no room at its receiver") {
    std::atomic<int> returned{0};
    on_hosts(2, {1}, [&](collx::communicator& w) {
        w.set_timeout(collx_test::patient(40s));
        w.set_checked(false);
        auto x = samples(0, 16'000'000); // many times the slots of a channel
        if (w.rank() == 1) x.assign(x.size(), 0);
        auto work = collx::async::broadcast(w, x);
        const auto soon = std::chrono::steady_clock::now() + 100ms;
        while (std::chrono::steady_clock::now() < soon)
            if (w.rank() == 0) (void)w.progress(); // fills the slots that are free
        collx::barrier(w);
        // The rank that finishes first makes no other call before the other rank has returned, too.
        ++returned;
        until([&] { return returned == 2; });
        work.wait();
        for (std::size_t i = 0; i < x.size(); i += 9973) EXPECT_AT(i, x[i] == folded(i, 0, 1));
    });
}
