// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Limits of tests are for hangs, and are written in seconds of a machine that does nothing else. On a busy machine the
// same work takes longer: what waits for success, or says how soon something must have happened, is stretched by as
// much.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>

namespace collx_test {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool is_under_thread_sanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool is_under_thread_sanitizer = true;
#else
inline constexpr bool is_under_thread_sanitizer = false;
#endif
#else
inline constexpr bool is_under_thread_sanitizer = false;
#endif

// How many threads of the machine want a core now, this one among them; 1 where the kernel does not say.
inline int runnable_threads() {
    int running = 1;
    if (std::FILE* file = std::fopen("/proc/loadavg", "re")) {
        if (std::fscanf(file, "%*f %*f %*f %d", &running) != 1) running = 1;
        std::fclose(file);
    }
    return std::max(running, 1);
}
// The same, as a mean over about the last minute.
inline double mean_runnable_threads() {
    double mean = 1;
    if (std::FILE* file = std::fopen("/proc/loadavg", "re")) {
        if (std::fscanf(file, "%lf", &mean) != 1) mean = 1;
        std::fclose(file);
    }
    return mean;
}
inline int cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

// How often longer a program waits for cores than on a machine of its own: from 1, at most 50. The mean is in it
// because one look may fall into a lull.
inline double slowness() {
    return std::clamp(std::max<double>(runnable_threads(), mean_runnable_threads()) / cores(), 1.0, 50.0);
}

// Not for a wait that must fail: that would only take longer.
template <class Rep, class Period>
std::chrono::nanoseconds patient(std::chrono::duration<Rep, Period> on_a_quiet_machine) {
    using std::chrono::nanoseconds;
    return nanoseconds(
        static_cast<std::int64_t>(static_cast<double>(nanoseconds(on_a_quiet_machine).count()) * slowness()));
}
inline std::int64_t patient(std::int64_t ns) { return patient(std::chrono::nanoseconds(ns)).count(); }
// For a wait that must run into its deadline, while threads that wait like it must get a core often enough to say so:
// longer where four threads and more want each core.
inline std::chrono::milliseconds heard_within(std::chrono::milliseconds limit) {
    return std::chrono::milliseconds(
        static_cast<std::int64_t>(static_cast<double>(limit.count()) * std::clamp(slowness() / 4, 1.0, 5.0)));
}
inline int patient_s(int seconds) { return static_cast<int>(seconds * slowness()); }

} // namespace collx_test
