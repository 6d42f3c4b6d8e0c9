// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program's own transports: the one of example 16 between threads, between threads of several hosts, and between
// processes. Decorators. What happens when an endpoint cannot start, a peer dies or is silent, or ranks name
// different transports.
//
// collx-test: timeout=240 serial
#include <collx/algo/ring.hpp>
#include <collx/comm/progress.hpp>
#include <collx/job/custom_transport.hpp>
#include <collx/job/join.hpp>
#include <collx/testing/endpoint_contract.hpp>
#include <collx/testing/with_faults.hpp>
#include <collx/transport/counted.hpp>

#include <atomic>
#include <chrono>
#include <thread>

#include "../../examples/16_write_a_transport/datagrams.hpp"
#include "comm/support.hpp"
#include "support/processes.hpp"
#include "transport/shm_support.hpp"

using namespace collx;
using namespace collx_test;
using collx::testing::fault_plan;
using collx::testing::with_faults;

namespace {

void run_some(communicator& w) {
    const int n = w.size(), me = w.rank();
    for (const std::size_t size : {std::size_t{1}, std::size_t{3000}, std::size_t{700'000}}) {
        at("size=%zu n=%d", size, n);
        std::vector<std::int64_t> x(size), got(size);
        for (std::size_t i = 0; i < size; ++i) x[i] = me + static_cast<std::int64_t>(i);
        const auto mine = x;
        collx::all_reduce(w, x);
        for (std::size_t i = 0; i < size; i += 97)
            EXPECT_AT(i, x[i] == n * static_cast<std::int64_t>(i) + n * (n - 1) / 2);
        collx::sendrecv(w, mine, (me + 1) % n, got, (me + n - 1) % n);
        for (std::size_t i = 0; i < size; i += 97)
            EXPECT_AT(i, got[i] == (me + n - 1) % n + static_cast<std::int64_t>(i));
    }
    auto child = w.split(me % 2), again = w.dup();
    for (communicator* c : {&child, &again}) {
        int one = 1;
        collx::all_reduce(*c, collx::value(one));
        EXPECT(one == c->size());
    }
}

template <class... T>
void run_over(int n, T... t) {
    run_threads(per_peer{t...}, n, [](communicator& w) { run_checked(w, run_some); });
}

// Runs one rank of a job of processes whose transport is `over`.
template <class F>
int as_process(const std::string& name, int rank, int n, const transports& over, F&& f) {
    job_settings s = detail::settings_for(n);
    s.timeout_ns = patient(20'000'000'000);
    s.over = over;
    const auto near =
        detail::join_processes(name.c_str(), rank, n, s, 0, "test", deadline::in_ns(patient(20'000'000'000)));
    communicator w(detail::join_custom(near));
    f(w);
    return 0;
}

struct fails_to_start : datagrams {
    static constexpr const char* name = "fails_to_start";
    struct endpoint : datagrams::endpoint {
        endpoint(int rank, int size) : datagrams::endpoint(rank, size) {
            if (rank == 1) fail(errc::environment, rank, -1, "plug in the cable", "no cable");
        }
    };
};

std::atomic<bool> is_slow{false};
struct slow : datagrams {
    static constexpr const char* name = "slow";
    struct endpoint : datagrams::endpoint {
        using datagrams::endpoint::endpoint;
        bool move() {
            if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(100));
            return datagrams::endpoint::move();
        }
    };
};

} // namespace

TEST_CASE("collectives, children and messages go over a transport of the program's own") {
    for (const int n : {2, 3, 5}) run_over(n, datagrams{});
}

TEST_CASE("hosts share memory within, and a transport of the program's own goes between") {
    const transports over = per_peer{shm{}, datagrams{}};
    auto jobs = detail::thread_jobs({0, 0, 1, 2, 1}, over);
    detail::run_thread_jobs(std::move(jobs), [](communicator& w) { run_checked(w, run_some); });
}

TEST_CASE("abort() by another thread ends a call that begins meanwhile with aborted, and refuses none") {
    is_slow = false;
    auto jobs = detail::thread_jobs({0, 1}, per_peer{shm{}, slow{}});
    detail::run_thread_jobs(std::move(jobs), [](communicator& all) {
        run_checked(all, [](communicator& w) {
            (void)w.with(progress::thread{});
            int x = 1;
            all_reduce(w, value(x));
            EXPECT(x == 2);
            if (w.rank() == 1)
                return (void)collx_test::thrown<aborted>(w, [&] {
                    barrier(w); // rank 0 may abort while this rank is still in it
                    for (;;) all_reduce(w, value(x));
                });
            barrier(w); // rank 1 has left all_reduce
            is_slow = true;
            std::thread other([&] { w.abort(); });
            std::this_thread::sleep_for(std::chrono::milliseconds(20)); // abort() is in the endpoint now
            (void)collx_test::thrown<aborted>(w, [&] { all_reduce(w, value(x)); });
            is_slow = false;
            other.join();
        });
    });
}

TEST_CASE("a counted transport is as good, and counts") {
    CHECK(collx::testing::check_transport<counted<datagrams>>().is_clean());
    const auto before = counted<datagrams>::counts();
    run_over(2, counted<datagrams>{});
    const auto after = counted<datagrams>::counts();
    CHECK(after.sent_messages > before.sent_messages);
    CHECK(after.sent_bytes - before.sent_bytes > 2 * 700'000 * 8);
    // A rank's last messages may reach no peer.
    CHECK(after.received_messages - before.received_messages <= after.sent_messages - before.sent_messages);
    CHECK(after.received_bytes - before.received_bytes > 2 * 700'000 * 8);
}

TEST_CASE("a transport that delays is as good; what one drops or cuts is found by the suite and by calls") {
    using delaying = with_faults<datagrams, fault_plan{.seed = 3, .delay_one_in = 5, .delay_moves = 40}>;
    const auto late = collx::testing::check_transport<delaying>();
    INFO(late.text());
    CHECK(late.is_clean());
    run_over(3, delaying{});

    using lossy = with_faults<datagrams, fault_plan{.seed = 3, .drop_one_in = 4}>;
    const auto lost = collx::testing::check_transport<lossy>({.limit_ns = 100'000'000});
    INFO(lost.text());
    CHECK((lost.names("order") || lost.names("apart")));
    using silent = with_faults<datagrams, fault_plan{.drop_one_in = 1}>;
    CHECK(collx::testing::check_transport<silent>({.limit_ns = 50'000'000}).names("order"));

    using dead_end = with_faults<datagrams, fault_plan{.cut_after = 30}>;
    CHECK_THROWS_AS(run_threads(per_peer{dead_end{}}, 3, [](communicator& w) { run_some(w); }), error);
}

TEST_CASE("a rank that fails is named to those who reach it by such a transport, and survivors go on") {
    std::atomic<int> went_on{0};
    const auto body = [&](communicator& w) {
        run_some(w);
        int one = 1;
        if (w.rank() == 1) {
            collx::all_reduce(w, collx::value(one)); // the others are in the loop when it ends
            throw std::runtime_error("rank 1 gives up");
        }
        try {
            for (;;) collx::all_reduce(w, collx::value(one));
        } catch (const peer_failed& e) {
            if (e.peer() != 1) throw;
        }
        auto rest = w.shrink();
        one = 1;
        collx::all_reduce(rest, collx::value(one));
        went_on += one;
    };
    CHECK_THROWS_AS(run_threads(per_peer{datagrams{}}, 3, body), std::runtime_error);
    CHECK(went_on == 4);
}

TEST_CASE("a rank that says nothing is named when the time is up") {
    const auto limit = heard_within(std::chrono::milliseconds(2000)); // the same for all ranks
    std::atomic<int> come{0};
    const auto body = [&](communicator& w) {
        if (w.rank() == 2) {
            try {
                for (const deadline until = deadline::in_ns(patient(30'000'000'000)); !until.passed();) {
                    detail::nap_ns(10'000'000);
                    (void)w.progress();
                    w.internals().require_alive();
                }
            } catch (const error&) {
            }
            return;
        }
        w.set_timeout(limit);
        int one = 1;
        ++come;
        collx_test::until([&] { return come == 2; }); // or one of them is named
        try {
            collx::all_reduce(w, collx::value(one));
        } catch (const timed_out& e) {
            if (e.peer() != 2) throw;
            return;
        }
        throw wrong("no time-out");
    };
    run_threads(per_peer{datagrams{}}, 3, body);
}

TEST_CASE("processes come together, and each hears whose endpoint cannot start or who is killed") {
    processes good;
    const std::string job = fresh_job();
    for (int r = 0; r < 3; ++r)
        good.start(r, [&, r] { return as_process(job, r, 3, per_peer{datagrams{}}, run_some); });
    good.wait();
    for (int r = 0; r < 3; ++r) {
        INFO(good[r].what);
        CHECK(good[r].is_ok());
    }

    processes bad;
    const std::string other = fresh_job();
    for (int r = 0; r < 3; ++r)
        bad.start(r, [&, r] { return as_process(other, r, 3, per_peer{fails_to_start{}}, run_some); });
    bad.wait();
    CHECK((bad[1].has_thrown && bad[1].code == errc::environment && bad[1].says("no cable")));
    for (const int r : {0, 2})
        CHECK((bad[r].code == errc::peer_failed && bad[r].peer == 1 && bad[r].says("the transport fails_to_start")));

    processes killed;
    const std::string third = fresh_job();
    for (int r = 0; r < 3; ++r)
        killed.start(r, [&, r] {
            return as_process(third, r, 3, per_peer{datagrams{}}, [&](communicator& w) {
                run_some(w);
                collx::barrier(w); // rank 1's pending messages belong to this communicator
                if (r == 1) ::raise(SIGKILL);
                for (;;) collx::barrier(w);
            });
        });
    killed.wait();
    for (const int r : {0, 2}) {
        INFO(killed[r].what);
        CHECK((killed[r].has_thrown && killed[r].code == errc::peer_failed && killed[r].peer == 1));
    }
}

static_assert(!std::is_convertible_v<communicator&, basic_communicator<datagrams>&> &&
                  std::is_convertible_v<basic_communicator<datagrams>&, communicator&>,
              "a function may ask for a list, and calls ask for none");

TEST_CASE("a communicator's type carries its list, through split, dup and shrink, and into calls") {
    using wires = basic_communicator<shm, datagrams>;
    static_assert(wires::over() == transports(per_peer{shm{}, datagrams{}}));
    run_threads(per_peer{shm{}, datagrams{}}, 3, [] {
        wires w;
        run_checked(w, run_some);
        wires row = w.split(w.rank() == 2), again = w.dup();
        int one = 1;
        collx::all_reduce(row, collx::value(one));
        EXPECT(one == row.size());
        one = 1;
        collx::all_reduce(again.with(algo::ring_all_reduce{}), collx::value(one));
        EXPECT(one == 3);
        collx::barrier(w); // no rank is in the previous call any more
        if (w.rank() == 0) again.abort();
        try {
            for (;;) collx::barrier(again);
        } catch (const aborted&) {
        }
        wires left = again.shrink();
        one = 1;
        collx::all_reduce(left, collx::value(one));
        EXPECT(one == 3);
    });
    bool refused = false; // because a job uses another list
    run_threads(per_peer{datagrams{}}, 2, [&](communicator& w) {
        try {
            const wires other;
        } catch (const error& e) {
            const std::string what = e.what();
            if (w.rank() == 0)
                refused = e.code() == errc::invalid_argument && what.find("per_peer{datagrams}") != what.npos &&
                          what.find("per_peer{shm,datagrams}") != what.npos;
        }
    });
    CHECK(refused);
}

TEST_CASE("ranks that name different transports hear of both lists") {
    processes p;
    const std::string job = fresh_job();
    p.start(0, [&] { return as_process(job, 0, 2, per_peer{datagrams{}}, run_some); });
    p.start(1, [&] { return as_process(job, 1, 2, basic_communicator<fails_to_start>::over(), run_some); });
    p.wait();
    for (const int r : {0, 1}) {
        INFO(p[r].what);
        CHECK((p[r].peer == 1 && p[r].says("the same list of transports")));
        CHECK((p[r].code == errc::mismatch && p[r].says("datagrams") && p[r].says("fails_to_start")));
    }
}
