// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The time limits of tests are for hangs, in seconds of an otherwise idle machine. On a busy machine the same work
// takes longer. These functions stretch a wait for success, or a limit on how soon something must happen, by the same
// factor.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>

#include "sanitizers.hpp"

namespace collx_test {

inline constexpr bool is_under_thread_sanitizer = COLLX_TEST_TSAN != 0;

// The number of threads of the machine that want a core now, this one included; 1 where the kernel does not tell.
inline int runnable_threads() {
    int running = 1;
    if (std::FILE* file = std::fopen("/proc/loadavg", "re")) {
        if (std::fscanf(file, "%*f %*f %*f %d", &running) != 1) running = 1;
        std::fclose(file);
    }
    return std::max(running, 1);
}
// The mean of that number over about the last minute.
inline double mean_runnable_threads() {
    double mean = 1;
    if (std::FILE* file = std::fopen("/proc/loadavg", "re")) {
        if (std::fscanf(file, "%lf", &mean) != 1) mean = 1;
        std::fclose(file);
    }
    return mean;
}
inline int cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

// By which factor a program runs longer than on an idle machine: 1 to 50. The mean is included because a single
// sample may fall into a quiet moment.
inline double slowness() {
    return std::clamp(std::max<double>(runnable_threads(), mean_runnable_threads()) / cores(), 1.0, 50.0);
}

// Not for a wait that must fail: a longer limit only makes the test slower.
template <class Rep, class Period>
std::chrono::nanoseconds patient(std::chrono::duration<Rep, Period> on_a_quiet_machine) {
    using std::chrono::nanoseconds;
    return nanoseconds(
        static_cast<std::int64_t>(static_cast<double>(nanoseconds(on_a_quiet_machine).count()) * slowness()));
}
inline std::int64_t patient(std::int64_t ns) { return patient(std::chrono::nanoseconds(ns)).count(); }
// For a wait that must reach its deadline while other waiting threads need cores to report theirs. The limit is
// longer if more than four threads want each core.
inline std::chrono::milliseconds heard_within(std::chrono::milliseconds limit) {
    return std::chrono::milliseconds(
        static_cast<std::int64_t>(static_cast<double>(limit.count()) * std::clamp(slowness() / 4, 1.0, 5.0)));
}
inline int patient_s(int seconds) { return static_cast<int>(seconds * slowness()); }

} // namespace collx_test
