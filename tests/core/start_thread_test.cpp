// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/core/start_thread.hpp>

#include <signal.h>

#include <string>

#include <catch2/catch.hpp>

namespace {

// Notes on its thread what a thread of the library must have.
class worker {
public:
    worker() : thread_(collx::detail::start_thread<&worker::run>(this, "collx-worker", "of this test", 3)) {}
    void join() { ::pthread_join(thread_, nullptr); }
    bool has_run = false, is_blocked = true;

private:
    void run() {
        sigset_t now;
        ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
        for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGPIPE})
            is_blocked = is_blocked && ::sigismember(&now, signal) == 1;
        has_run = true;
    }
    pthread_t thread_;
};

} // namespace

TEST_CASE("a thread of the library runs a member function, and no signal handler of the program") {
    worker w;
    w.join();
    CHECK(w.has_run);
    CHECK(w.is_blocked);
    sigset_t now;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
    CHECK(::sigismember(&now, SIGTERM) == 0);
}

TEST_CASE("a thread that cannot start is an error that names the thread, its rank and a remedy") {
    pthread_attr_t usual, huge;
    REQUIRE(::pthread_getattr_default_np(&usual) == 0);
    REQUIRE(::pthread_attr_init(&huge) == 0);
    REQUIRE(::pthread_attr_setstacksize(&huge, std::size_t{1} << 47) == 0); // more than there are addresses
    REQUIRE(::pthread_setattr_default_np(&huge) == 0);
    std::string text;
    int rank = -1;
    try {
        worker().join();
    } catch (const collx::error& e) {
        CHECK(e.code() == collx::errc::resource);
        text = e.what();
        rank = e.rank();
    }
    REQUIRE(::pthread_setattr_default_np(&usual) == 0);
    CHECK(rank == 3);
    CHECK(text.find("cannot start the thread of this test") != text.npos);
    CHECK(text.find("make stacks smaller") != text.npos);
    sigset_t now;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
    CHECK(::sigismember(&now, SIGTERM) == 0);
}
