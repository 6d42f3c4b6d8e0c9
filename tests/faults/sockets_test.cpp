// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Faults of ranks that are processes on several hosts: SIGKILL, SIGSTOP, an end without goodbye, a connection cut while
// both its ends live, an exception, an abort, a closed listener. Every survivor soon names the guilty rank, whether or
// not it was connected to it. The hosts are only names in COLLX_HOST_ID; everything else is as on several machines.
// collx-test: serial timeout=300
#include "faults/hosts.hpp"
#include "support/patience.hpp"

#include <algorithm>
#include <deque>

#include <collx/algo/ring.hpp>
#include <collx/bootstrap/file_store.hpp>

using namespace collx_test;

namespace {

// The time-out of ranks that wait for a stopped one. A rank that is not scheduled for a quarter of it may be blamed
// instead, so it is longer on a busy machine. Called once per cell: ranks with different limits name different ranks.
std::chrono::milliseconds limit_of_stopped() { return heard_within(std::chrono::milliseconds(6000)); }

// After the failure: the survivors continue, with correct results in all verbs.
void go_on(collx::communicator& world, std::size_t elems, int expected_size) {
    world = world.shrink();
    if (world.size() != expected_size) throw std::runtime_error("shrink() has made a communicator of another size");
    check_works(world, elems);
}

// The state of a running cell.
struct running {
    cell c;
    shared_page<report> page;
    store_directory dir;
    processes all;
    explicit running(const cell& what) : c(what) {}
};

// Runs calls on all ranks. The victim calls strike() among them; the others continue until the error comes, then
// shrink. A victim that shrinks with the others returns from strike().
template <class Strike>
void start_cell(running& run, collx::errc code, Strike& strike, int victim_code) {
    const cell& c = run.c;
    auto& page = run.page;
    auto& all = run.all;
    const bool is_stopped = code == collx::errc::timeout, goes_on = code == collx::errc::aborted;
    const auto limit = limit_of_stopped();
    for (int r = 0; r < c.n; ++r)
        all.start(r, [&, r, limit] {
            collx::communicator world = world_of(c, run.dir, r);
            if (world.internals().net.is_one_host()) return 7;
            caller calls(world, c.elems);
            for (int salt = 1; salt < 5; ++salt) calls.call(c.what, salt);
            leave_together(*page, c.n);
            if (is_stopped) world.set_timeout(limit);
            if (r != c.victim) {
                until_error(*page, r, [&](int salt) { calls.call(c.what, salt); });
                if (is_stopped) return 0;
                go_on(world, c.elems, goes_on ? c.n : c.n - 1);
                return 0;
            }
            for (int salt = 1; salt < 4; ++salt) calls.call(c.what, salt);
            page->struck_ns.store(collx::now_ns());
            strike(world, calls);
            if (goes_on) go_on(world, c.elems, c.n);
            return victim_code;
        });
}
void end_cell(running& run, collx::errc code, stopwatch& watch, int victim_code) {
    const cell& c = run.c;
    auto& page = run.page;
    auto& all = run.all;
    const bool is_stopped = code == collx::errc::timeout;
    INFO(verb_names[static_cast<int>(c.what)] << ", rank " << c.victim << " of " << c.n << ", " << c.ranks_per_host
                                              << " per host, " << c.elems << " elements"
                                              << (c.is_unix ? ", unix" : ""));
    for (int i = 0; is_stopped && i < 60'000; ++i) { // a stopped victim is killed when the other ranks have ended
        int ended = 0;
        for (int r = 0; r < c.n; ++r) ended += page->ranks[r].ended_ns != 0;
        if (ended == c.n - 1) break;
        ::usleep(1000);
    }
    if (is_stopped) ::kill(all.pid(c.victim), SIGKILL);
    all.wait();
    CHECK(all[c.victim].exit_code == victim_code);
    check_survivors(all, *page, c.n, c.victim, code, watch);
}
template <class Strike>
void run_cell(const cell& c, collx::errc code, stopwatch& watch, Strike&& strike, int victim_code) {
    running run(c);
    start_cell(run, code, strike, victim_code);
    end_cell(run, code, watch, victim_code);
}

} // namespace

TEST_CASE("a killed rank is named by all others") {
    stopwatch watch{"SIGKILL across hosts"};
    each_cell(1, [&](const cell& c) {
        run_cell(
            c, collx::errc::peer_failed, watch, [](auto&, auto&) { ::kill(::getpid(), SIGKILL); }, 128 + SIGKILL);
    });
}

TEST_CASE("a rank killed within a large call is named by all others") {
    stopwatch watch{"SIGKILL within a call across hosts"};
    each_cell(2, [&](cell c) {
        c.elems = 200'000;
        c.lanes = 1 + static_cast<int>(c.what) % 3;
        if (c.lanes == 1) c.single_copy = collx::single_copy_mode::always; // by reference: not over several lanes
        run_cell(
            c, collx::errc::peer_failed, watch,
            [&](auto&, caller& calls) {
                // Killed by a timer during the following calls.
                ::signal(SIGALRM, [](int) { ::kill(::getpid(), SIGKILL); });
                ::ualarm(2000, 0);
                for (int salt = 4;; ++salt) calls.call(c.what, salt);
            },
            128 + SIGKILL);
    });
}

TEST_CASE("a stopped rank is named by all others when their time is over") {
    stopwatch watch{"SIGSTOP across hosts, time-out 6 to 12 s"};
    // A few start one after the other and wait at the same time; all of them could not report their waits in time.
    std::deque<running> cells;
    const auto stop = [](auto&, auto&) { ::kill(::getpid(), SIGSTOP); };
    const auto end_all = [&] {
        for (auto& c : cells) end_cell(c, collx::errc::timeout, watch, 128 + SIGKILL);
        cells.clear();
    };
    each_cell(3, [&](const cell& c) {
        auto& run = cells.emplace_back(c);
        start_cell(run, collx::errc::timeout, stop, 128 + SIGKILL);
        for (int i = 0; i < 30'000 && run.page->struck_ns == 0; ++i) ::usleep(1000);
        if (cells.size() == 8) end_all();
    });
    end_all();
}

TEST_CASE("a rank that ends without a goodbye is named by all others") {
    stopwatch watch{"_exit across hosts"};
    each_cell(
        4,
        [&](const cell& c) {
            run_cell(
                c, collx::errc::peer_failed, watch, [](auto&, auto&) { ::_exit(3); }, 3);
        },
        4);
}

TEST_CASE("a rank that leaves by an exception of its own is named by all others") {
    stopwatch watch{"exception across hosts"};
    each_cell(
        5,
        [&](const cell& c) {
            if (c.what == verb::broadcast) return; // only the root is waited for
            run_cell(
                c, collx::errc::peer_failed, watch,
                [](collx::communicator& w, auto&) { collx::communicator gone = std::move(w); }, 0);
        },
        5);
}

// Rank 0 learns of the death in a communicator without rank 2, and leaves; then rank 2 waits for rank 0.
TEST_CASE("of a rank that has died and one that left for it the dead one is named") {
    const store_directory dir;
    const cell c{.n = 3};
    shared_page<report> page;
    processes all;
    for (int r = 0; r < c.n; ++r)
        all.start(r, [&, r] {
            collx::communicator world = world_of(c, dir, r);
            std::vector<int> x(1), y(3);
            collx::all_gather(world, x, y); // now all ranks are connected
            auto part = world.split(r == 2);
            leave_together(*page, c.n);
            if (r == 1) ::kill(::getpid(), SIGKILL);
            if (r == 2) {
                for (int i = 0; i < 60'000 && page->struck_ns == 0; ++i) ::usleep(1000);
                collx::recv(world, x, 0);
            } else {
                try {
                    collx::recv(part, x, 1);
                } catch (const collx::error&) {
                    collx::communicator gone = std::move(part), too = std::move(world);
                }
                page->struck_ns = 1;
            }
            return 0;
        });
    all.wait();
    INFO(all[2].what);
    CHECK((all[2].has_thrown && all[2].code == collx::errc::peer_failed && all[2].peer == 1));
}

TEST_CASE("an abort reaches all ranks soon") {
    stopwatch watch{"abort across hosts"};
    each_cell(6, [&](const cell& c) {
        run_cell(
            c, collx::errc::aborted, watch, [](collx::communicator& w, auto&) { w.abort(); }, 0);
    });
    CHECK(watch.late(collx_test::patient(1'000 * ms)) <=
          watch.times / 2); // takes milliseconds, but other processes may have the cores
}

TEST_CASE("a rank whose connections are reset as it dies is named by all others") {
    stopwatch watch{"RST from a rank that ends"};
    each_cell(7, [&](const cell& c) {
        run_cell(
            c, collx::errc::peer_failed, watch,
            [](auto&, auto&) {
                harm::cut_all();
                ::_exit(3);
            },
            3);
    });
}

TEST_CASE(
    "a connection reset in the middle of any call, while both its ends live, ends the communicator on all ranks") {
    stopwatch watch{"RST between ranks that live"};
    each_cell(8, [&](cell c) {
        c.ranks_per_host = 1;
        c.elems = 20'000; // several writes per call
        INFO(verb_names[static_cast<int>(c.what)] << ", rank " << c.victim << " of " << c.n);
        shared_page<report> page;
        store_directory dir;
        processes all;
        for (int r = 0; r < c.n; ++r)
            all.start(r, [&, r] {
                collx::communicator world = world_of(c, dir, r);
                caller calls(world, c.elems);
                for (int salt = 1; salt < 5; ++salt) calls.call(c.what, salt);
                leave_together(*page, c.n);
                if (r == c.victim) {
                    page->struck_ns.store(collx::now_ns());
                    harm::plan(harm::kind::cut, 3);
                }
                until_error(*page, r, [&](int salt) { calls.call(c.what, salt); });
                harm::plan(harm::kind::none, 0);
                go_on(world, c.elems, c.n);
                return 0;
            });
        all.wait();
        for (int r = 0; r < c.n; ++r) {
            const auto& seen = page->ranks[r];
            INFO("rank " << r << ": " << seen.code << " about " << seen.peer << " " << all[r].what);
            CHECK(all[r].is_ok());
            CHECK(seen.code == static_cast<int>(collx::errc::peer_failed));
            CHECK(seen.peer >= 0); // either end may find it cut first, and names the other
            watch.add(seen.ended_ns - page->struck_ns.load());
        }
    });
}

TEST_CASE("whatever lane of a pair is cut, and whichever rank dies with several, all ranks name one and go on") {
    stopwatch watch{"RST of a lane, SIGKILL with several"};
    constexpr std::size_t elems = 450'000;
    for (int round = 0; round < 12; ++round) {
        const bool dies = round % 3 == 2;
        const cell c{.n = 3,
                     .ranks_per_host = 1,
                     .victim = round % 2,
                     .elems = elems,
                     .is_unix = round % 4 == 3,
                     .lanes = 2 + round % 3};
        INFO("round " << round);
        shared_page<report> page;
        store_directory dir;
        processes all;
        for (int r = 0; r < c.n; ++r)
            all.start(r, [&, r] {
                collx::communicator world = world_of(c, dir, r);
                const auto call = [&](int) {
                    std::vector<int> x(elems, 1);
                    collx::all_reduce(world.with(collx::algo::ring_all_reduce{}), x);
                    if (x[0] != 3 || x[elems / 2] != 3 || x[elems - 1] != 3) throw std::runtime_error("a wrong sum");
                };
                for (int least = 0; least < 2 * c.lanes;) { // until every rank has all its connections
                    call(0);
                    least = world.internals().net.remote()->connections();
                    collx::all_reduce(world, collx::value(least), collx::min{});
                }
                leave_together(*page, c.n);
                if (r == c.victim) page->struck_ns.store(collx::now_ns());
                if (r == c.victim) harm::plan(dies ? harm::kind::die : harm::kind::cut, 2 + round);
                until_error(*page, r, call);
                harm::plan(harm::kind::none, 0);
                go_on(world, elems, dies ? c.n - 1 : c.n);
                return 0;
            });
        all.wait();
        for (int r = 0; r < c.n; ++r) {
            if (dies && r == c.victim) continue;
            const auto& seen = page->ranks[r];
            INFO("rank " << r << ": " << seen.code << " about " << seen.peer << " " << all[r].what);
            CHECK(all[r].is_ok());
            CHECK(seen.code == static_cast<int>(collx::errc::peer_failed));
            CHECK((dies ? seen.peer == c.victim : seen.peer >= 0));
            watch.add(seen.ended_ns - page->struck_ns.load());
        }
    }
}

TEST_CASE("a rank that dies is named on every communicator that shares its connections") {
    constexpr int shared = 12, n = 3, victim = 1;
    struct seen {
        std::atomic<int> right[n];
    };
    for (const bool is_unix : {false, true}) {
        const cell c{.n = n, .ranks_per_host = 1, .victim = victim, .is_unix = is_unix, .is_shared = true};
        store_directory dir;
        shared_page<seen> page;
        shared_page<report> ranks;
        processes all;
        for (int r = 0; r < c.n; ++r)
            all.start(r, [&, r] {
                collx::communicator world = world_of(c, dir, r);
                std::vector<collx::communicator> others;
                for (int k = 0; k < shared; ++k) others.push_back(world.dup());
                for (int k = 0; k < shared / 2; ++k) check_works(others[static_cast<std::size_t>(k)], 100);
                leave_together(*ranks, n);
                if (r == victim) ::kill(::getpid(), SIGKILL);
                for (auto& other : others) try { // also the communicators that were never used
                        for (;;) collx::barrier(other);
                    } catch (const collx::peer_failed& e) {
                        page->right[r] += e.peer() == victim ? 1 : 0;
                    }
                go_on(others.back(), 1000, n - 1);
                return 0;
            });
        all.wait();
        for (int r = 0; r < n; ++r) {
            if (r == victim) continue;
            INFO("rank " << r << ": " << all[r].what);
            CHECK(all[r].is_ok());
            CHECK(page->right[r] == shared);
        }
    }
}

TEST_CASE("a rank that dies while the communicator is being made is named") {
    const cell c{.n = 4, .ranks_per_host = 1, .victim = 3};
    store_directory dir;
    shared_page<std::atomic<int>> told;
    processes all;
    for (int r = 0; r < c.n; ++r)
        all.start(r, [&, r] {
            ::setenv("COLLX_HOST_ID", ("host" + std::to_string(r)).c_str(), 1);
            collx::file_store store(dir.path());
            try { // the death may also be noticed in join_by_store()
                auto job = collx::detail::join_by_store(r, c.n, store, std::int64_t{c.timeout_ms} * ms, {});
                if (r == c.victim) ::_exit(5);
                collx::communicator world(job);
            } catch (...) {
                told->fetch_add(1);
                wait_until(*told, c.n - 1); // a rank that ended now would be named by slower ranks
                throw;
            }
            return 0;
        });
    all.wait();
    for (int r = 0; r < c.n; ++r) {
        if (r == c.victim) continue;
        INFO(r << ": " << all[r].what);
        CHECK(all[r].has_thrown);
        CHECK(all[r].code == collx::errc::peer_failed);
        CHECK(all[r].peer == c.victim);
    }
}

TEST_CASE("what was sent last arrives although its sender has ended") {
    // Far more than the system's buffers hold; the receivers are late.
    const cell c{.n = 3, .ranks_per_host = 1};
    store_directory dir;
    processes all;
    for (int r = 0; r < c.n; ++r)
        all.start(r, [&, r] {
            collx::communicator world = world_of(c, dir, r);
            std::vector<int> x(40'000, r == 0 ? 17 : 0), y(900'000, r == 0 ? 5 : 0);
            collx::broadcast(world, x);
            if (r == 0) collx::send(world, x, 2);
            if (r == 2) {
                ::usleep(100'000);
                collx::recv(world, x, 0);
            }
            if (r != 0) ::usleep(300'000);
            collx::broadcast(world, y);
            for (int v : x)
                if (v != 17) return 3;
            for (int v : y)
                if (v != 5) return 4;
            return 0;
        });
    all.wait();
    for (int r = 0; r < c.n; ++r) {
        INFO(r << ": " << all[r].exit_code << " " << all[r].what);
        CHECK(all[r].is_ok());
    }
}

namespace {

// A network that brings something new every 5 ms, from begin() on.
struct slow_network {
    static inline bool is_slow = false;
    static inline std::int64_t next_ns = 0;
    static void begin() {
        is_slow = true;
        next_ns = collx::now_ns() + 5'000'000;
    }
    static ssize_t recvmsg(int fd, msghdr* m, int flags) {
        if (!is_slow) return ::recvmsg(fd, m, flags);
        if (collx::now_ns() < next_ns) {
            errno = EAGAIN;
            return -1;
        }
        const ssize_t n = ::recvmsg(fd, m, flags);
        if (n > 0) begin();
        return n;
    }
};
constexpr collx::socket_calls slow_calls{::socket,    ::connect, ::accept4, ::sendmsg, slow_network::recvmsg,
                                         ::epoll_wait};

} // namespace

// Its neighbour on the host has heard of the end long before, and says so in their common memory.
TEST_CASE("a late rank gets what a rank of another host sent before it ended the communicator") {
    const cell c{.n = 3, .ranks_per_host = 2};
    store_directory dir;
    processes all;
    for (int r = 0; r < c.n; ++r)
        all.start(r, [&, r] {
            collx::file_store store(dir.path());
            auto world = world_of(c, store, host_of(c, r), r, slow_calls);
            {
                auto part = world.split(0);
                const std::int64_t limit = r == 0 ? 4'000'000'000 : patient(std::int64_t{60'000'000'000});
                part.set_timeout(std::chrono::nanoseconds(limit));
                std::vector<int> x(1000, r);
                if (r == 0) {
                    ::usleep(static_cast<unsigned>(collx::waiting_word::fresh_ns(limit) / 1000 * 3 / 2));
                    slow_network::begin();
                    collx::recv(part, x, 2);
                    expect(x[999] == 2, "wrong numbers");
                    collx::send(part, x, 1);
                } else if (r == 1) {
                    collx::recv(part, x, 2);
                    collx::recv(part, x, 0);
                } else {
                    ::usleep(100'000); // the others have ended the exchange that makes it
                    collx::send(part, x, 1);
                    collx::send(part, x, 0);
                }
            }
            collx::barrier(world);
            return 0;
        });
    all.wait();
    for (int r = 0; r < c.n; ++r) {
        INFO(r << ": " << all[r].exit_code << " " << all[r].what);
        CHECK(all[r].is_ok());
    }
}
