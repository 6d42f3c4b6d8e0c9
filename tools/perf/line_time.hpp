// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a cache line takes from one core to another: two sides hand a counter to and fro. In a virtual machine it tells
// whether the cores are near or far just now (bench/README.md). One rule for `limits --probe`, which looks around a
// launch, and for the harness, which looks at each point. Knows no rank and no barrier.
#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/stats.hpp"

namespace collx::tools::perf {

inline std::int64_t monotonic_ns() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// What is said of several measured times: the lower quartile, because others may be running. NaN when there are none.
inline double line_time(std::vector<double> ns) {
    if (ns.empty()) return std::numeric_limits<double>::quiet_NaN();
    std::sort(ns.begin(), ns.end());
    return percentile_of_sorted(ns, 0.25);
}

/// Two sides, one of which leads. The words may lie in one line, or each in its own; both begin as zero.
struct line_bounce {
    std::atomic<std::uint32_t>& ping; // written by who leads
    std::atomic<std::uint32_t>& pong; // written by who follows
    std::uint32_t trip = 0;

    /// So many round trips. `rest` is called between two looks at a word; once it says false this ends, with false, and
    /// is not called again.
    template <class Rest>
    bool run(bool leads, int trips, Rest&& rest) {
        for (int k = 0; k < trips; ++k) {
            ++trip;
            if (!leads && !until(ping, rest)) return false;
            (leads ? ping : pong).store(trip, std::memory_order_release);
            if (leads && !until(pong, rest)) return false;
        }
        return true;
    }

private:
    template <class Rest>
    bool until(const std::atomic<std::uint32_t>& word, Rest& rest) const {
        while (word.load(std::memory_order_acquire) != trip)
            if (!rest()) return false;
        return true;
    }
};

/// One look, in memory that both sides see: lead() and follow() run at the same time, each on a core of its own.
class line_look {
public:
    /// Before either comes.
    void begin() {
        for (auto* word : {&ping_, &pong_, &over_}) word->store(0, std::memory_order_relaxed);
    }
    /// ns of a line one way. NaN when the other did not answer to the end before `limit_ns` on the clock; two that have
    /// to wait for each other's core do not within milliseconds.
    double lead(std::int64_t limit_ns) {
        line_bounce bounce{ping_, pong_};
        std::vector<double> ns;
        bool good = true;
        for (int r = 0; good && r < repetitions; ++r) {
            const std::int64_t start = monotonic_ns();
            good = bounce.run(true, trips, waiting{limit_ns, over_});
            if (r > 0) ns.push_back(static_cast<double>(monotonic_ns() - start) / trips / 2);
        }
        over_.store(1, std::memory_order_release);
        return good ? line_time(ns) : std::numeric_limits<double>::quiet_NaN();
    }
    /// Until the trips are made, the leader waits no longer, or `limit_ns`.
    void follow(std::int64_t limit_ns) {
        line_bounce{ping_, pong_}.run(false, repetitions * trips, waiting{limit_ns, over_});
    }

private:
    static constexpr int repetitions = 9, trips = 64; // the first is not counted

    // The clock, and whether the other has given up, only now and then.
    struct waiting {
        std::int64_t limit_ns;
        const std::atomic<std::uint32_t>& over;
        int looks = 0;
        bool operator()() {
            if (++looks % 1024 != 0) return true;
            return over.load(std::memory_order_acquire) == 0 && monotonic_ns() < limit_ns;
        }
    };

    alignas(64) std::atomic<std::uint32_t> ping_; // written by lead
    std::atomic<std::uint32_t> pong_;             // written by follow
    alignas(64) std::atomic<std::uint32_t> over_; // written by lead: it waits no longer
};

} // namespace collx::tools::perf
