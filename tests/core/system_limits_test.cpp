// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a process is short of, as its errors say it. How that travels to other ranks: job/circle_test.cpp.
#include <collx/core/system_limits.hpp>

#include <cerrno>

#include <catch2/catch.hpp>

using namespace collx::detail;

TEST_CASE("what a rank is short of is recognised by the remedy in its own error") {
    CHECK(shortage_in("no (raise the limit of open files (ulimit -n))") == shortage::open_files);
    CHECK(shortage_in(remedy_for_descriptor(EMFILE)) == shortage::open_files);
    CHECK(shortage_in(remedy_for_descriptor(ENFILE)) == shortage::system_files);
    CHECK(shortage_in(remedy_for_descriptor(ENOMEM)) == shortage::memory);
    CHECK(shortage_in(remedy_for_descriptor(EADDRNOTAVAIL)) == shortage::ports);
    CHECK(shortage_of_descriptor(EADDRNOTAVAIL) == shortage::ports);
    CHECK(shortage_in(remedy_for_mapping(EAGAIN)) == shortage::locked);
    CHECK(shortage_in(remedy_for_process(EAGAIN)) == shortage::threads);
    CHECK(shortage_in("raise COLLX_ARENA_BYTES") == shortage::arena);
    CHECK(shortage_in("raise another limit") == shortage::unknown);
}

TEST_CASE("an error that lists several limits does not say which of them it is") {
    CHECK(shortage_in("no (raise its limits (ulimit -n, ulimit -v))") == shortage::unknown);
    CHECK(shortage_in("no (raise its limits (ulimit -v, ulimit -n))") == shortage::unknown);
}
