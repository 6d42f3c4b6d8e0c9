// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: procs=4 timeout=300 sanitize=no
//
// Many live communicators of processes with default settings, all of them used; a thousand by night
// (many_communicators_processes_nightly_test.cpp).
#include "comm/support.hpp"

#include <chrono>
#include <cstdio>
#include <vector>

#ifndef COLLX_TEST_MADE
#define COLLX_TEST_MADE 200
#endif

TEST_CASE("many communicators of processes have room, and each can be used") {
    collx::communicator w;
    constexpr int made = COLLX_TEST_MADE;
    std::vector<collx::communicator> all;
    all.reserve(made);
    collx::barrier(w);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < made; ++i) all.push_back(i % 2 == 0 ? w.split(0, -w.rank()) : w.dup());
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    int right = 0;
    for (int turn = 0; turn < 2; ++turn)
        for (auto& c : all) {
            int x = c.rank();
            collx::all_reduce(c, collx::value(x));
            right += x == c.size() * (c.size() - 1) / 2 ? 1 : 0;
        }
    CHECK(right == 2 * made);
    const std::size_t arena = w.membership()->memory->bytes();
    std::size_t used = 0;
    for (auto& c : all) used += c.internals().net.arena_bytes();
    CHECK(used / made * 1000 < arena);
    if (w.rank() == 0)
        std::printf("%d processes: %.0f us to make one, %.2f MiB of the arena each when used, of %.0f GiB in all\n",
                    w.size(), took.count() / made, static_cast<double>(used) / made / (1 << 20),
                    static_cast<double>(arena) / (1 << 30));
    collx::barrier(w);
}
