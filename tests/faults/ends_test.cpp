// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks that end or stop in other ways than by SIGKILL (exit, abort(), exceptions, SIGSTOP), ranks that another rank
// ends (communicator::abort), and what must not count as a failure: pauses, signals, more ranks than cores.
// collx-test: serial timeout=300
#include <sys/time.h>

#include <pthread.h>

#include <deque>
#include <exception>
#include <stdexcept>

#include "faults/support.hpp"

using namespace collx_test;
using collx::errc;

namespace {

constexpr verb stopping_verbs[] = {verb::all_reduce, verb::broadcast, verb::all_to_all,
                                   verb::barrier,    verb::scan,      verb::send_recv};

// n ranks make calls of `v`; at its third call the victim ends its process in the way of `end`.
template <class End>
void end_one(verb v, int n, int victim, End&& end, stopwatch& watch, int expected_status, const char* what) {
    INFO(what << ", " << verb_names[static_cast<int>(v)] << ", rank " << victim << " of " << n);
    shared_page<report> page;
    processes all;
    const std::string job = new_job();
    for (int r = 0; r < n; ++r)
        all.start(r, [&, r] {
            static collx::counted_ptr<collx::job> home; // as in a program: exit() destroys static objects
            home = join(job, r, n);
            collx::communicator world(home);
            caller calls(world, 1000);
            calls.call(v, 1);
            if (r == victim) {
                calls.call(v, 1);
                ::signal(SIGABRT, SIG_DFL); // otherwise Catch2 would report it
                page->struck_ns.store(collx::now_ns());
                end();
            }
            until_error(*page, r, [&](int salt) { calls.call(v, salt); });
            return 0;
        });
    all.wait();
    CHECK(all[victim].exit_code == expected_status);
    check_survivors(all, *page, n, victim, errc::peer_failed, watch);
}

void fails() { throw std::runtime_error("of the program"); }

// The rank that ends the communicator has not failed itself: all ranks, including it, get `aborted` that names it.
struct aborter {
    collx::communicator* world;
    report* page;
    unsigned after_us;
    static void* run(void* self) {
        auto& a = *static_cast<aborter*>(self);
        ::usleep(a.after_us);
        a.page->struck_ns.store(collx::now_ns());
        a.world->abort();
        return nullptr;
    }
};

} // namespace

TEST_CASE("a rank that ends without leaving its communicator is named, however it ends") {
    stopwatch watch{"ended by exit, abort(), exception: error after"};
    for (const verb v : {verb::all_reduce, verb::barrier, verb::send_recv}) {
        end_one(
            v, 3, 1, [] { std::exit(0); }, watch, 0, "exit(0)");
        end_one(
            v, 4, 2, [] { ::_exit(3); }, watch, 3, "_exit(3)");
        end_one(
            v, 3, 0, [] { std::abort(); }, watch, 128 + SIGABRT, "abort()");
        end_one(
            v, 4, 3, []() noexcept { fails(); }, watch, 128 + SIGABRT, "uncaught exception");
    }
}

TEST_CASE("an exception that unwinds the rank's communicator while others need it names the rank") {
    stopwatch watch{"left while needed: error after"};
    for (const verb v : {verb::all_reduce, verb::barrier}) {
        shared_page<report> page;
        processes all;
        const std::string job = new_job();
        for (int r = 0; r < 3; ++r)
            all.start(r, [&, r] {
                collx::communicator world(join(job, r, 3));
                caller calls(world, 1000);
                calls.call(v, 1);
                if (r == 1) {
                    calls.call(v, 1); // it ends when the others have left the first call, which they do not guard
                    page->struck_ns.store(collx::now_ns());
                    throw std::runtime_error("of the program");
                }
                until_error(*page, r, [&](int salt) { calls.call(v, salt); });
                return 0;
            });
        all.wait();
        CHECK(all[1].says("of the program"));
        check_survivors(all, *page, 3, 1, errc::peer_failed, watch);
    }
}

TEST_CASE("a rank that stops for longer than the time-out is named") {
    stopwatch watch{"stopped, time-out 6 s: error after"};
    struct job_with_victim {
        verb v;
        int n, victim;
        std::size_t part;
        shared_page<report> page;
        processes all;
        std::string job = new_job();
        job_with_victim(verb what, int ranks, int who, std::size_t elems)
            : v(what), n(ranks), victim(who), part(elems) {}
    };
    // Small buffers, and large ones over rings, where most ranks wait for a rank that waits itself. The jobs start
    // one after the other and wait at the same time, so that their limits can be long: a rank that is not scheduled
    // for a quarter of its limit may be blamed instead.
    std::deque<job_with_victim> jobs;
    const auto limit = heard_within(std::chrono::milliseconds(6000));
    for (const int n : {3, 5})
        for (const verb v : stopping_verbs) {
            auto& j = jobs.emplace_back(v, n, (static_cast<int>(v) + n) % n, n == 3 ? std::size_t{1000} : 200'000);
            for (int r = 0; r < n; ++r)
                j.all.start(r, [&, r] {
                    collx::communicator world(join(j.job, r, n));
                    caller calls(world, j.part);
                    calls.call(v, 1);
                    collx::barrier(world);
                    world.set_timeout(limit);
                    j.page->ready.fetch_add(1);
                    until_error(*j.page, r, [&](int salt) { calls.call(v, salt); });
                    return 0;
                });
            wait_until(j.page->ready, n);
            ::usleep(5'000);
            j.page->struck_ns.store(collx::now_ns());
            ::kill(j.all.pid(j.victim), SIGSTOP);
        }
    for (auto& j : jobs) {
        INFO(verb_names[static_cast<int>(j.v)] << ", rank " << j.victim << " of " << j.n);
        const auto have_ended = [&] {
            int ended = 0;
            for (int r = 0; r < j.n; ++r) ended += r != j.victim && j.page->ranks[r].ended_ns != 0;
            return ended == j.n - 1;
        };
        for (int i = 0; i < 30'000 && !have_ended(); ++i) ::usleep(1000);
        ::kill(j.all.pid(j.victim), SIGCONT);
        j.all.wait();
        CHECK(j.page->ranks[j.victim].code == static_cast<int>(errc::timeout)); // it gets the error when it continues
        check_survivors(j.all, *j.page, j.n, j.victim, errc::timeout, watch);
        for (int r = 0; r < j.n; ++r)
            if (r != j.victim) CHECK(j.page->ranks[r].ended_ns - j.page->struck_ns.load() > 4'000 * ms);
    }
}

TEST_CASE("a pause shorter than the time-out is no failure") {
    for (const verb v : stopping_verbs) {
        INFO(verb_names[static_cast<int>(v)]);
        constexpr int n = 3;
        shared_page<report> page;
        processes all;
        const std::string job = new_job();
        for (int r = 0; r < n; ++r)
            all.start(r, [&, r] {
                collx::communicator world(join(job, r, n));
                caller calls(world, 1000);
                calls.call(v, 1);
                page->ready.fetch_add(1);
                int go = 1, salt = 1;
                for (; go != 0; ++salt) { // rank 0 ends the loop
                    calls.call(v, salt);
                    go = page->struck_ns.load() == 0;
                    collx::broadcast(world, collx::value(go));
                }
                calls.call(v, salt);
                return 0;
            });
        wait_until(page->ready, n);
        for (int i = 0; i < 3; ++i) {
            ::kill(all.pid(i), SIGSTOP);
            ::usleep(100'000);
            ::kill(all.pid(i), SIGCONT);
            ::usleep(5'000);
        }
        page->struck_ns.store(collx::now_ns());
        all.wait();
        for (int r = 0; r < n; ++r) {
            INFO(all[r].what);
            CHECK(all[r].is_ok());
        }
    }
}

TEST_CASE("sixteen ranks on few cores, mixed calls: no rank is taken for dead") {
    constexpr int n = 16;
    processes all;
    const std::string job = new_job();
    const std::int64_t until = collx::now_ns() + 5'000 * ms;
    shared_page<report> page;
    for (int r = 0; r < n; ++r)
        all.start(r, [&, r] {
            collx::communicator world(join(job, r, n));
            caller small(world, 3), large(world, 5000);
            int go = 1;
            for (int salt = 0; go != 0; ++salt) {
                const auto v = static_cast<verb>(salt % static_cast<int>(verb::count));
                (salt % 4 == 0 ? large : small).call(v, salt);
                ++page->ranks[r].calls;
                go = collx::now_ns() < until || page->ranks[0].calls <= 20; // also where starting took most of it
                collx::broadcast(world, collx::value(go));
            }
            return 0;
        });
    all.wait(60'000);
    for (int r = 0; r < n; ++r) {
        INFO("rank " << r << ": " << all[r].what);
        CHECK(all[r].is_ok());
    }
    CHECK(page->ranks[0].calls > 20);
    std::printf("16 ranks: %ld calls in 5 s\n", page->ranks[0].calls);
}

TEST_CASE("abort ends the calls of all ranks soon, from another thread, small calls and large") {
    for (const std::size_t part : {std::size_t{10}, std::size_t{1} << 21}) {
        stopwatch watch{part == 10 ? "abort() during small calls: error after"
                                   : "abort() during large calls: error after"};
        for (const verb v : {verb::all_reduce, verb::broadcast, verb::all_to_all, verb::send_recv}) {
            constexpr int n = 3;
            INFO(verb_names[static_cast<int>(v)] << ", parts of " << part);
            shared_page<report> page;
            processes all;
            const std::string job = new_job();
            for (int r = 0; r < n; ++r)
                all.start(r, [&, r] {
                    collx::communicator world(join(job, r, n));
                    caller calls(world, part);
                    calls.call(v, 1);
                    leave_together(*page, n);
                    pthread_t other{};
                    aborter a{&world, &*page, 30'000};
                    if (r == 1) ::pthread_create(&other, nullptr, &aborter::run, &a);
                    until_error(*page, r, [&](int salt) { calls.call(v, salt); });
                    if (r == 1) ::pthread_join(other, nullptr);
                    return 0;
                });
            all.wait();
            for (int r = 0; r < n; ++r) {
                const auto& s = page->ranks[r];
                INFO("rank " << r << ", error " << s.code << " about " << s.peer << "; " << all[r].what);
                CHECK(all[r].is_ok());
                CHECK(s.code == static_cast<int>(errc::aborted));
                CHECK(s.peer == 1);
                CHECK(s.second_code == static_cast<int>(errc::aborted));
                const std::int64_t took = s.ended_ns - page->struck_ns.load();
                CHECK(took < collx_test::patient(15'000 * ms));
                watch.add(took);
            }
        }
    }
}

TEST_CASE("an abort while no other rank is in a call is seen by their next one") {
    constexpr int n = 3;
    shared_page<report> page;
    processes all;
    const std::string job = new_job();
    for (int r = 0; r < n; ++r)
        all.start(r, [&, r] {
            collx::communicator world(join(job, r, n)), other = world.split(0);
            if (r == 2) {
                world.abort();
                world.abort();
                page->ready.store(1);
            }
            wait_until(page->ready, 1);
            until_error(*page, r, [&](int) { collx::barrier(world); });
            caller(other, 100).call(verb::all_reduce, 1); // another communicator is not affected
            return 0;
        });
    all.wait();
    for (int r = 0; r < n; ++r) {
        INFO(all[r].what);
        CHECK(all[r].is_ok());
        CHECK(page->ranks[r].code == static_cast<int>(errc::aborted));
        CHECK(page->ranks[r].calls == 0);
        CHECK(page->ranks[r].peer == 2);
    }
}

TEST_CASE("a storm of signals changes nothing") {
    constexpr int n = 3;
    processes all;
    const std::string job = new_job();
    shared_page<report> page;
    for (int r = 0; r < n; ++r)
        all.start(r, [&, r] {
            static std::atomic<int>* signals;
            signals = &page->ready;
            struct sigaction act {};
            act.sa_handler = [](int) { signals->fetch_add(1); };
            ::sigaction(SIGALRM, &act, nullptr); // without SA_RESTART
            const itimerval every{{0, 1000}, {0, 1000}};
            ::setitimer(ITIMER_REAL, &every, nullptr);
            collx::communicator world(join(job, r, n));
            caller small(world, 10), large(world, 200'000);
            for (int salt = 0; salt < 10 * static_cast<int>(verb::count); ++salt)
                (salt % 5 == 0 ? large : small).call(static_cast<verb>(salt % static_cast<int>(verb::count)), salt);
            for (int i = 0; i < 20; ++i) (void)world.split(r % 2);
            return 0;
        });
    all.wait(30'000);
    for (int r = 0; r < n; ++r) {
        INFO(all[r].what);
        CHECK(all[r].is_ok());
    }
    CHECK(page->ready.load() > 50);
}
