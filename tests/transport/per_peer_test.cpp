// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=no
//
// Lists of transports choose while compiling; tests/comm/run_threads_test.cpp and tests/faults/environment_test.cpp run
// what they choose.
#include <collx/transport/per_peer.hpp>

#include <string>

#include <catch2/catch.hpp>

namespace {

using collx::per_peer, collx::shm, collx::sockets, collx::transports;
constexpr collx::relation here{.share_memory = true}, elsewhere{};

using both = per_peer<shm, sockets>;
static_assert(both::choose(here) == 0 && both::choose(elsewhere) == 1);
static_assert(per_peer<shm>::choose(here) == 0 && per_peer<shm>::choose(elsewhere) == -1);
static_assert(per_peer<sockets>::choose(here) == 0 && per_peer<sockets>::choose(elsewhere) == 0);
static_assert(transports(both(shm{}, sockets{})) == transports{});

} // namespace

TEST_CASE("a list says what it lets ranks use") {
    const transports all = per_peer{shm{}, sockets{}}, near = per_peer{shm{}}, apart = per_peer{sockets{}};
    CHECK((!(all == near) && !(all == apart) && !(near == apart)));
    CHECK((all.use_memory && all.cross_hosts && std::string(all.text) == "shm,sockets"));
    CHECK((near.use_memory && !near.cross_hosts && std::string(near.text) == "shm"));
    CHECK((!apart.use_memory && apart.cross_hosts && std::string(apart.text) == "sockets"));
}
