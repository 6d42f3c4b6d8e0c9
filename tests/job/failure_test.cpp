// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=address,nightly
//
// Ranks that do not call, throw, abort, or drop what they started: the other ranks get a typed error in bounded time.
// The upper bounds of times are generous, since the machine may be busy; the lower bounds are exact.
#include "comm/every_verb.hpp"
#include "comm/support.hpp"
#include "faults/support.hpp"
#include "support/caught_stderr.hpp"
#include "support/computed.hpp"
#include "support/side_by_side.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <thread>

using namespace collx_test;
using namespace std::chrono_literals;
using collx::timed_out;

namespace {

double ms_since(std::int64_t begin_ns) { return static_cast<double>(collx::now_ns() - begin_ns) * 1e-6; }

// When the first of several ranks started: its limit ends first, and the others are notified before theirs.
class first_begin {
public:
    std::int64_t now() {
        std::int64_t none = 0;
        first_ns_.compare_exchange_strong(none, collx::now_ns());
        return first_ns_;
    }

private:
    std::atomic<std::int64_t> first_ns_{0};
};

// Rank n - 1 stays away until the others have failed; all of them must name it.
template <class F>
void check_absent(int n, bool checked, F call) {
    std::atomic<int> failed{0}, come{0};
    first_begin first;
    collx::run_threads(n, [&](collx::communicator& w) {
        w.set_timeout(collx_test::patient(50s));
        w.set_checked(checked);
        at("n=%d checked=%d", n, checked);
        if (w.rank() == n - 1) {
            collx_test::until([&] { return failed == n - 1; });
            // Too late: the communicator has failed for this rank, too.
            EXPECT(thrown<timed_out>(w, [&] { call(w, collx::call_options{.timeout = 10s}); }).peer() == n - 1);
            return;
        }
        ++come;
        collx_test::until([&] { return come == n - 1; }); // so no other rank is late
        const std::int64_t begin = first.now();
        const auto e = thrown<timed_out>(w, [&] { call(w, collx::call_options{.timeout = 2s}); });
        const double took = ms_since(begin);
        EXPECT_AT(took, took >= 2000 && took < 2000 + 2000 * collx_test::slowness()); // not the communicator's 50 s
        EXPECT(e.peer() == n - 1 && e.code() == collx::errc::timeout &&
               says(e, ("timed out waiting for rank " + std::to_string(n - 1)).c_str()));
        failed.fetch_add(1);
    });
}

} // namespace

TEST_CASE("an absent rank is named when the call's time is up") {
    side_by_side cases;
    const auto check = [&](int n, bool checked, auto call) { cases.add([=] { check_absent(n, checked, call); }); };
    for (const bool checked : {false, true}) {
        check(2, checked, [](auto& w, const auto& o) {
            std::vector<int> x(20'000);
            collx::all_reduce(w, x, collx::plus{}, o);
        });
        check(4, checked, [](auto& w, const auto& o) {
            std::vector<int> x(3);
            collx::all_reduce(w, x, collx::plus{}, o);
        });
        check(4, checked, [](auto& w, const auto& o) {
            std::vector<int> x(4), y(40'000), z(10'000);
            collx::reduce_scatter(w, y, z, collx::plus{}, o);
            collx::all_gather(w, z, y, o);
        });
        check(3, checked, [](auto& w, const auto& o) { collx::barrier(w, o); });
    }
    check(2, false, [](auto& w, auto o) {
        int x = 0;
        if (w.rank() == 0) collx::recv(w, collx::value(x), 1, o);
        else collx::send(w, collx::value(x), 0, o);
    });
}

// One rank of n stays away, the others use a double tree: their strands wait for several ranks.
static void check_absent_in_trees(int n, int absent) {
    const std::chrono::nanoseconds limit = heard_within(3000ms);
    std::atomic<int> failed{0}, come{0};
    on_ranks(n, [&](collx::communicator& w) {
        w.set_checked(false);
        at("n=%d absent=%d", n, absent);
        std::vector<int> x(20'000);
        if (w.rank() == absent) {
            collx_test::until([&] { return failed == n - 1; });
            return EXPECT(true);
        }
        ++come;
        collx_test::until([&] { return come == n - 1; }); // so no other rank is late
        const auto e = thrown<timed_out>(w, [&] {
            for (int calls = 0; calls < 3; ++calls) // at first, some ranks need nothing from the absent one
                collx::all_reduce(w.with(collx::algo::double_tree_all_reduce{}, collx::piece{4000}), x, collx::plus{},
                                  {.timeout = limit});
        });
        failed.fetch_add(1);
        EXPECT_AT(e.peer(), e.peer() == absent);
    });
}

TEST_CASE("with strands that wait for several ranks, the absent one is named") {
    side_by_side cases;
    for (const int n : {5, 7})
        for (const int absent : {1, 3, n - 1}) cases.add([=] { check_absent_in_trees(n, absent); });
}

TEST_CASE("a call does not give up before its time") {
    std::atomic<bool> over{false};
    on_ranks(2, [&](collx::communicator& w) {
        int x = 0;
        if (w.rank() == 1) {
            collx_test::until([&] { return over.load(); });
            return EXPECT(true);
        }
        const std::int64_t begin = collx::now_ns();
        (void)thrown<timed_out>(w, [&] { collx::recv(w, collx::value(x), 1, {.timeout = 300ms}); });
        const double took = ms_since(begin);
        over = true;
        EXPECT_AT(took, took >= 300);
    });
}

TEST_CASE("set_timeout bounds every call") {
    // How late a thread wakes up depends on the machine, so the call is compared with a plain sleeping thread. The
    // test compares the smallest delays of several tries.
    double least = 1e9, least_of_plain = 1e9;
    int tries = 0;
    for (; (tries == 0 || least > least_of_plain + 30) && tries < 20; ++tries) {
        std::atomic<bool> over{false};
        std::jthread plain([&] {
            const std::int64_t begin = collx::now_ns();
            while (ms_since(begin) < 100) std::this_thread::sleep_for(1ms);
            least_of_plain = std::min(least_of_plain, ms_since(begin));
        });
        on_ranks(2, [&](collx::communicator& w) {
            w.set_timeout(100ms);
            if (w.rank() == 1) {
                collx_test::until([&] { return over.load(); });
                return EXPECT(true);
            }
            const std::int64_t begin = collx::now_ns();
            (void)thrown<timed_out>(w, [&] { collx::barrier(w); });
            const double took = ms_since(begin);
            over = true;
            EXPECT_AT(took, took >= 100);
            least = std::min(least, took);
        });
        plain.join();
    }
    INFO(tries << " tries: " << least << " ms, a plain thread " << least_of_plain << " ms");
    CHECK(least <= least_of_plain + 30);
}

TEST_CASE("a communicator's time is for standing still, a call's own for the whole call") {
    for (const bool own : {false, true}) {
        first_begin first;
        on_ranks(2, [&](collx::communicator& w) {
            w.set_checked(false);
            w.set_timeout(own ? collx_test::patient(30s) : collx_test::patient(2s));
            constexpr int n = 16'000;
            const collx_test::computed slow(n, [](int i) {
                if (i % 1000 == 999) std::this_thread::sleep_for(160ms); // 2.6 s in all, 0.6 s a piece
                return i;
            });
            std::vector<int> x(n);
            const auto call = [&](collx::call_options o) {
                if (w.rank() == 1) collx::reduce(w.with(collx::piece{4000}), slow, x, collx::plus{}, o);
                else collx::reduce(w.with(collx::piece{4000}), std::vector<int>(n), x, collx::plus{}, o);
            };
            const std::int64_t begin = first.now();
            if (!own) {
                call({});
                EXPECT(w.rank() != 0 || (x[n - 1] == n - 1 && ms_since(begin) > 2500));
            } else if (w.rank() == 0) {
                // Longer than any of its pieces, shorter than all of them together.
                EXPECT(thrown<timed_out>(w, [&] { call({.timeout = 1200ms}); }).peer() == 1);
                EXPECT_AT(ms_since(begin),
                          ms_since(begin) >= 1200 && ms_since(begin) < 1200 + 2000 * collx_test::slowness());
            } else {
                (void)thrown<timed_out>(w, [&] {
                    for (;;) call({});
                });
            }
        });
    }
}

TEST_CASE("an exception on one rank reaches the others as peer_failed, and the caller as itself") {
    std::atomic<int> told{0};
    const auto body = [&](collx::communicator& w) {
        w.set_timeout(collx_test::patient(30s));
        std::vector<int> x(5000);
        if (w.rank() == 1) {
            collx::all_reduce(w, x);
            throw std::runtime_error("rank 1 has no more to say");
        }
        const auto e = thrown<collx::peer_failed>(w, [&] {
            for (;;) collx::all_reduce(w, x);
        });
        EXPECT(e.peer() == 1);
        told.fetch_add(1);
        throw e; // a consequence, not the cause
    };
    CHECK_THROWS_WITH(collx::run_threads(4, body), "rank 1 has no more to say");
    CHECK(told == 3);
}

TEST_CASE("what an operator or an iterator throws ends the communicator for all, and is thrown here as itself") {
    // Across hosts the thrower may have ended before its notification arrives; then it is found gone.
    const auto fails = [](collx::communicator& w, auto&& call) {
        const auto is_told = [&](const collx::error& e) {
            return e.code() == collx::errc::aborted ||
                   (e.code() == collx::errc::peer_failed && !w.internals().net.is_one_host());
        };
        w.set_checked(false);
        if (w.rank() == 1) {
            (void)thrown<std::runtime_error>(w, call);
        } else {
            const auto e = thrown<collx::error>(w, [&] {
                for (;;) call(); // a call may complete before the notification arrives
            });
            EXPECT(e.peer() == 1 && is_told(e));
        }
        int x = 1; // its data could be mistaken for the rest of the abandoned call
        EXPECT(is_told(thrown<collx::error>(w, [&] { collx::all_reduce(w, collx::value(x)); })));
    };
    for (const std::vector<int>& host_of : {std::vector<int>{0, 0, 0}, {0, 1, 2}})
        for (const std::size_t n : {3u, 400'000u}) {
            const bool all_combine =
                host_of[1] == 0 || n > 3; // rank 0 combines short sums among three hosts, all ranks of a ring long ones
            if (all_combine)
                collx::run_threads(host_of, [&](collx::communicator& w) {
                    std::vector<int> x(n);
                    fails(w, [&, me = w.rank()] {
                        collx::all_reduce(w, x, collx::commutative([me](int a, int b) {
                                              return me == 1 ? throw std::runtime_error("of the operator") : a + b;
                                          }));
                    });
                });
            if (all_combine)
                collx::run_threads(host_of, [&](collx::communicator& w) {
                    std::vector<int> x(n);
                    fails(w, [&, me = w.rank()] {
                        auto work = collx::async::all_reduce(
                            w, x, collx::commutative([me](int a, int b) {
                                return me == 1 ? throw std::runtime_error("of the operator") : a + b;
                            }));
                        work.wait();
                    });
                });
            collx::run_threads(host_of, [&](collx::communicator& w) {
                std::vector<int> x(n), out(n * 3);
                fails(w, [&, me = w.rank()] {
                    const collx_test::computed thrower(n, [&](int i) {
                        return me == 1 ? throw std::runtime_error("of the range") : x[static_cast<std::size_t>(i)];
                    });
                    collx::all_gather(w, thrower, out);
                });
            });
            collx::run_threads(host_of, [&](collx::communicator& w) {
                std::vector<int> x(n), y(3);
                fails(w, [&, me = w.rank()] {
                    const auto op = collx::with_pre(
                        collx::plus{}, [me](int v) { return me == 1 ? throw std::runtime_error("of a hook") : v; });
                    collx::group g(w);
                    g.all_reduce(x, op);
                    g.all_reduce(y, op);
                    g.launch();
                });
            });
            if (n == 3)
                collx::run_threads(host_of, [&](collx::communicator& w) {
                    int x = 1, y = 2;
                    fails(w, [&, me = w.rank()] {
                        const auto op = [me](int u, int v) {
                            return me == 1 ? throw std::runtime_error("of the operator") : u + v;
                        };
                        collx::group g(w);
                        g.all_reduce(collx::value(x), op);
                        g.all_reduce(collx::value(y), op);
                        g.launch();
                    });
                });
        }
    CHECK_THROWS_WITH(collx::run_threads(3,
                                         [](collx::communicator& w) {
                                             int x = 1;
                                             for (;;)
                                                 collx::all_reduce(w, collx::value(x), [&](int a, int b) {
                                                     return w.rank() == 2 ? throw std::runtime_error("the cause")
                                                                          : a + b;
                                                 });
                                         }),
                      "the cause");
}

TEST_CASE("the longest time there is means to wait for ever") {
    for (const std::vector<int>& host_of : {std::vector<int>{0, 0}, {0, 1}})
        collx::run_threads(host_of, [](collx::communicator& w) {
            const auto ever = std::chrono::nanoseconds::max();
            const auto late = [&] {
                if (w.rank() == 1) std::this_thread::sleep_for(50ms);
            };
            int x = 1;
            late();
            collx::all_reduce(w, collx::value(x), collx::plus{}, {.timeout = ever});
            late();
            w.set_checked(false);
            auto work = collx::async::all_reduce(w, collx::value(x));
            EXPECT(work.wait_for(ever));
            w.set_timeout(ever);
            late();
            collx::all_reduce(w, collx::value(x));
            EXPECT(x == 8);
            auto again = w.shrink();
            EXPECT(again.size() == 2);
            EXPECT(again.internals().id != w.internals().id); // records are named after it
        });
}

TEST_CASE("an exception is noticed in communicators that the thrower has already left") {
    std::atomic<int> told{0}, have_split{0};
    const auto body = [&](collx::communicator& w) {
        w.set_timeout(collx_test::patient(30s));
        const std::int64_t begin = collx::now_ns();
        auto pair = w.split(w.rank() / 2);
        auto other = w.split(w.rank() % 2);
        // A rank that is still in split() would get the error there.
        for (++have_split; w.rank() == 3 && have_split < 4 && ms_since(begin) < 25'000;) std::this_thread::yield();
        if (w.rank() == 3) throw std::runtime_error("no");
        int x = 0;
        if (w.rank() == 2) {
            EXPECT(thrown<collx::peer_failed>(w, [&] { collx::recv(pair, collx::value(x), 1); }).peer() == 1);
            told.fetch_add(1);
        } else if (w.rank() == 1) {
            EXPECT(thrown<collx::peer_failed>(w, [&] { collx::all_reduce(other, collx::value(x)); }).peer() == 1);
            told.fetch_add(1);
        } else {
            collx::all_reduce(pair.with(), collx::value(x), collx::plus{}, {.timeout = 1s});
        }
        EXPECT(ms_since(begin) < 29'000 * collx_test::slowness()); // well before the 30 s
    };
    CHECK_THROWS(collx::run_threads(4, [&](collx::communicator& w) {
        try {
            body(w);
        } catch (const timed_out&) { // rank 0, whose partner makes another call
        }
    }));
    CHECK(told == 2);
}

TEST_CASE("abort from another thread ends every wait at once") {
    for (int round = 0; round < 5; ++round) {
        std::atomic<std::int64_t> aborted_ns{0};
        on_ranks(3, [&](collx::communicator& w) {
            std::thread other;
            if (w.rank() == 1)
                other = std::thread([&] {
                    std::this_thread::sleep_for(30ms);
                    aborted_ns = collx::now_ns();
                    w.abort();
                    w.abort();
                });
            std::vector<int> x(100);
            const auto e = thrown<collx::aborted>(w, [&] {
                if (w.rank() == 2) collx::recv(w, x, 0);
                else collx::recv(w, x, 2);
            });
            const double took = ms_since(aborted_ns);
            if (other.joinable()) other.join();
            EXPECT_AT(took, took < 25'000 * collx_test::slowness());
            EXPECT(e.peer() == 1 && e.code() == collx::errc::aborted &&
                   says(e, w.rank() == 1 ? "this rank aborted the communicator" : "rank 1 aborted the communicator"));
            (void)thrown<collx::aborted>(w, [&] { collx::all_reduce(w, x); });
            (void)thrown<collx::aborted>(w, [&] { (void)w.split(0); });
        });
    }
}

TEST_CASE("a communicator that all have come to is there, even if another rank ends it at once") {
    std::atomic<int> made{0};
    for (int round = 0; round < 300; ++round)
        collx::run_threads(4, [&](collx::communicator& w) { // rethrows what the constructor of `w` throws
            made.fetch_add(1);
            if (w.rank() == round % 4) w.abort();
        });
    CHECK(made == 4 * 300);
}

TEST_CASE("work that is dropped before it is done aborts, instead of leaving others to write into dead buffers") {
    caught_stderr caught;
    on_ranks(2, [](collx::communicator& w) {
        if (w.rank() == 0) {
            std::vector<int> x(1000);
            (void)collx::async::recv(w, x, 1);
        }
        int y = 0;
        EXPECT(thrown<collx::aborted>(w, [&] { collx::recv(w, collx::value(y), 1 - w.rank()); }).peer() == 0);
    });
    CHECK(caught.text() == "collx: warning: rank 0: the handle of an unfinished call was destroyed, which ends the "
                           "communicator (wait() for it first)\n");
}

// The second receive of a pair does not begin before the first is done, and so waits for whom the first waits for.
TEST_CASE("a rank that left is named by a wait for a receive that has not begun") {
    for (const int hosts : {1, 2})
        for (const bool polls : {false, true})
            run_spread(2, {hosts == 1 ? 0 : 1}, [&](collx::communicator& w) {
                collx::barrier(w);
                EXPECT(w.size() == 2);
                if (w.rank() == 1) return;
                w.set_timeout(collx_test::patient(20s));
                std::vector<int> a(10), b(10);
                auto first = collx::async::recv(w, a, 1);
                auto second = collx::async::recv(w, b, 1);
                const auto e = thrown<collx::peer_failed>(w, [&] {
                    while (polls && !second.test()) std::this_thread::yield();
                    second.wait();
                });
                EXPECT(e.peer() == 1);
            });
}

TEST_CASE("a dropped receive writes nothing more into its buffer, whatever still comes") {
    for (const std::vector<int>& host_of : {std::vector<int>{0, 0}, {0, 1}}) {
        std::atomic<bool> dropped{false}, sent{false};
        collx::run_threads(host_of, [&](collx::communicator& w) {
            w.set_timeout(collx_test::patient(50s)); // no wait reaches it
            constexpr std::size_t n = 4u << 20;
            if (w.rank() == 1) { // sends half before the handle is dropped, the rest afterwards
                const collx_test::computed slow(static_cast<int>(n), [&](int i) {
                    if (i == static_cast<int>(n / 2)) collx_test::until([&] { return dropped.load(); });
                    return i;
                });
                EXPECT(thrown<collx::aborted>(w, [&] {
                           collx::send(w, slow, 0);
                           for (;;) collx::barrier(w);
                       }).peer() == 0);
                sent = true;
                return;
            }
            std::vector<int> x(n, -1);
            {
                auto work = collx::async::recv(w, x, 1);
                while (x[0] == -1) (void)work.test();
            }
            std::fill(x.begin(), x.end(), -7); // the buffer belongs to the program again
            dropped = true;
            collx_test::until([&] {
                (void)w.progress();
                return sent.load();
            });
            EXPECT(w.progress() == 0);
            for (std::size_t i = 0; i < n; ++i) EXPECT_AT(i, x[i] == -7);
        });
    }
}

TEST_CASE("work that outlives its communicator says so, and the others hear of it") {
    for (const std::vector<int>& host_of : {std::vector<int>{0, 0}, {0, 1}})
        collx::run_threads(host_of, [](collx::communicator& w) {
            std::vector<int> x(1000);
            auto c = w.split(0);
            c.set_checked(false);
            if (w.rank() == 1) return EXPECT(thrown<collx::aborted>(w, [&] { collx::recv(c, x, 0); }).peer() == 0);
            auto first = collx::async::recv(c, x, 1);
            auto second = collx::async::all_reduce(c, collx::view(x.data(), 10));
            { const collx::communicator gone = std::move(c); }
            EXPECT(says(thrown<collx::aborted>(w, [&] { first.wait(); }), "the communicator was destroyed"));
            (void)thrown<collx::aborted>(w, [&] { (void)second.test(); });
            (void)thrown<collx::aborted>(w, [&] { (void)second.wait_for(1s); });
        });
}

TEST_CASE("a failed communicator does not touch the others of its ranks") {
    on_ranks(3, [](collx::communicator& w) {
        auto a = w.split(0), b = w.split(0);
        if (w.rank() == 2) a.abort();
        int x = 1;
        (void)thrown<collx::aborted>(w, [&] {
            for (;;) collx::all_reduce(a, collx::value(x));
        });
        x = 1;
        collx::all_reduce(b, collx::value(x));
        EXPECT(x == 3);
        auto c = w.split(0); // a new one in its place
        x = 1;
        collx::all_reduce(c, collx::value(x));
        EXPECT(x == 3);
    });
}

TEST_CASE("errors know the number of their call") {
    std::atomic<int> done{0};
    on_ranks(2, [&](collx::communicator& w) {
        int x = 0;
        for (int i = 0; i < 6; ++i) collx::all_reduce(w, collx::value(x));
        ++done;
        collx_test::until([&] { return done == 2; }); // no rank is in the last call any more
        if (w.rank() == 0) w.abort();
        EXPECT(w.sequence() == 6);
        const auto e = thrown<collx::aborted>(w, [&] {
            for (;;) collx::barrier(w);
        });
        EXPECT(e.sequence() >= 6 && e.sequence() <= 7 && says(e, ": call "));
    });
}

TEST_CASE("an error before the first call counts none") {
    on_ranks(2, [](collx::communicator& w) {
        const auto text = [&] {
            return thrown<collx::timed_out>(w, [&] {
                w.internals().explain({collx::errc::timeout, 1 - w.rank()}, -1);
            });
        };
        EXPECT(says(text(), "before the first call: timed out waiting for rank"));
        collx::barrier(w);
        EXPECT(says(text(), "call 1: timed out waiting for rank"));
    });
}

TEST_CASE("every verb refuses an aborted communicator and a fork of its rank") {
    on_ranks(2, [](collx::communicator& w) {
        auto c = w.split(0);
        if (w.rank() == 0) c.abort();
        collx::barrier(w);
        int verbs = 0;
        const int calls = with_every_verb(c, 2, [&](const char* name, auto&& call) {
            at("%s", name);
            EXPECT(thrown<collx::aborted>(w, call).peer() == 0);
            ++verbs;
        });
        EXPECT(verbs == calls);
    });
    on_ranks(1, [](collx::communicator& w) {
        const pid_t child = ::fork();
        if (child == 0) {
            int right = 0;
            const int calls = with_every_verb(w, 1, [&](const char* name, auto&& call) {
                try {
                    call();
                } catch (const collx::error& e) {
                    if (e.code() == collx::errc::forked) return void(++right);
                }
                std::fprintf(stderr, "%s is not refused in a fork\n", name);
            });
            try {
                (void)w.shrink();
            } catch (const collx::error& e) {
                right += e.code() == collx::errc::forked;
            }
            ::_exit(right == calls + 1 ? 0 : 1);
        }
        int status = -1;
        while (::waitpid(child, &status, 0) < 0) {
        }
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        int verbs = 0; // on a live communicator all verbs give correct results
        const int calls = with_every_verb(w, 1, [&](const char* name, auto&& call) {
            at("%s", name);
            if (std::string(name).find("recv") != std::string::npos) collx::send(w, std::vector<int>(2), 0);
            if (std::string(name) == "sendrecv") collx::recv(w, std::vector<int>(2), 0);
            call();
            if (std::string(name) == "send") collx::recv(w, std::vector<int>(2), 0);
            ++verbs;
        });
        EXPECT(verbs == calls);
    });
}

TEST_CASE("a forked child has no part in its parent's communicators") {
    on_ranks(1, [](collx::communicator& w) {
        int x = 1;
        collx::all_reduce(w, collx::value(x));
        const pid_t child = ::fork();
        if (child == 0) {
            int right = 0;
            try {
                collx::all_reduce(w, collx::value(x));
            } catch (const collx::error& e) {
                right += e.code() == collx::errc::forked && says(e, "fork");
            }
            try {
                (void)w.split(0);
            } catch (const collx::error& e) {
                right += e.code() == collx::errc::forked;
            }
            try {
                collx::send(w, collx::value(x), 0);
            } catch (const collx::error& e) {
                right += e.code() == collx::errc::forked;
            }
            try {
                w.record_calls(8);
            } catch (const collx::error& e) {
                right += e.code() == collx::errc::forked;
            }
            ::_exit(right == 4 ? 0 : 1);
        }
        int status = -1;
        while (::waitpid(child, &status, 0) < 0) {
        }
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        collx::all_reduce(w, collx::value(x)); // the parent still works
        EXPECT(x == 1);
    });
}

namespace {

// Whether f throws `forked`.
template <class F>
bool is_forked(F&& f) {
    try {
        f();
    } catch (const collx::error& e) {
        return e.code() == collx::errc::forked;
    }
    return false;
}

} // namespace

TEST_CASE("a forked child that ends its copies of handles, buffers and communicators takes nothing from the ranks") {
    const std::string name = new_job();
    shared_page<std::atomic<int>> has_ended;
    processes p;
    for (int r = 0; r < 2; ++r)
        p.start(r, [&, r] {
            auto j = join(name, r, 2);
            collx::communicator w(j);
            auto v = collx::make_shared_vector<int>(w, 5000, 7);
            std::vector<int> x(100'000, r + 1);
            if (r == 1 && !wait_until(*has_ended, 1)) return 2; // the call of rank 0 stays outstanding
            auto work = collx::async::all_reduce(w, x);
            if (r == 0) {
                const pid_t child = ::fork();
                if (child == 0) {
                    int right = is_forked([&] { (void)work.test(); });
                    right += is_forked([&] { work.wait(); }) + is_forked([&] { (void)work.wait_for(1s); });
                    right += is_forked([&] { (void)w.progress(); }) + is_forked([&] { w.abort(); });
                    right += is_forked([&] { v.resize(100'000); });
                    const auto ends = [](auto one, auto two, auto three) {
                        return one.test() && two.empty() && three.size();
                    };
                    right += is_forked([&] { (void)ends(std::move(work), std::move(v), std::move(w)); });
                    ::_exit(right);
                }
                int status = -1;
                while (::waitpid(child, &status, 0) < 0) {
                }
                has_ended->store(1);
                if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) return 3;
            }
            work.wait();
            for (const int i : v)
                if (i != 7) return 4;
            for (const int i : x)
                if (i != 3) return 5;
            collx::barrier(w);
            return 0;
        });
    p.wait();
    for (int r = 0; r < 2; ++r) {
        INFO("rank " << r << ": " << p[r].what);
        CHECK(p[r].exit_code == 0);
    }
}
