// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=thread,nightly
//
// run_threads(): ranks as threads.
#include "support.hpp"

#include <collx/bootstrap/memory_store.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "support/skip.hpp"

using namespace collx_test;
using namespace std::chrono_literals;

TEST_CASE("every rank runs once, on a thread of its own, and knows its number") {
    for (const int n : {1, 2, 9}) {
        std::vector<std::thread::id> ids(static_cast<std::size_t>(n));
        on_ranks(n, [&](collx::communicator& w) {
            EXPECT(w.size() == n && std::string(w.membership()->found_by) == "run_threads");
            ids[static_cast<std::size_t>(w.rank())] = std::this_thread::get_id();
        });
        std::set<std::thread::id> distinct(ids.begin(), ids.end());
        distinct.insert(std::this_thread::get_id());
        CHECK(distinct.size() == static_cast<std::size_t>(n) + 1);
    }
}

namespace {
std::atomic<int> ran{0};
void count_rank(collx::communicator& w) { ran += 10 + w.rank(); }
struct counts_calls {
    int calls = 0;
    void operator()() { ++calls; }
};
} // namespace
TEST_CASE("the body is a function, a constant, or an object that is used where it stands") {
    collx::run_threads(2, count_rank);
    CHECK(ran == 21);
    collx::run_threads(2, &count_rank);
    CHECK(ran == 42);
    const auto constant = [](collx::communicator& w) { ran += w.size(); };
    collx::run_threads(3, constant);
    CHECK(ran == 51);
    counts_calls one;
    collx::run_threads(1, one); // the body takes no communicator
    CHECK(one.calls == 1);
}

TEST_CASE("a rank that checks nothing fails its case, whatever the others have checked") {
    const auto only_on = [](int rank) {
        return [rank](collx::communicator& w) {
            if (w.rank() == rank) EXPECT(w.size() == 2);
        };
    };
    CHECK_THROWS_WITH(on_ranks(2, only_on(0)), "rank 1 has checked nothing");
    CHECK_THROWS_WITH(on_ranks(2, only_on(1)), "rank 0 has checked nothing");
    CHECK_THROWS_WITH(on_hosts(2, spread{1}, only_on(0)), "rank 1 has checked nothing");
}

TEST_CASE("the exception of the lowest rank that failed by itself comes out") {
    CHECK_THROWS_WITH(collx::run_threads(4,
                                         [](collx::communicator& w) {
                                             if (w.rank() >= 2)
                                                 throw std::runtime_error("rank " + std::to_string(w.rank()));
                                             collx::barrier(w);
                                         }),
                      "rank 2");
    CHECK_THROWS_AS(collx::run_threads(2, [](collx::communicator&) { throw 5; }), int);
}

TEST_CASE("a thread that fails before it makes the next communicator is named by those who wait for it") {
    std::atomic<int> right{0};
    try {
        collx::run_threads(3, [&](collx::communicator& w) {
            if (w.rank() == 0) throw std::runtime_error("of the program");
            const std::int64_t begun = collx::now_ns();
            try {
                const collx::communicator another;
            } catch (const collx::peer_failed& e) {
                right += e.peer() == 0 && collx::now_ns() - begun < collx_test::patient(30'000'000'000);
                throw;
            }
        });
    } catch (const std::runtime_error& e) {
        right += std::string(e.what()) == "of the program";
    }
    CHECK(right == 3);
}

TEST_CASE("a thread that returns without its part of a call is named by those who wait for it") {
    std::atomic<int> named{0};
    on_ranks(3, [&](collx::communicator& w) {
        w.set_timeout(collx_test::patient(10s));
        EXPECT(w.size() == 3);
        if (w.rank() == 1) return;
        int x = 1;
        try {
            if (w.rank() == 0) collx::recv(w, collx::value(x), 1);
            else collx::barrier(w);
        } catch (const collx::peer_failed& e) { // and no timed_out
            named += e.peer() == 1;
        }
        auto others = w.shrink();
        EXPECT(others.size() == 2);
        collx::all_reduce(others, collx::value(x));
        EXPECT(x == 2);
    });
    CHECK(named == 2);
}

TEST_CASE("a thread that has done its part may return while others go on, and its messages arrive") {
    on_ranks(3, [&](collx::communicator& w) {
        int x = w.rank();
        EXPECT(x < 3);
        if (w.rank() == 2) collx::send(w, collx::value(x), 1);
        if (w.rank() == 0) {
            std::this_thread::sleep_for(50ms); // rank 2 has returned long before
            collx::send(w, collx::value(x), 1);
        }
        if (w.rank() != 1) return;
        collx::recv(w, collx::value(x), 0);
        EXPECT(x == 0);
        collx::recv(w, collx::value(x), 2);
        EXPECT(x == 2);
    });
}

TEST_CASE("when not all threads can be started, those that were end, and the error says so") {
    if (::getuid() != 0) return collx_test::skip("only root can become a user of its own, with few threads");
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit few{5, 5};
        // The limit counts all processes of a user: another run of this test takes another one.
        const auto user = static_cast<uid_t>(20'000 + ::getpid() % 40'000);
        if (::setuid(user) != 0 || ::setrlimit(RLIMIT_NPROC, &few) != 0) ::_exit(2);
        int result = 3;
        const std::int64_t begin = collx::now_ns();
        std::atomic<int> ran{0};
        try {
            collx::run_threads(16, [&](collx::communicator&) { ++ran; });
        } catch (const collx::error& e) {
            result = e.code() == collx::errc::resource && says(e, " of 16 threads: Resource") && says(e, "ulimit -u") &&
                             ran == 0 && collx::now_ns() - begin < 10'000'000'000
                         ? 0
                         : 4;
            if (result != 0) std::fprintf(stderr, "%s\n", e.what());
        }
        try { // nothing is left of the failed ones
            collx::run_threads(3, [&](collx::communicator& w) {
                collx::barrier(w);
                ++ran;
            });
        } catch (const collx::error&) {
            result = 5;
        }
        ::_exit(result != 0 ? result : ran == 3 ? 0 : 6);
    }
    int status = -1;
    while (::waitpid(child, &status, 0) < 0) {
    }
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("jobs of threads may run side by side, and inside one another") {
    std::atomic<int> sum{0};
    std::thread other([&] {
        for (int i = 0; i < 20; ++i)
            collx::run_threads(3, [&](collx::communicator& w) {
                int x = 1;
                collx::all_reduce(w, collx::value(x));
                sum += x;
            });
    });
    for (int i = 0; i < 20; ++i)
        collx::run_threads(2, [&](collx::communicator& w) {
            int x = 1;
            collx::all_reduce(w, collx::value(x));
            sum += x;
            if (i == 7 && w.rank() == 0)
                collx::run_threads(2, [&](collx::communicator& inner) {
                    int y = 1;
                    collx::all_reduce(inner, collx::value(y));
                    sum += y;
                });
            collx::barrier(w);
        });
    other.join();
    CHECK(sum == 20 * 9 + 20 * 4 + 4);
}

TEST_CASE("many ranks: all verbs work with many more ranks than cores") {
    for (const int n : {17, 33, 64, 128})
        on_ranks(n, [n](collx::communicator& w) {
            const auto u = static_cast<std::size_t>(n), me = static_cast<std::size_t>(w.rank());
            at("n=%d", n);
            for (const std::size_t size : {1u, 700u}) {
                std::vector<int> x(size, 1), all(size * u), mine(size, w.rank()), back(size);
                collx::all_reduce(w, x);
                EXPECT(x.back() == n);
                collx::all_gather(w, mine, all);
                for (std::size_t r = 0; r < u; ++r) EXPECT_AT(r, all[r * size] == static_cast<int>(r));
                std::vector<int> out(all.size());
                collx::all_to_all(w, all, out);
                EXPECT(out.front() == w.rank() && out.back() == w.rank());
                collx::reduce_scatter(w, all, back);
                EXPECT(back.back() == n * w.rank());
                collx::broadcast(w, back, {.root = n - 1});
                EXPECT(back[0] == n * (n - 1));
                collx::scan(w, x);
                EXPECT(x.back() == n * (w.rank() + 1));
                collx::reduce(w, mine, back, collx::plus{}, {.root = n / 3});
                EXPECT(w.rank() != n / 3 || back.back() == n * (n - 1) / 2);
                collx::gather(w, mine, out, {.root = 1});
                EXPECT(w.rank() != 1 || out[me * size] == 1);
                collx::scatter(w, all, back, {.root = 2});
                EXPECT(back.back() == w.rank());
            }
            collx::barrier(w);
        });
}

TEST_CASE("threads over the transports that the program names") {
    using collx::per_peer, collx::shm, collx::sockets;
    for (const int n : {1, 3}) {
        collx::run_threads(per_peer{sockets{}}, n, [&](collx::communicator& w) {
            long x = w.rank() + 1;
            collx::all_reduce(w, collx::value(x));
            EXPECT(x == n * (n + 1) / 2);
            EXPECT(w.internals().net.is_one_host() == (n == 1));
            const collx::communicator again(per_peer{sockets{}});
            EXPECT(again.size() == n);
            bool refused = false;
            try {
                const collx::communicator other(per_peer{shm{}, sockets{}});
            } catch (const collx::error& e) {
                refused = e.code() == collx::errc::invalid_argument && says(e, "per_peer{shm,sockets}");
            }
            EXPECT(refused);
        });
        collx::run_threads(per_peer{shm{}}, n,
                           [&](collx::communicator& w) { EXPECT(w.internals().net.is_one_host() && w.size() == n); });
    }
}

TEST_CASE("a store joins ranks over the transports that the program names") {
    collx::memory_store store;
    std::vector<std::string> wrong(3);
    std::vector<std::thread> ranks;
    for (int r = 0; r < 3; ++r)
        ranks.emplace_back([&, r] {
            auto& mine = wrong[static_cast<std::size_t>(r)];
            try {
                collx::communicator w(r, 3, store, std::chrono::seconds(60), collx::per_peer{collx::sockets{}});
                int x = 1;
                collx::all_reduce(w, collx::value(x));
                if (x != 3 || w.internals().net.is_one_host()) mine = "they share memory";
            } catch (const std::exception& e) {
                mine = e.what();
            }
        });
    for (auto& t : ranks) t.join();
    for (const std::string& w : wrong) CHECK(w.empty());
}
