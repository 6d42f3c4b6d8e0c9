// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a rank's listener keeps for communicators that do not take it. (Greetings: greeting_test.cpp.)
#include "comm/support.hpp"
#include "support/open_files.hpp"
#include "transport/connections.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

using namespace collx_test;

TEST_CASE("connections that gave way to the other rank's are closed with their communicators") {
    std::atomic<int> most{0};
    std::atomic<int> before{0};
    on_hosts(3, {1}, [&](collx::communicator& w) {
        w.set_checked(false);
        for (int round = 0; round < 60; ++round) {
            collx::barrier(w);
            if (w.rank() == 0 && round == 4) before = open_files();
            if (w.rank() == 0 && round > 4) most = std::max(most.load(), open_files() - before.load());
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

TEST_CASE("connections that lower ranks have given up are closed while their communicator is used") {
    using namespace collx;
    socket_address at[2] = {loopback(false), loopback(false)};
    descriptor listeners[2] = {socket_hub::listen_on(at[0]), socket_hub::listen_on(at[1])};
    const detail::growing_array<socket_address> peers(at, at + 2);
    socket_hub lower(std::move(listeners[0]), "job", peers, 0), higher(std::move(listeners[1]), "job", peers, 0);
    const auto look = [&] { (void)higher.look(8, [](auto&&...) {}); };
    const int before = open_files();
    for (int i = 0; i < 60; ++i) {
        detail::connecting to_higher;
        CHECK(to_higher.begin(lower, 1, lower.hello(7, 0, 1, {})) == detail::attempt::done);
        look();
        const descriptor given_up = to_higher.take(lower).socket;
        CHECK(given_up.is_open());
    }
    until([&] {
        look();
        return open_files() - before <= static_cast<int>(detail::few_strangers);
    });
    look();
    CHECK(open_files() > before); // a few may stay
}
