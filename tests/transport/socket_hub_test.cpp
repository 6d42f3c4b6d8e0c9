// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a rank's listener keeps for communicators that do not take it. (Greetings: greeting_test.cpp.)
#include "comm/support.hpp"

#include <dirent.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

using namespace collx_test;

TEST_CASE("connections that gave way to the other rank's are closed with their communicators") {
    std::atomic<int> most{0};
    const auto files = [] {
        DIR* d = ::opendir("/proc/self/fd");
        int n = 0;
        while (::readdir(d) != nullptr) ++n;
        ::closedir(d);
        return n;
    };
    std::atomic<int> before{0};
    on_hosts(3, {1}, [&](collx::communicator& w) {
        w.set_checked(false);
        for (int round = 0; round < 60; ++round) {
            collx::barrier(w);
            if (w.rank() == 0 && round == 4) before = files();
            if (w.rank() == 0 && round > 4) most = std::max(most.load(), files() - before.load());
            auto d = w.dup();
            d.set_checked(false);
            int x = w.rank();
            if (w.rank() == 1) { // connects, while it waits
                collx::recv(d, collx::value(x), 2);
                EXPECT(x == 2);
            }
            if (w.rank() != 2) continue;
            std::this_thread::sleep_for(std::chrono::milliseconds(8));
            collx::send(d, collx::value(x), 1); // over a connection of its own
            EXPECT(x == 2);
        }
        EXPECT(true);
    });
    CHECK(most < 40); // of 55 that were left behind
}
