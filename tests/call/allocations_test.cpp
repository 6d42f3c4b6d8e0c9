// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=no
//
// A repeated call allocates nothing from the heap: the test counts operator new.
#include <collx/comm/progress.hpp>
#include <collx/comm/window.hpp>

#include "comm/support.hpp"

#include <atomic>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <thread>

using namespace collx_test;
using collx::collective;

namespace {

thread_local long allocations = 0;
thread_local long until_none = -1; // allocations until one fails; -1: none fails

} // namespace

[[gnu::noinline]] void* operator new(std::size_t n) {
    ++allocations;
    if (until_none > 0 && --until_none == 0) throw std::bad_alloc();
    if (void* p = std::malloc(n != 0 ? n : 1)) return p;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

TEST_CASE("a call that was made before takes no memory from the heap") {
    for (const int n : {1, 2, 3})
        on_ranks(n, [n](collx::communicator& w) {
            const auto u = static_cast<std::size_t>(n);
            std::vector<int> x(3000 * u, 1), y(3000 * u), part(3000);
            const std::vector<std::size_t> counts(u, 3000);
            long small = 1, other = 1;
            collx::persistent::group g(w);
            g.all_reduce(collx::value(small), collx::max{});
            g.all_reduce(collx::value(other), collx::max{});
            auto grouped = g.launch();
            const auto planned = [&] {
                collx::all_reduce(w, collx::value(small), collx::max{});
                grouped();
                collx::all_reduce(w, x, y);
                collx::broadcast(w, x, {.root = n - 1});
                collx::reduce(w, x, y, collx::plus{}, {.root = 0});
                collx::all_gather(w, part, y);
                collx::reduce_scatter(w, x, part);
                collx::all_to_all(w, x, y);
                collx::scan(w, part, collx::max{});
                collx::barrier(w);
                collx::all_gather_v(w, part, y, counts);
                collx::reduce_scatter_v(w, x, part, counts);
                collx::all_to_all_v(w, x, counts, y, counts);
                collx::all_to_all(w, y);
                collx::all_to_all_v(w, y, counts);
                collx::reduce_scatter_v(w, y, counts);
                for_each_copying_algorithm<collective::all_reduce>(
                    [&](auto a) { collx::all_reduce(w.with(a), x, y, collx::max{}); });
                std::fill(x.begin(), x.end(), 1);
            };
            for (const bool checked : {false, true}) {
                w.set_checked(checked);
                planned();
                const long before = allocations;
                for (int i = 0; i < 20; ++i) planned();
                EXPECT_AT(allocations - before, allocations == before);
            }
        });
}

// The second of two ranks gets no memory at its k-th request within call(world, from_now_on), for k = 1, 2, ... until
// it makes fewer requests. It throws bad_alloc or `resource`, and the other rank is notified at once. `call` throws
// `wrong` for wrong results.
template <class Call>
void fail_each_allocation(const char* what, const Call& call) {
    for (const bool is_one_host : {true, false}) {
        for (long k = 1;; ++k) {
            bool has_failed = false;
            REQUIRE(k < 1000);
            std::atomic<int> done{0};
            collx::run_threads({0, is_one_host ? 0 : 1}, [&](collx::communicator& w) {
                w.set_timeout(collx_test::patient(std::chrono::seconds(50)));
                std::string odd; // reported when both ranks are done
                const auto look = [&](const std::exception& e, bool is_expected) {
                    until_none = -1;
                    if (w.rank() == 1) has_failed = true;
                    if (!is_expected) odd = e.what();
                };
                try {
                    call(w, [&] { until_none = w.rank() == 1 ? k : -1; });
                } catch (const std::bad_alloc& e) {
                    look(e, w.rank() == 1);
                } catch (const wrong& e) {
                    look(e, false);
                } catch (const collx::error& e) { // aborted; between hosts rank 1 is the first of its host, or has left
                    look(e, e.code() == collx::errc::aborted ||
                                (!is_one_host && (e.code() == collx::errc::resource || w.rank() == 0) &&
                                 e.code() != collx::errc::timeout));
                }
                until_none = -1;
                for (++done; done.load() < 2;) ::sched_yield(); // neither rank notices that the other has ended
                at("%s, allocation %ld, one host: %d, %s", what, k, is_one_host, odd.c_str());
                EXPECT(odd.empty());
            });
            if (!has_failed) break;
        }
    }
}

TEST_CASE("a rank that has no memory for its part in a split ends the split of the others at once") {
    fail_each_allocation("split", [](collx::communicator& w, auto&& from_now_on) {
        from_now_on();
        auto c = w.split(0);
        until_none = -1;
        int x = 1;
        collx::all_reduce(c, collx::value(x));
        if (x != 2) throw wrong("a wrong sum");
    });
}

TEST_CASE("a rank that has no memory for its part in a call ends the call of the others at once") {
    const auto expect_sum = [](const std::vector<int>& x) {
        until_none = -1;
        for (const int v : x)
            if (v != 2) throw wrong("a wrong sum");
    };
    for (const std::size_t n : {1000u, 100'000u}) {
        fail_each_allocation("all_reduce", [&](collx::communicator& w, auto&& from_now_on) {
            std::vector<int> x(n, 1);
            from_now_on();
            collx::all_reduce(w, x);
            expect_sum(x);
        });
        fail_each_allocation("sendrecv", [&](collx::communicator& w, auto&& from_now_on) {
            std::vector<int> x(n, 2), y(n);
            from_now_on();
            collx::sendrecv(w, x, 1 - w.rank(), y, 1 - w.rank());
            expect_sum(y);
        });
    }
    fail_each_allocation("async::all_reduce", [&](collx::communicator& w, auto&& from_now_on) {
        std::vector<int> x(1000, 1), y = x;
        from_now_on();
        auto first = collx::async::all_reduce(w, x);
        auto moved = collx::async::all_reduce(w, std::move(y));
        first.wait();
        y = moved.wait();
        expect_sum(x);
        expect_sum(y);
    });
    fail_each_allocation("try_::all_to_all_v", [&](collx::communicator& w, auto&& from_now_on) {
        const std::vector<std::size_t> counts{400, 600}, equal(2, counts[static_cast<std::size_t>(w.rank())]);
        std::vector<int> x(2 * equal[0], 2), y(1000);
        from_now_on();
        if (auto r = collx::try_::all_to_all_v(w, x, equal, y, counts); !r) throw r.error();
        expect_sum(y);
    });
    fail_each_allocation("group", [&](collx::communicator& w, auto&& from_now_on) {
        std::vector<int> x(100, 1), y(10, 1), z(100, 2), t(100);
        collx::group g(w);
        g.all_reduce(x);
        g.all_reduce(y);
        g.send(z, 1 - w.rank());
        g.recv(t, 1 - w.rank());
        from_now_on();
        g.launch();
        expect_sum(x);
        expect_sum(y);
        expect_sum(t);
    });
}

TEST_CASE("a rank that has no memory for its part in a window ends the call of the others at once") {
    fail_each_allocation("window", [](collx::communicator& w, auto&& from_now_on) {
        from_now_on();
        collx::window<int> there(w, 10);
        until_none = -1;
        there.fence();
        if (there.local().size() != 10) throw wrong("a wrong size");
    });
}

TEST_CASE("a group that has no memory for its first call is destroyed as any other") {
    collx::communicator w;
    int x = 1;
    long k = 1;
    for (bool has_failed = true; has_failed; ++k) {
        REQUIRE(k < 100);
        collx::group g(w);
        until_none = k;
        try {
            g.all_reduce(collx::value(x));
            has_failed = false;
        } catch (const std::bad_alloc&) {
        }
        until_none = -1;
        if (!has_failed) g.launch();
    }
    CHECK(k > 2);
    CHECK(x == 1);
}

TEST_CASE("a communicator is destroyed also where there is no memory") {
    for (long k = 1; k < 12; ++k)
        on_hosts(2, {1}, [&](collx::communicator& w) {
            {
                auto other = w.dup();
                int x = 1;
                collx::all_reduce(other, collx::value(x));
                EXPECT(x == 2);
                until_none = w.rank() == 1 ? k : -1;
            }
            until_none = -1;
            collx::barrier(w);
        });
}

TEST_CASE("what an operator throws in the progress thread is kept also where there is no memory for it") {
    std::atomic<bool> has_started{false};
    on_ranks(2, [&](collx::communicator& world) {
        auto w = world.dup();
        w.set_checked(false);
        (void)w.with(collx::progress::thread{});
        std::vector<int> x(100'000, 1);
        const auto me = std::this_thread::get_id();
        std::atomic<bool> was_thread{false};
        const auto throws = collx::commutative([&](int a, int b) {
            if (w.rank() == 1 || std::this_thread::get_id() == me) return a + b;
            const std::out_of_range mine("of the program");
            was_thread = true;
            until_none = 1;
            throw mine;
        });
        if (w.rank() == 1) until([&] { return has_started.load(); }); // rank 0 has nothing to combine in its call
        auto sum = collx::async::all_reduce(w, x, throws);
        if (w.rank() == 0) {
            has_started = true;
            until([&] { return was_thread.load(); });
            EXPECT(says(thrown<std::out_of_range>(w, [&] { sum.wait(); }), "of the program"));
        } else {
            (void)thrown<collx::aborted>(w, [&] {
                sum.wait();
                collx::barrier(w);
            });
        }
        collx::barrier(world);
    });
}
