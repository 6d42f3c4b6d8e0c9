// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Descriptors, and the lengths of pauses between attempts; nothing here sleeps.
#include <collx/core/descriptor.hpp>

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <set>
#include <vector>

#include <catch2/catch.hpp>

using collx::deadline;
using collx::detail::retry_pause;

namespace {

std::vector<std::int64_t> naps;
void note(std::int64_t ns) { naps.push_back(ns); }

std::vector<std::int64_t> naps_of(retry_pause pause, int attempts, const deadline& until) {
    naps.clear();
    for (int i = 0; i < attempts && pause.sleep(until, note); ++i) {
    }
    return naps;
}
constexpr std::int64_t us = 1000, ms = 1000 * us;

} // namespace

TEST_CASE("pauses double up to the longest, half as long to half as long again") {
    const auto seen = naps_of(retry_pause(20 * ms), 40, deadline());
    REQUIRE(seen.size() == 40);
    std::int64_t mean = 100 * us;
    for (std::size_t i = 0; i < seen.size(); ++i) {
        INFO("pause " << i << ": " << seen[i] << " ns, around " << mean);
        CHECK(seen[i] >= mean / 2);
        CHECK(seen[i] < mean / 2 * 3);
        if (mean < 20 * ms) mean *= 2;
    }
}

TEST_CASE("pauses differ from one another, and those of ranks that begin together soon do") {
    const auto one = naps_of(retry_pause(100 * us), 40, deadline()), // the pauses do not grow
        other = naps_of(retry_pause(100 * us), 40, deadline());
    CHECK(std::set(one.begin(), one.end()).size() > 35);
    CHECK(*std::max_element(one.begin(), one.end()) - *std::min_element(one.begin(), one.end()) > 50 * us);
    int same = 0;
    for (std::size_t i = 0; i < one.size(); ++i) same += one[i] == other[i];
    CHECK(same < 5);
}

TEST_CASE("no pause ends after the deadline, and after it there is none") {
    retry_pause pause(20 * ms);
    naps.clear();
    for (int i = 0; i < 20; ++i) REQUIRE(pause.sleep(deadline(), note));
    CHECK(naps.back() >= 10 * ms);
    for (const std::int64_t left : {9 * ms, 1 * ms}) { // less than the shortest pause
        const auto until = deadline::in_ns(left);
        naps.clear();
        if (!pause.sleep(until, note)) continue; // this thread was not scheduled for that long
        CHECK(naps.size() == 1);
        CHECK(naps[0] <= left);
    }
    naps.clear();
    CHECK_FALSE(pause.sleep(deadline{collx::now_ns() - 1}, note));
    CHECK_FALSE(pause.sleep(deadline::in_ns(0), note));
    CHECK(naps.empty());
}

TEST_CASE("a pause is slept") {
    retry_pause pause(20 * ms);
    std::int64_t begin = collx::now_ns();
    for (int i = 0; i < 4; ++i) CHECK(pause.sleep(deadline()));
    CHECK(collx::now_ns() - begin >= (100 + 200 + 400 + 800) * us / 2);
}

TEST_CASE("no descriptor of collx is a standard one, whatever the program was started with") {
    const collx::descriptor input(::fcntl(0, F_DUPFD_CLOEXEC, 10));
    REQUIRE(input.is_open());
    ::close(0);
    {
        const collx::descriptor d(::open("/dev/null", O_RDONLY));
        CHECK(d.get() > 2);
        CHECK((::fcntl(d.get(), F_GETFD) & FD_CLOEXEC) != 0);
        CHECK(::fcntl(0, F_GETFD) == -1);
    }
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit few{3, before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
    const collx::descriptor none(::open("/dev/null", O_RDONLY));
    const int reason = errno;
    ::setrlimit(RLIMIT_NOFILE, &before);
    CHECK_FALSE(none.is_open());
    CHECK(reason == EMFILE);
    CHECK(::fcntl(0, F_GETFD) == -1);
    ::dup2(input.get(), 0);
}
