// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether the time limit of a call that is made as several calls is for the whole.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "comm/support.hpp"
#include "support/computed.hpp"

namespace collx_test {

// call(w, input, options) is made by two ranks with 1000 ints. Rank 1 comes late to its first part, and reads its input
// for a later one only when rank 0 has given up. Returns how long rank 0 has waited.
template <class Call>
std::chrono::nanoseconds time_of_two_parts(bool is_checked, std::chrono::nanoseconds limit, Call&& call) {
    std::chrono::nanoseconds took{};
    std::atomic<bool> has_thrown{false};
    on_ranks(2, [&](collx::communicator& w) {
        w.set_checked(is_checked);
        if (w.rank() == 1) {
            std::this_thread::sleep_for(limit * 9 / 10);
            const auto slow = computed(1000, [&](int i) {
                until([&] { return has_thrown.load(); });
                return i;
            });
            (void)thrown<collx::error>(w, [&] {
                call(w, slow, collx::call_options{});
                collx::barrier(w);
            });
            return until([&] { return has_thrown.load(); }); // a call that finds the time over returns at once
        }
        const auto begun = std::chrono::steady_clock::now();
        const std::vector<int> mine(1000, 1);
        (void)thrown<collx::timed_out>(w, [&] { call(w, mine, collx::call_options{.timeout = limit}); });
        took = std::chrono::steady_clock::now() - begun;
        has_thrown = true;
    });
    return took;
}

// Rank 0 must not begin its limit anew for the second part. It may be late because it had no core, but not each time.
template <class Call>
void expect_one_limit(bool is_checked, Call&& call) {
    const auto limit = heard_within(std::chrono::milliseconds(600));
    auto least = std::chrono::nanoseconds::max();
    for (int tries = 0; tries < 4 && least >= limit * 17 / 10; ++tries)
        least = std::min(least, time_of_two_parts(is_checked, limit, call));
    CHECK(least < limit * 17 / 10);
}

} // namespace collx_test
