// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether the time limit of a call that is made as several calls is for the whole.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "comm/support.hpp"
#include "support/computed.hpp"

namespace collx_test {

// call(w, input, options) is made by two ranks with 1000 ints. Rank 1 comes late to its first part, and reads its input
// for a later one only when rank 0 has given up. Rank 0 must not begin its limit anew for that part.
template <class Call>
void expect_one_limit(bool is_checked, Call&& call) {
    const auto limit = patient(std::chrono::milliseconds(800));
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
            return EXPECT(has_thrown);
        }
        const auto begun = std::chrono::steady_clock::now();
        const std::vector<int> mine(1000, 1);
        (void)thrown<collx::timed_out>(w, [&] { call(w, mine, collx::call_options{.timeout = limit}); });
        EXPECT(std::chrono::steady_clock::now() - begun < limit * 17 / 10);
        has_thrown = true;
    });
}

} // namespace collx_test
