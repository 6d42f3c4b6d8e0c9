// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/core/signals_blocked.hpp>

#include <thread>

#include <catch2/catch.hpp>

namespace {

bool blocks(int signal) {
    sigset_t now;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
    return ::sigismember(&now, signal) == 1;
}

} // namespace

TEST_CASE("a thread that is started while signals are blocked keeps them blocked, its starter does not") {
    sigset_t one;
    ::sigemptyset(&one), ::sigaddset(&one, SIGUSR2);
    ::pthread_sigmask(SIG_BLOCK, &one, nullptr);
    bool is_blocked = false;
    std::thread t;
    {
        const collx::detail::signals_blocked here;
        t = std::thread([&] { is_blocked = blocks(SIGUSR1) && blocks(SIGTERM) && blocks(SIGUSR2); });
    }
    t.join();
    CHECK(is_blocked);
    CHECK_FALSE(blocks(SIGUSR1));
    CHECK_FALSE(blocks(SIGTERM));
    CHECK(blocks(SIGUSR2)); // as it was
}
