// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// shrink() of ranks that are processes on several hosts: whoever is killed, wherever, also while the others shrink, the
// rest goes on with a communicator that all of them have alike.
// collx-test: serial timeout=300
#include <collx/bootstrap/tcp_server.hpp>
#include <collx/bootstrap/tcp_store.hpp>

#include "faults/hosts.hpp"

using namespace collx_test;
using collx::errc;

namespace {

// Until the failure comes; what was thrown is for other tests.
void run_into_failure(collx::communicator& w, verb v = verb::all_reduce) {
    caller calls(w, 1000);
    try {
        const std::int64_t until = collx::now_ns() + 15'000 * ms;
        for (int salt = 1; collx::now_ns() < until; ++salt) calls.call(v, salt);
    } catch (const wrong_data&) {
        throw;
    } catch (const collx::error&) {
        return;
    }
    throw std::runtime_error("no failure came");
}

// Some of those who are to die may be dead before others are told that all have come: the failure is known to them
// then.
void meet(collx::communicator& w) {
    try {
        collx::barrier(w);
    } catch (const collx::peer_failed&) {
    }
}

// The others are past everything that came before then.
void abort_within_calls(collx::communicator& w) {
    caller calls(w, 1000);
    calls.call(verb::all_reduce, 1);
    w.abort();
}

// The ranks of the old numbering that go on, each as the bit of its number, as this rank sees them.
unsigned bits_of(collx::communicator& w, int old_rank) {
    int mine = 1 << old_rank;
    collx::all_reduce(w, collx::value(mine));
    return static_cast<unsigned>(mine);
}
void expect(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
}

// What each survivor tells the test.
struct seen_members {
    std::atomic<unsigned> bits[processes::most];
    std::atomic<std::int64_t> took_ns[processes::most];
};

} // namespace

TEST_CASE("survivors of killed ranks and hosts go on, again and again") {
    struct row {
        int n, ranks_per_host;
        std::vector<unsigned> killed; // bits, one set after the other
    };
    stopwatch watch{"shrink across hosts"};
    for (const row& r : {row{4, 1, {1u << 0, 1u << 3}}, row{5, 2, {1u << 4}}, row{6, 2, {1u << 0, 1u << 2, 1u << 5}},
                         row{6, 2, {3u << 0, 3u << 2}}, row{6, 3, {7u << 3}}, row{3, 1, {3u}}, row{4, 2, {1u << 1}}}) {
        const cell c{.n = r.n, .ranks_per_host = r.ranks_per_host};
        shared_page<seen_members> page;
        store_directory dir;
        processes all;
        for (int me = 0; me < r.n; ++me)
            all.start(me, [&, me] {
                auto world = world_of(c, dir, me);
                unsigned alive = (1u << r.n) - 1;
                check_works(world, 100);
                for (const unsigned killed : r.killed) {
                    meet(world);
                    if ((killed >> me & 1) != 0) ::kill(::getpid(), SIGKILL);
                    run_into_failure(world);
                    const std::int64_t begun = collx::now_ns();
                    world = world.shrink();
                    page->took_ns[me] = collx::now_ns() - begun;
                    alive &= ~killed;
                    // Ranks that die together are seen dead one after the other, as the kernel ends them.
                    while (world.size() > __builtin_popcount(alive)) {
                        run_into_failure(world);
                        world = world.shrink();
                    }
                    expect(world.size() == __builtin_popcount(alive), "size");
                    expect(world.rank() == __builtin_popcount(alive & ((1u << me) - 1)), "order");
                    expect(bits_of(world, me) == alive, "members");
                    check_works(world, 5000);
                }
                page->bits[me] = alive;
                return 0;
            });
        all.wait(60'000);
        unsigned dead = 0;
        for (const unsigned k : r.killed) dead |= k;
        for (int me = 0; me < r.n; ++me) {
            INFO("rank " << me << " of " << r.n << ", " << r.ranks_per_host << " per host: " << all[me].what);
            if ((dead >> me & 1) != 0) {
                CHECK(all[me].exit_code == 128 + SIGKILL);
                continue;
            }
            CHECK(all[me].is_ok());
            CHECK(page->bits[me] == (((1u << r.n) - 1) & ~dead));
            CHECK(page->took_ns[me] < 15'000 * ms);
            watch.add(page->took_ns[me]);
        }
    }
}

TEST_CASE("a rank that dies at any moment of shrinking does not divide the others") {
    stopwatch watch{"shrink while another rank is killed in it"};
    int died = 0;
    for (const int second : {0, 1, 3}) // the first coordinator, the next, one that follows
        for (long at = 1; at <= 8; ++at) {
            const cell c{.n = 5, .ranks_per_host = 1 + static_cast<int>(at % 2)};
            const int first = second == 0 ? 4 : 0;
            shared_page<seen_members> page;
            store_directory dir;
            processes all;
            for (int me = 0; me < c.n; ++me)
                all.start(me, [&, me] {
                    auto world = world_of(c, dir, me);
                    meet(world);
                    if (me == first) ::kill(::getpid(), SIGKILL);
                    run_into_failure(world);
                    if (me == second) harm::plan(harm::kind::die, at);
                    const std::int64_t begun = collx::now_ns();
                    world = world.shrink();
                    page->took_ns[me] = collx::now_ns() - begun;
                    // Whether it counted for one that lives or not, all have it alike.
                    while (world.size() > 3) {
                        run_into_failure(world);
                        world = world.shrink();
                    }
                    page->bits[me] = bits_of(world, me);
                    check_works(world, 100);
                    return 0;
                });
            all.wait(40'000);
            died += all[second].exit_code == 128 + SIGKILL;
            for (int me = 0; me < c.n; ++me) {
                if (me == first || me == second) continue;
                INFO("rank " << me << ", rank " << second << " died at its send " << at << ": " << all[me].what);
                CHECK(all[me].is_ok());
                CHECK(page->bits[me] == (0x1fu & ~(1u << first) & ~(1u << second)));
                watch.add(page->took_ns[me]);
            }
        }
    CHECK(died == 24);
}

TEST_CASE("connections cut while ranks shrink are made again") {
    for (const int victim : {0, 2})
        for (long at = 1; at <= 6; ++at) {
            const cell c{.n = 4, .ranks_per_host = 1};
            store_directory dir;
            processes all;
            for (int me = 0; me < c.n; ++me)
                all.start(me, [&, me] {
                    auto world = world_of(c, dir, me);
                    collx::barrier(world);
                    if (me == 1) abort_within_calls(world);
                    run_into_failure(world);
                    if (me == victim) harm::plan(harm::kind::cut, at);
                    world = world.shrink();
                    harm::plan(harm::kind::none, 0);
                    expect(world.size() == c.n, "size");
                    return 0;
                });
            all.wait(40'000);
            for (int me = 0; me < c.n; ++me) {
                INFO("rank " << me << ", cut by " << victim << " at its send " << at << ": " << all[me].what);
                CHECK(all[me].is_ok());
            }
        }
}

TEST_CASE("the rank that runs the store dies") {
    const cell c{.n = 4, .ranks_per_host = 2};
    const int port = collx::tcp_server().port();
    processes all;
    for (int me = 0; me < c.n; ++me)
        all.start(me, [&, me] {
            collx::sole_ptr<collx::tcp_server> server;
            if (me == 0) server = collx::make_sole<collx::tcp_server>("127.0.0.1", port);
            collx::tcp_store store("127.0.0.1", port, collx::deadline::in_ns(10'000 * ms));
            auto world = world_of(c, store, me);
            meet(world);
            if (me == 0) ::kill(::getpid(), SIGKILL);
            run_into_failure(world);
            world = world.shrink();
            expect(world.size() == 3 && bits_of(world, me) == 0xe, "members");
            return 0;
        });
    all.wait();
    for (int me = 1; me < c.n; ++me) {
        INFO("rank " << me << ": " << all[me].what);
        CHECK(all[me].is_ok());
    }
}

TEST_CASE("who lives on another host and does not come is named, and may come later") {
    const cell c{.n = 4, .ranks_per_host = 1, .timeout_ms = 3000};
    struct counts {
        std::atomic<int> know{0}, gave_up{0};
    };
    for (const int late : {0, 2}) {
        shared_page<counts> page;
        store_directory dir;
        processes all;
        for (int me = 0; me < c.n; ++me)
            all.start(me, [&, me] {
                auto world = world_of(c, dir, me);
                collx::barrier(world);
                if (me == 3) abort_within_calls(world);
                run_into_failure(world);
                page->know.fetch_add(1);
                wait_until(page->know, c.n); // from here on their patience counts
                if (me != late) {
                    try {
                        (void)world.shrink();
                        throw std::runtime_error("shrink() did not throw");
                    } catch (const collx::timed_out& e) {
                        expect(e.peer() == late, "names the one that is late");
                    }
                    page->gave_up.fetch_add(1);
                } else {
                    wait_until(page->gave_up, 3);
                }
                world.set_timeout(std::chrono::seconds(20));
                world = world.shrink();
                expect(world.size() == 4 && world.rank() == me, "size");
                check_works(world, 10);
                return 0;
            });
        all.wait();
        for (int me = 0; me < c.n; ++me) {
            INFO("rank " << me << ", late " << late << ": " << all[me].what);
            CHECK(all[me].is_ok());
        }
    }
}
