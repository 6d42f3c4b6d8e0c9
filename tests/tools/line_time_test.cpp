// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The check of the cores during a measurement: which ranks take part, that no rank waits for long, and that a point's
// output shows the result. The time itself is not tested.
// collx-test: serial
#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "perf/csv.hpp"
#include "perf/harness.hpp"
#include "perf/sampling.hpp"
#include "support/patience.hpp"
#include "support/skip.hpp"

using collx::now_ns;
using namespace collx::tools::perf;

namespace {

std::vector<int> allowed_cores() {
    cpu_set_t set;
    ::sched_getaffinity(0, sizeof set, &set);
    std::vector<int> out;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &set)) out.push_back(cpu);
    return out;
}

void keep_to(int core) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ::sched_setaffinity(0, sizeof one, &one);
}

// Ranks as threads that see `cores` cores, each bound to its core in `on` (empty: not bound).
template <class Body>
void run_ranks(int ranks, int cores, const std::vector<int>& on, Body&& body) {
    void* memory = ::mmap(nullptr, harness::bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
            if (!on.empty()) keep_to(on[static_cast<std::size_t>(r)]);
            harness meeting(memory, r, ranks, cores);
            body(meeting);
        });
    for (auto& t : threads) t.join();
    ::munmap(memory, harness::bytes(ranks));
}

// The result of rank 0, and the number of other ranks that got a result (must be 0).
struct answers {
    double ns = std::numeric_limits<double>::quiet_NaN();
    std::atomic<int> others_told{0};
};
// Measures until there is a result, because other programs may use these cores, or until the limit.
void ask(harness& meeting, answers& out, std::int64_t most_ns = 20'000'000'000) {
    for (const auto begun = now_ns();;) {
        meeting.barrier();
        const double ns = meeting.line_ns([&] { meeting.barrier(); });
        if (meeting.rank() == 0) {
            out.ns = ns;
            meeting.plan(7) = std::isnan(ns) && now_ns() - begun < most_ns ? 0 : 1;
        } else if (!std::isnan(ns)) ++out.others_told;
        meeting.barrier();
        const bool done = meeting.plan(7) == 1;
        meeting.barrier();
        if (done) return;
    }
}

} // namespace

TEST_CASE("ranks on two cores learn how far apart these are") {
    const auto cores = allowed_cores();
    if (cores.size() < 2) return collx_test::skip("one core only");
    answers found;
    run_ranks(2, 2, {cores.front(), cores.back()}, [&](harness& meeting) { ask(meeting, found); });
    CHECK(found.ns > 0.5);
    CHECK(found.ns < 100'000);
    CHECK(found.others_told == 0);
}

TEST_CASE("who stands on rank 0's core is not asked") {
    const auto cores = allowed_cores();
    if (cores.size() < 2) return collx_test::skip("one core only");
    answers found;
    run_ranks(3, 3, {cores.front(), cores.front(), cores.back()}, [&](harness& meeting) { ask(meeting, found); });
    CHECK(found.ns > 0.5);
}

TEST_CASE("ranks that share cores are asked where they stand") {
    const auto cores = allowed_cores();
    if (cores.size() < 2) return collx_test::skip("one core only");
    answers found;
    run_ranks(4, 2, {cores.front(), cores.back(), cores.front(), cores.back()},
              [&](harness& meeting) { ask(meeting, found); });
    CHECK(found.ns > 0.5);
}

TEST_CASE("where all ranks have one core there is no answer") {
    const int core = allowed_cores().front();
    answers found;
    run_ranks(3, 1, {core, core, core}, [&](harness& meeting) { ask(meeting, found, 300'000'000); });
    CHECK(std::isnan(found.ns));
}

TEST_CASE("only ranks on cores of their own are looked at, four at most, so no look waits for rank 0's core") {
    const auto partners = [](std::vector<int> cores) { return harness::partners(cores); };
    CHECK(partners({3, 3, 3}).empty());
    CHECK(partners({3, 3, 1, 1, 0}) == std::vector{2, 4});
    CHECK(partners({0, 1, 2, 3, 4, 5}) == std::vector{1, 2, 3, 4});
}

TEST_CASE("no rank waits for one that does not answer") {
    line_look alone{}, left{};
    const auto soon = [] { return now_ns() + 2'000'000; };
    CHECK(std::isnan(alone.lead(soon())));
    alone.follow(now_ns() + 3'600'000'000'000); // rank 0 has given up, so this does not wait for an hour
    left.follow(soon());
    CHECK(std::isnan(left.lead(soon())));
    double ns = 0;
    for (int k = 0; k < 500 && !(ns > 0); ++k) {
        left.begin(); // the next one starts without state of the last
        std::thread other([&] { left.follow(now_ns() + 100'000'000); });
        ns = left.lead(now_ns() + 100'000'000);
        other.join();
    }
    if (allowed_cores().size() > 1) CHECK(ns > 0.5);
}

TEST_CASE("the time of a line is the lower quartile") {
    CHECK(line_time({400, 10, 30, 20, 900, 800, 700, 600}) == 20);
    CHECK(line_time({7}) == 7);
    CHECK(std::isnan(line_time({})));
}

TEST_CASE("each point has a look before it and one after it") {
    const auto cores = allowed_cores();
    if (cores.size() < 2) return collx_test::skip("one core only");
    timing found;
    run_ranks(2, 2, {cores.front(), cores.back()}, [&](harness& meeting) {
        sampler samples(meeting, {.budget_ms = 1, .iterations = 3, .warmups = 1}, [&] { meeting.barrier(); });
        for (const auto begun = now_ns();;) {
            const timing t = samples.measure([](int) {}, 1);
            if (meeting.rank() == 0) {
                found = t;
                const bool is_whole = !std::isnan(t.line_at_start_ns) && !std::isnan(t.line_at_end_ns);
                meeting.plan(7) = is_whole || now_ns() - begun > collx_test::patient(20'000'000'000) ? 1 : 0;
            }
            meeting.barrier();
            const bool done = meeting.plan(7) == 1;
            meeting.barrier();
            if (done) break;
        }
    });
    CHECK(found.line_at_start_ns > 0.5);
    CHECK(found.line_at_end_ns > 0.5);
}

TEST_CASE("a line of CSV says what was found, and nothing where nothing was") {
    timing t{.batch = 2, .samples = 7};
    t.us = collx::tools::summarize({1.0});
    t.line_at_start_ns = 26.84;
    const auto text = csv_text({operation::all_reduce, 8, 2, "shm", "collx", "default", false, t});
    CHECK(text.substr(text.find(",out,")) == ",out,2,7,1.000,1.000,26.8,\n");
    CHECK(csv_header().substr(csv_header().find("p25_us")) == "p25_us,line_at_start_ns,line_at_end_ns\n");
}
