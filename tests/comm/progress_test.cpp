// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=180 sanitize=thread,nightly
//
// The progress thread: calls complete while the program makes none, and wait() reports the errors of the thread.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <thread>

#include <collx/comm/neighbor.hpp>
#include <collx/comm/progress.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include "support.hpp"
#include "support/caught_stderr.hpp"
#include "support/computed.hpp"
#include "support/sanitizers.hpp"

using namespace collx_test;
using namespace std::chrono_literals;
using collx::errc;
namespace progress = collx::progress;

namespace {

constexpr int both[] = {0, 1}; // ranks per host: over memory, over sockets

// Waits without calling collx.
bool comes(const std::atomic<int>& what, int value) {
    const auto end = std::chrono::steady_clock::now() + collx_test::patient(20s);
    while (what < value && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(100us);
    return what >= value;
}

} // namespace

TEST_CASE("outstanding calls go on although no rank calls") {
    for (const int per_host : both) {
        std::atomic<int> done{0};
        on_hosts(3, {per_host}, [&](collx::communicator& w) {
            (void)w.with(progress::thread{});
            // The operator's last uses on each rank happen without a call: no rank waits before all have arrived.
            constexpr std::size_t n = 300'000;
            std::vector<int> x(n, w.rank() + 1);
            std::atomic<std::size_t> sums{0};
            auto sum = collx::async::all_reduce(w, x, collx::commutative([&](int a, int b) {
                                                    sums.fetch_add(1, std::memory_order_relaxed);
                                                    return a + b;
                                                }));
            auto gathered = collx::async::all_gather(w, std::vector<int>(50'000, w.rank()), std::vector<int>(150'000));
            const auto end = std::chrono::steady_clock::now() + collx_test::patient(20s);
            const auto& under_way = w.internals();
            std::size_t left = 1;
            while (left != 0 && std::chrono::steady_clock::now() < end) { // only looks: advances nothing
                std::this_thread::sleep_for(200us);
                const collx::detail::one_caller::alone here(w.internals().caller);
                left = under_way.pending.size();
            }
            EXPECT(left == 0 && sums > 0);
            ++done;
            EXPECT(comes(done, 3)); // the calls of the other ranks, too, before any rank waits
            sum.wait();
            EXPECT(std::all_of(x.begin(), x.end(), [](int v) { return v == 6; }));
            EXPECT(gathered.wait().back() == 2);
        });
    }
}

TEST_CASE("a call that was under way before there is a thread goes on in it") {
    for (const int per_host : both) {
        std::atomic<int> done{0};
        on_hosts(2, {per_host}, [&](collx::communicator& w) {
            std::vector<int> x(2'000'000, w.rank() + 1); // more than its beginning moves
            auto sum = collx::async::all_reduce(w, x);
            (void)w.with(progress::thread{});
            const auto end = std::chrono::steady_clock::now() + collx_test::patient(20s);
            for (std::size_t left = 1; left != 0 && std::chrono::steady_clock::now() < end;) { // only looks
                std::this_thread::sleep_for(200us);
                const collx::detail::one_caller::alone here(w.internals().caller);
                left = w.internals().pending.size();
                if (left == 0) ++done;
            }
            EXPECT(comes(done, 2)); // on both ranks, before one waits
            sum.wait();
            EXPECT(x.front() == 3 && x.back() == 3);
        });
    }
}

TEST_CASE("a message is received and answered's first half sent while the receiver computes") {
    for (const int per_host : both) {
        std::atomic<int> stage{0};
        on_hosts(2, {per_host}, [&](collx::communicator& w) {
            (void)w.with(progress::thread{});
            std::vector<int> x(2'000'000, 7); // more than channels and sockets hold
            if (w.rank() == 0) {
                auto got = collx::async::recv(w, x, 1);
                stage = 1;
                EXPECT(comes(stage, 2)); // the sender's blocking call has returned although this rank made none
                got.wait();
                EXPECT(x.front() == 9 && x.back() == 9);
            } else {
                EXPECT(comes(stage, 1));
                std::fill(x.begin(), x.end(), 9);
                collx::send(w, x, 0);
                stage = 2;
            }
        });
    }
}

TEST_CASE("calls of all kinds between outstanding ones, on several communicators of all ranks, with one thread") {
    for (const int per_host : both)
        on_hosts(3, {per_host}, [](collx::communicator& w) {
            std::vector<collx::communicator> some;
            for (int k = 0; k < 6; ++k) {
                some.push_back(w.dup());
                if (k != 3) (void)some.back().with(progress::thread{});
            }
            auto bound = some[0].with(progress::thread{}, collx::deterministic{}); // again: other policies stay
            for (int round = 0; round < 8; ++round) {
                std::vector<std::vector<int>> x;
                for (std::size_t k = 0; k < some.size(); ++k) x.emplace_back(3000 * k * k + 1, w.rank() + round);
                std::vector<collx::work<void>> works;
                for (std::size_t k = 0; k < some.size(); ++k) works.push_back(collx::async::all_reduce(some[k], x[k]));
                int one = 1;
                collx::all_reduce(bound, collx::value(one));
                for (auto& c : some) collx::barrier(c);
                EXPECT(one == 3 && some[1].sent().messages < UINT64_MAX);
                if (round % 2 == 0) collx::wait_all(works);
                else
                    for (std::size_t k = works.size(); k-- > 0;) works[k].wait();
                for (const auto& v : x) EXPECT(v.back() == 3 + 3 * round && v.front() == v.back());
                auto call = collx::persistent::all_reduce(some[2], x[2]);
                call.start();
                call.wait();
                EXPECT(x[2].back() == 9 + 9 * round);
                if (round == 5) (void)some[1].with(progress::calls{});
            }
        });
}

TEST_CASE("what an operator throws in the thread is thrown by wait(), and the others hear who gave up") {
    for (const int per_host : both)
        on_hosts(3, {per_host}, [](collx::communicator& world) {
            auto w = world.dup();
            (void)w.with(progress::thread{});
            std::vector<int> x(200'000, 1);
            const auto me = std::this_thread::get_id();
            std::atomic<bool> was_thread{false};
            std::optional<collx::work<void>> sum;
            try { // the first sums may already run in this call
                sum.emplace(collx::async::all_reduce(w, x, collx::commutative([&](int a, int b) {
                                                         const bool other = std::this_thread::get_id() != me;
                                                         if (w.rank() == 1 && other) {
                                                             was_thread = true;
                                                             throw std::out_of_range("of the program");
                                                         }
                                                         return a + b;
                                                     })));
            } catch (const std::exception&) {
                EXPECT(w.rank() != 1);
            }
            std::this_thread::sleep_for(50ms);
            if (w.rank() != 1) {
                const auto e = thrown<collx::error>(w, [&] {
                    if (sum) sum->wait();
                    collx::barrier(w);
                });
                EXPECT(e.code() == errc::aborted && e.peer() == 1);
            } else if (was_thread) {
                const auto e = thrown<std::out_of_range>(w, [&] { sum->wait(); });
                EXPECT(says(e, "of the program"));
                EXPECT(thrown<collx::error>(w, [&] { sum->wait(); }).code() == errc::aborted); // thrown once only
            } else { // the thread got no core: this rank's call did everything
                EXPECT(true);
                w.abort();
            }
            collx::barrier(world);
        });
}

TEST_CASE(
    "what a buffer throws in the thread is thrown by the wait for its call, also where that is several messages") {
    for (const bool by_graph : {false, true}) {
        std::atomic<bool> is_under_way{false};
        on_ranks(2, [&](collx::communicator& world) {
            auto w = world.dup();
            w.set_checked(false);
            (void)w.with(progress::thread{});
            constexpr int n = 1 << 20; // many times what the slots hold
            const auto odd = collx_test::computed(
                n, [](int i) { return i > n / 4 * 3 ? throw std::out_of_range("of the program") : i; });
            std::vector<int> x(n), y(n);
            const int other = 1 - w.rank();
            if (w.rank() == 1) {
                collx_test::until([&] { return is_under_way.load(); });
                (void)thrown<collx::aborted>(w, [&] {
                    auto received = by_graph ? collx::async::neighbor_all_gather(w, collx::neighbors{{0}, {0}}, y, x)
                                             : collx::async::sendrecv(w, y, other, x, other);
                    received.wait();
                    collx::barrier(w);
                });
            } else {
                auto sent = by_graph ? collx::async::neighbor_all_gather(w, collx::neighbors{{1}, {1}}, odd, x)
                                     : collx::async::sendrecv(w, odd, other, x, other);
                is_under_way = true;
                std::this_thread::sleep_for(50ms); // mostly it throws in the thread
                const auto e = thrown<std::out_of_range>(w, [&] { sent.wait(); });
                EXPECT(says(e, "of the program"));
            }
            collx::barrier(world);
        });
    }
}

TEST_CASE("a persistent call of several messages throws what one of them threw in the thread, too") {
    const auto made = [](int how, collx::communicator& w, const auto& odd, auto& x) {
        const int other = 1 - w.rank();
        if (how == 0) return collx::persistent::sendrecv(w, odd, other, x, other);
        if (how == 1) return collx::persistent::neighbor_all_gather(w, collx::neighbors{{other}, {other}}, odd, x);
        collx::persistent::group both_ways(w);
        both_ways.recv(x, other);
        both_ways.send(odd, other);
        return both_ways.launch();
    };
    for (const int how : {0, 1, 2}) {
        std::atomic<bool> is_under_way{false}, has_thrown{false};
        on_ranks(2, [&](collx::communicator& world) {
            auto w = world.dup();
            w.set_checked(false);
            (void)w.with(progress::thread{});
            constexpr int n = 1 << 20; // many times what the slots hold: no message ends before the range has thrown
            const auto me = std::this_thread::get_id();
            const auto odd = collx_test::computed(n, [&](int i) {
                if (w.rank() == 1 || std::this_thread::get_id() == me) return i;
                has_thrown = true;
                throw std::out_of_range("of the program");
            });
            std::vector<int> x(n);
            auto call = made(how, w, odd, x);
            if (w.rank() == 0) {
                call.start();
                is_under_way = true;
                collx_test::until([&] { return has_thrown.load(); });
                EXPECT(says(thrown<std::out_of_range>(w, [&] { call.wait(); }), "of the program"));
                EXPECT(thrown<collx::aborted>(w, [&] { call.wait(); }).peer() == 0); // thrown once only
            } else {
                collx_test::until([&] { return is_under_way.load(); });
                (void)thrown<collx::aborted>(w, [&] {
                    call.start();
                    call.wait();
                });
            }
            collx::barrier(world);
        });
    }
}

TEST_CASE("an operator in the thread may not call its communicator, and may call others") {
    on_ranks(2, [](collx::communicator& w) {
        auto other = w.dup();
        (void)w.with(progress::thread{});
        (void)other.with(progress::thread{});
        std::vector<int> x(100'000, 1);
        std::atomic<int> refused{0}, passed{0}, calls{0};
        auto sum = collx::async::all_reduce(w, x, collx::commutative([&](int a, int b) {
                                                if (calls++ < 3) {
                                                    try {
                                                        (void)w.progress();
                                                    } catch (const collx::error& e) {
                                                        refused += e.code() == errc::invalid_argument;
                                                    }
                                                    passed += other.progress() == 0;
                                                }
                                                return a + b;
                                            }));
        std::this_thread::sleep_for(20ms);
        sum.wait();
        EXPECT(refused == 3 && passed == 3 && x.back() == 2);
    });
}

TEST_CASE("a handle or a communicator that goes with calls outstanding ends them, and the thread with the last") {
    for (const int per_host : both)
        on_hosts(2, {per_host}, [](collx::communicator& world) {
            int ended = 0;
            for (int round = 0; round < 6; ++round) {
                auto w = std::make_optional(world.dup());
                (void)w->with(progress::thread{});
                auto gone = std::make_unique<std::vector<int>>(100'000, 1);
                try { // the other rank may have ended the communicator
                    std::optional<collx::work<void>> sum = collx::async::all_reduce(*w, *gone);
                    if (round % 3 == 0) {
                        sum.reset();
                        gone.reset();
                        w.reset();
                    } else if (round % 3 == 1) {
                        w.reset();
                        sum->wait();
                    } else {
                        sum->wait();
                        w.reset();
                    }
                } catch (const collx::aborted&) {
                    ++ended;
                }
                collx::barrier(world);
            }
            auto& w = world;
            EXPECT(ended <= 4);
        });
    collx::detail::progress_place& place = collx::detail::progress_place::of_process();
    CHECK(place.engine == nullptr);
}

TEST_CASE("a group that is dropped on a checked communicator while the thread moves a call on") {
    // An observer that takes its time makes the thread's turn long enough.
    const auto see = [](void*, const collx::call_record& r) {
        if (r.outcome == collx::call_outcome::failed) std::this_thread::sleep_for(1ms);
    };
    const caught_stderr quiet;
    for (int round = 0; round < 20; ++round)
        on_ranks(2, [&](collx::communicator& w) {
            w.set_checked(true);
            w.record_calls(64);
            w.on_calls({see, nullptr});
            (void)w.with(progress::thread{});
            std::vector<float> x(4'000'000, 1), y(4, 1);
            (void)thrown<collx::aborted>(w, [&] {
                auto sum = collx::async::all_reduce(w, x); // rank 1 may still compare when rank 0 has ended it all
                if (w.rank() == 0) {
                    collx::group g(w);
                    g.all_reduce(y);
                }
                sum.wait();
                collx::barrier(w);
            });
        });
}

TEST_CASE("a persistent call that is dropped while the thread moves it on") {
    on_ranks(2, [](collx::communicator& w) {
        int started = 0;
        for (int round = 0; round < 10; ++round) {
            auto d = w.dup();
            auto p = d.with(progress::thread{});
            std::vector<double> x(1 << 16, 1.0);
            const auto op = [held = std::vector<double>(4, 0.0)](double a, double b) { return a + b + held[0]; };
            try { // rank 0 may have ended the communicator before rank 1 starts the call
                auto sum = collx::persistent::all_reduce(p, x, collx::commutative(op));
                sum.start();
                if (w.rank() == 0) std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
                else sum.wait();
                ++started;
            } catch (const collx::aborted&) {
                EXPECT(w.rank() == 1);
            }
        }
        EXPECT(w.rank() == 1 || started == 10);
    });
}

TEST_CASE("a rank that fails while the others compute is named by their wait") {
    std::atomic<int> named{0};
    try {
        collx::run_threads(3, [&](collx::communicator& w) {
            w.set_timeout(collx_test::patient(30s));
            (void)w.with(progress::thread{});
            if (w.rank() == 2) throw std::runtime_error("this rank ends");
            std::vector<int> x(100'000, 1);
            try {
                auto sum = collx::async::all_reduce(w, x);
                std::this_thread::sleep_for(20ms);
                sum.wait();
            } catch (const collx::peer_failed& e) {
                named += e.peer() == 2;
                throw;
            }
        });
    } catch (const std::runtime_error& e) {
        CHECK(says(e, "this rank ends"));
    }
    CHECK(named == 2);
}

TEST_CASE("misuse gets an error: a core that is not there, another core than before, inside an operator") {
    on_ranks(2, [](collx::communicator& w) {
        const auto refused = [&](auto&& f, const char* text) {
            const auto e = thrown<collx::error>(w, f);
            EXPECT(e.code() == errc::invalid_argument && e.rank() == w.rank() && says(e, text));
        };
        refused([&] { (void)w.with(progress::thread{.core = 100'000}); }, "core 100000");
        EXPECT(w.internals().helper == nullptr);
        collx::barrier(w);
        int first = 0;
        const cpu_set_t mine = collx::core_set();
        while (!CPU_ISSET(static_cast<std::size_t>(first), &mine)) ++first;
        (void)w.with(progress::thread{.core = first});
        (void)w.with(progress::thread{}); // no core requested
        refused([&] { (void)w.with(progress::thread{.core = first + 1}); }, "already");
        std::vector<int> x{1};
        bool is_first = true;
        collx::all_reduce(w, x, collx::commutative([&](int a, int b) {
                              if (is_first) {
                                  is_first = false;
                                  refused([&] { (void)w.with(progress::calls{}); }, "another call");
                                  refused([&] { (void)w.with(progress::thread{}); }, "another call");
                              }
                              return a + b;
                          }));
        EXPECT(x[0] == 2);
    });
}

TEST_CASE("what an operator threw in the thread is thrown by wait() also once the thread has left") {
    std::atomic<int> has_returned{0};
    on_ranks(2, [&](collx::communicator& world) {
        auto w = world.dup();
        w.set_checked(false);
        std::vector<int> x(100'000, 1);
        const auto me = std::this_thread::get_id();
        std::atomic<int> was_thread{0};
        const auto op = collx::commutative([&](int a, int b) {
            if (w.rank() == 0 && std::this_thread::get_id() != me) {
                was_thread = 1;
                throw std::out_of_range("of the program");
            }
            return a + b;
        });
        if (w.rank() == 1) EXPECT(comes(has_returned, 1)); // so that rank 0 has nothing to combine in its call
        (void)w.with(progress::thread{});
        std::optional<collx::work<void>> sum;
        try {
            sum.emplace(collx::async::all_reduce(w, x, op));
            if (w.rank() == 0) {
                has_returned = 1;
                EXPECT(comes(was_thread, 1));
                (void)w.with(progress::calls{});
                EXPECT(says(thrown<std::out_of_range>(w, [&] { sum->wait(); }), "of the program"));
                // joins and leaves as before
                (void)w.with(progress::thread{});
                (void)w.with(progress::calls{});
            } else {
                sum->wait();
                collx::barrier(w);
            }
        } catch (const collx::aborted&) {
            EXPECT(w.rank() == 1);
        }
        EXPECT(w.rank() == 0 || thrown<collx::aborted>(w, [&] {
                                    for (;;) collx::barrier(w);
                                }).peer() == 0);
        collx::barrier(world);
    });
}

#if !COLLX_TEST_TSAN
TEST_CASE("a forked child has no progress thread and is refused, and its parent goes on") {
    on_ranks(1, [](collx::communicator& w) {
        (void)w.with(progress::thread{});
        for (int round = 0; round < 5; ++round) {
            const pid_t child = ::fork();
            if (child == 0) {
                int code = 1;
                try {
                    collx::barrier(w);
                } catch (const collx::error& e) {
                    code = e.code() == errc::forked ? 0 : 2;
                }
                ::_exit(code);
            }
            int status = -1;
            EXPECT(::waitpid(child, &status, 0) == child && status == 0);
            int x = 1;
            collx::async::all_reduce(w, collx::value(x)).wait();
            EXPECT(x == 1);
        }
    });
}
#endif
