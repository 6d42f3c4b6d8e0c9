// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The time of a cache line from one core to another: two sides pass a counter to and fro. In a virtual machine it shows
// whether the cores are near or far just now (bench/README.md). One rule for `limits --probe`, which measures around a
// launch, and for the harness, which measures at each point. Independent of ranks and barriers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include <collx/core/clock.hpp>

#include "support/stats.hpp"

namespace collx::tools::perf {

/// Summarizes measured times: the lower quartile, because other programs may be running. NaN if there are none.
inline double line_time(std::vector<double> ns) {
    if (ns.empty()) return std::numeric_limits<double>::quiet_NaN();
    std::sort(ns.begin(), ns.end());
    return percentile_of_sorted(ns, 0.25);
}

/// Two sides, one of which leads. The words may be in one line, or each in its own; both begin as zero.
struct line_bounce {
    std::atomic<std::uint32_t>& ping; // written by the side that leads
    std::atomic<std::uint32_t>& pong; // written by the side that follows
    std::uint32_t trip = 0;

    /// Makes `trips` round trips. Calls `rest` between two looks at a word. Once it returns false, run() returns false
    /// and does not call it again.
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

/// One measurement, in memory that both sides see: lead() and follow() run at the same time, each on its own core.
class line_look {
public:
    /// Called before either side begins.
    void begin() {
        for (auto* word : {&ping_, &pong_, &over_}) word->store(0, std::memory_order_relaxed);
    }
    /// Returns ns of a line one way, or NaN if the other side did not answer to the end before `limit_ns` on the clock.
    /// Two sides that have to wait for each other's core do not within milliseconds.
    double lead(std::int64_t limit_ns) {
        line_bounce bounce{ping_, pong_};
        std::vector<double> ns;
        bool good = true;
        for (int r = 0; good && r < repetitions; ++r) {
            const std::int64_t start = now_ns();
            good = bounce.run(true, trips, waiting{limit_ns, over_});
            if (r > 0) ns.push_back(static_cast<double>(now_ns() - start) / trips / 2);
        }
        over_.store(1, std::memory_order_release);
        return good ? line_time(ns) : std::numeric_limits<double>::quiet_NaN();
    }
    /// Returns when the trips are made, the leader gives up, or `limit_ns` has passed.
    void follow(std::int64_t limit_ns) {
        line_bounce{ping_, pong_}.run(false, repetitions * trips, waiting{limit_ns, over_});
    }

private:
    static constexpr int repetitions = 9, trips = 64; // the first repetition is not counted

    // Checks the clock, and whether the other side has given up, only now and then.
    struct waiting {
        std::int64_t limit_ns;
        const std::atomic<std::uint32_t>& over;
        int looks = 0;
        bool operator()() {
            if (++looks % 1024 != 0) return true;
            return over.load(std::memory_order_acquire) == 0 && now_ns() < limit_ns;
        }
    };

    alignas(64) std::atomic<std::uint32_t> ping_; // written by lead
    std::atomic<std::uint32_t> pong_;             // written by follow
    alignas(64) std::atomic<std::uint32_t> over_; // written by lead: it waits no longer
};

} // namespace collx::tools::perf
