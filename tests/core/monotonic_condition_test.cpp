// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A wait ends with a signal or at its deadline, which is of the clock of now_ns().
#include <collx/core/locked_mutex.hpp>
#include <collx/core/monotonic_condition.hpp>

#include <thread>

#include <catch2/catch.hpp>

using namespace collx::detail;

TEST_CASE("a wait for a condition ends with a signal, or at its deadline") {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    monotonic_condition changed;
    int turn = 0;
    std::thread other([&] {
        const locked_mutex here(mutex);
        while (turn != 1) changed.wait(mutex);
        turn = 2;
        changed.broadcast();
    });
    {
        const locked_mutex here(mutex);
        // Without a signal. Most waits take their whole time: on another clock they would end at once, or never.
        int waits = 0;
        for (const auto until = collx::deadline::in_ns(50'000'000); !until.passed(); ++waits)
            changed.wait(mutex, until);
        CHECK(waits < 10);
        turn = 1;
        changed.signal();
        while (turn != 2) changed.wait(mutex, collx::deadline::in_ns(60'000'000'000));
    }
    other.join();
    CHECK(turn == 2);
}
