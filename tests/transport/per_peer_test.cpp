// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=no
//
// Lists of transports make their choices at compile time; tests/comm/run_threads_test.cpp and
// tests/faults/environment_test.cpp run the chosen transports.
#include <collx/transport/per_peer.hpp>

#include <string>

#include <catch2/catch.hpp>

namespace {

using collx::per_peer, collx::shm, collx::sockets, collx::transports, collx::verbs, collx::verbs_use;
constexpr collx::relation here{.share_memory = true}, elsewhere{}, by_device{.have_verbs = true},
    near_by_device{.share_memory = true, .have_verbs = true};

using both = per_peer<shm, sockets>;
static_assert(both::choose(here) == 0 && both::choose(elsewhere) == 1 && both::choose(by_device) == 1);
static_assert(per_peer<shm>::choose(here) == 0 && per_peer<shm>::choose(elsewhere) == -1);
static_assert(per_peer<sockets>::choose(here) == 0 && per_peer<sockets>::choose(elsewhere) == 0);
using all = per_peer<shm, verbs, sockets>;
static_assert(all::choose(near_by_device) == 0 && all::choose(by_device) == 1 && all::choose(elsewhere) == 2);
static_assert(per_peer<verbs>::choose(here) == -1 && per_peer<verbs>::choose(near_by_device) == 0);
static_assert(transports(all(shm{}, verbs{}, sockets{})) == transports{});

} // namespace

TEST_CASE("a list says what it lets ranks use") {
    const transports any = per_peer{shm{}, verbs{}, sockets{}}, plain = per_peer{shm{}, sockets{}},
                     near = per_peer{shm{}}, apart = per_peer{sockets{}}, rdma = per_peer{shm{}, verbs{}},
                     devices = per_peer{verbs{}, sockets{}};
    const transports* const lists[] = {&any, &plain, &near, &apart, &rdma, &devices};
    for (const transports* a : lists)
        for (const transports* b : lists) CHECK((*a == *b) == (a == b));
    CHECK((any.use_memory && any.cross_hosts && any.by_verbs == verbs_use::where_possible));
    CHECK(std::string(any.text) == "shm,verbs,sockets");
    CHECK((plain.use_memory && plain.cross_hosts && plain.by_verbs == verbs_use::never));
    CHECK(std::string(plain.text) == "shm,sockets");
    CHECK((near.use_memory && !near.cross_hosts && std::string(near.text) == "shm"));
    CHECK((!apart.use_memory && apart.cross_hosts && std::string(apart.text) == "sockets"));
    CHECK((rdma.use_memory && rdma.cross_hosts && rdma.by_verbs == verbs_use::always));
    CHECK(std::string(rdma.text) == "shm,verbs");
    CHECK((!devices.use_memory && devices.by_verbs == verbs_use::where_possible));
    CHECK(std::string(devices.text) == "verbs,sockets");
}
