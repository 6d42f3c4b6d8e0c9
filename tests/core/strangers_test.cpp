// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How many connections a listener keeps that have not proved to be of this job, and for how long.
#include <collx/core/strangers.hpp>

#include <catch2/catch.hpp>

using namespace collx;

TEST_CASE("strangers get a quarter of the open files, at least 8 and at most 1024") {
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const auto with_files = [&](rlim_t files) {
        const rlimit l{files, before.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &l) == 0);
        const std::size_t n = detail::most_strangers();
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
        return n;
    };
    CHECK(with_files(20) == 8);
    CHECK(with_files(256) == 64);
    CHECK(with_files(1000) == 250);
    if (before.rlim_max >= 10'000) CHECK(with_files(10'000) == 1024);
}

TEST_CASE("few strangers have half a minute, one of many has two seconds") {
    CHECK(detail::stranger_limit_ns(1) == 30'000'000'000);
    CHECK(detail::stranger_limit_ns(16) == 30'000'000'000);
    CHECK(detail::stranger_limit_ns(17) == 2'000'000'000);
}
