// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one clock of collx: monotonic nanoseconds. Deadlines, waits and measurements all read it, so that a jump of the
// wall clock cannot end a call.
#pragma once

#include <time.h>

#include <cstdint>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// Nanoseconds of the monotonic clock.
inline std::int64_t now_ns() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return std::int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

// A point in time up to which a whole sequence of waits may last.
struct deadline {
    std::int64_t at_ns = INT64_MAX;
    static deadline in_ns(std::int64_t ns) { return {ns >= INT64_MAX / 2 ? INT64_MAX : now_ns() + ns}; }
    bool passed() const { return at_ns != INT64_MAX && now_ns() >= at_ns; }
    std::int64_t left_ns() const { return at_ns == INT64_MAX ? INT64_MAX : at_ns - now_ns(); }
};

COLLX_END_NAMESPACE
