// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// SIGKILL of one rank: in every collective, idle, before a call, inside a large call and at random times. All other
// ranks soon get peer_failed with the dead rank's number, whichever rank they waited for, and no call succeeds with
// wrong data.
// collx-test: serial timeout=300
#include <sys/time.h>

#include <random>

#include <collx/comm/progress.hpp>

#include "faults/support.hpp"

using namespace collx_test;

namespace {

enum class moment { idle, start, middle, any };
constexpr const char* moment_names[] = {"idle", "start", "middle", "any"};

report* page_of_handler = nullptr;
void die(int) {
    page_of_handler->struck_ns.store(collx::now_ns());
    ::kill(::getpid(), SIGKILL);
}
void die_after(report& page, std::int64_t ns) {
    page_of_handler = &page;
    ::signal(SIGALRM, die);
    const itimerval once{{0, 0}, {ns / 1'000'000'000, ns % 1'000'000'000 / 1000 + 1}};
    ::setitimer(ITIMER_REAL, &once, nullptr);
}

struct cell {
    verb what;
    moment when;
    int n, victim;
    double fraction; // the moment within the call, or within 20 ms
};

// 4 MiB and more per rank: many pieces whatever the algorithm.
std::size_t part_elems(const cell& c) {
    return c.when == moment::middle ? (std::size_t{1} << 20) / static_cast<std::size_t>(c.n)
           : c.when == moment::any  ? 2000
                                    : 10;
}

int run_rank(const cell& c, const std::string& job, int r, report& page) {
    collx::communicator world(join(job, r, c.n));
    caller calls(world, part_elems(c));
    calls.call(c.what, 1);
    const std::int64_t begin = collx::now_ns();
    calls.call(c.what, 2);
    const std::int64_t one_call_ns = collx::now_ns() - begin;
    leave_together(page, c.n);
    if (r == c.victim) {
        if (c.when == moment::idle) return ::pause(); // the test kills this rank
        if (c.when == moment::middle)
            die_after(page, static_cast<std::int64_t>(c.fraction * static_cast<double>(one_call_ns)));
        if (c.when == moment::any) die_after(page, static_cast<std::int64_t>(c.fraction * 20e6));
        for (int salt = 1;; ++salt) {
            if (c.when == moment::start && salt == 3) {
                die_after(page, 0);
                ::pause();
            }
            calls.call(c.what, salt);
        }
    }
    if (c.when == moment::idle)
        while (page.struck_ns.load() == 0) ::usleep(200);
    until_error(page, r, [&](int salt) { calls.call(c.what, salt); });
    return 0;
}

void run_cell(const cell& c, stopwatch& watch) {
    INFO(verb_names[static_cast<int>(c.what)] << ", " << moment_names[static_cast<int>(c.when)] << ", rank " << c.victim
                                              << " of " << c.n << ", fraction " << c.fraction);
    shared_page<report> page;
    processes all;
    const std::string job = new_job();
    for (int r = 0; r < c.n; ++r) all.start(r, [&, r] { return run_rank(c, job, r, *page); });
    if (c.when == moment::idle) {
        wait_until(page->ready, c.n);
        ::kill(all.pid(c.victim), SIGKILL);
        page->struck_ns.store(collx::now_ns());
    }
    all.wait();
    REQUIRE(all[c.victim].exit_code == 128 + SIGKILL);
    check_survivors(all, *page, c.n, c.victim, collx::errc::peer_failed, watch);
}

// Runs all verbs at one moment; the number of ranks and the victim change from cell to cell.
void run_all(moment when, unsigned seed, const char* title) {
    stopwatch watch{title};
    std::mt19937 random(seed);
    for (int v = 0; v < static_cast<int>(verb::count); ++v) {
        const int n = 3 + static_cast<int>(random() % 2),
                  victim = static_cast<int>(random() % static_cast<unsigned>(n));
        run_cell({static_cast<verb>(v), when, n, victim, 0.05 + 0.9 * static_cast<double>(random() % 1000) / 1000},
                 watch);
    }
}

} // namespace

TEST_CASE("a rank that is killed while idle is named by all others") {
    run_all(moment::idle, 1, "killed idle: error after");
}
TEST_CASE("a rank that is killed before a call is named by all others") {
    run_all(moment::start, 2, "killed before a call: error after");
}
// The survivors sleep while their progress threads advance the calls; wait() names the dead rank.
TEST_CASE("a rank that is killed while progress threads are in its peers' calls is named by all others") {
    for (const double when_ms : {0.3, 3.0, 12.0}) {
        stopwatch watch{"killed beside progress threads: error after"};
        shared_page<report> page;
        processes all;
        const std::string job = new_job();
        const auto run_rank = [&](int r) {
            collx::communicator world(join(job, r, 3));
            (void)world.with(collx::progress::thread{});
            std::vector<int> x(1 << 20);
            leave_together(*page, 3);
            if (r == 1) die_after(*page, static_cast<std::int64_t>(when_ms * 1e6));
            until_error(*page, r, [&](int salt) {
                std::fill(x.begin(), x.end(), salt + r);
                auto sum = collx::async::all_reduce(world, x);
                ::usleep(2000);
                sum.wait();
                for (const int v : x)
                    if (v != 3 * salt + 3) throw wrong_data(r, "all_reduce");
            });
            return 0;
        };
        for (int r = 0; r < 3; ++r) all.start(r, [&, r] { return run_rank(r); });
        all.wait();
        REQUIRE(all[1].exit_code == 128 + SIGKILL);
        check_survivors(all, *page, 3, 1, collx::errc::peer_failed, watch);
    }
}
TEST_CASE("a rank that is killed in the middle of a large transfer is named by all others") {
    for (unsigned seed : {3u, 4u}) run_all(moment::middle, seed, "killed inside a call: error after");
}
TEST_CASE("a rank that is killed at any moment is named by all others") {
    for (unsigned seed : {5u, 6u, 7u}) run_all(moment::any, seed, "killed at a random moment: error after");
}
