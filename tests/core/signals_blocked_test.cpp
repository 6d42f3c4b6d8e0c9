// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/core/signals_blocked.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
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
    ::sigemptyset(&one);
    ::sigaddset(&one, SIGUSR2);
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
    CHECK(blocks(SIGUSR2)); // unchanged
}

TEST_CASE("a call that ends with EPIPE raises no signal where SIGPIPE is blocked, and one afterwards does again") {
    static int raised = 0;
    ::signal(SIGPIPE, [](int) { ++raised; });
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    ::close(ends[1]);
    {
        const collx::detail::sigpipe_blocked here;
        CHECK(blocks(SIGPIPE));
        CHECK(::write(ends[0], "x", 1) == -1);
    }
    CHECK(errno == EPIPE); // kept from the call
    CHECK(raised == 0);
    CHECK_FALSE(blocks(SIGPIPE));
    CHECK(::write(ends[0], "x", 1) == -1);
    CHECK(raised == 1);

    sigset_t pipe, waiting;
    ::sigemptyset(&pipe);
    ::sigaddset(&pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    {
        const collx::detail::sigpipe_blocked here;
        CHECK(::write(ends[0], "x", 1) == -1);
    }
    CHECK(blocks(SIGPIPE)); // unchanged, and no signal is pending that the program has not caused
    ::sigpending(&waiting);
    CHECK(::sigismember(&waiting, SIGPIPE) == 0);
    ::pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
    ::close(ends[0]);
    CHECK(raised == 1);
}

TEST_CASE("a call that raises SIGPIPE and reports bytes all the same ends no program") {
    static int raised = 0;
    raised = 0;
    ::signal(SIGPIPE, [](int) { ++raised; });
    {
        const collx::detail::sigpipe_blocked here;
        errno = 0;
        ::pthread_kill(::pthread_self(), SIGPIPE); // as splice() does between two pages
    }
    CHECK(errno == 0);
    CHECK(raised == 0);
}

TEST_CASE("a SIGPIPE that waits for the program already goes on waiting") {
    static int raised = 0;
    raised = 0;
    ::signal(SIGPIPE, [](int) { ++raised; });
    sigset_t pipe;
    ::sigemptyset(&pipe);
    ::sigaddset(&pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    ::pthread_kill(::pthread_self(), SIGPIPE);
    { const collx::detail::sigpipe_blocked here; }
    CHECK(raised == 0);
    ::pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
    CHECK(raised == 1);
}
