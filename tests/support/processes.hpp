// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks as forked processes of a test, without exec. Each runs a function, reports the error that it threw through
// shared memory, and leaves with _exit(), so no destructor or test report of the parent runs twice. A child that does
// not end in time is killed and reported as killed.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include <collx/core/clock.hpp>
#include <collx/core/error.hpp>

#include "patience.hpp"

namespace collx_test {

// How one process ended.
struct outcome {
    static constexpr int killed_by_test = -1;
    int exit_code = killed_by_test; // 128 + signal when a signal ended it
    bool has_thrown = false;
    collx::errc code{};
    int peer = -1;
    std::int64_t took_ns = 0;
    char what[512] = {};

    bool is_ok() const { return exit_code == 0 && !has_thrown; }
    bool says(const char* text) const { return has_thrown && std::strstr(what, text) != nullptr; }
};

class processes {
public:
    static constexpr int most = 64;

    processes() {
        void* p = ::mmap(nullptr, sizeof(outcome) * most, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) std::abort();
        outcomes_ = static_cast<outcome*>(p);
        for (int i = 0; i < most; ++i) new (&outcomes_[i]) outcome;
    }
    processes(const processes&) = delete;
    ~processes() {
        wait(0);
        ::munmap(outcomes_, sizeof(outcome) * most);
    }

    // Process i runs f() and ends with 0, with 1 if f threw, or with what f returned.
    template <class F>
    pid_t start(int i, F&& f) {
        std::fflush(nullptr);
        const pid_t pid = ::fork();
        if (pid < 0) std::abort();
        if (pid > 0) return pids_[i] = pid;
        outcome& mine = outcomes_[i];
        const std::int64_t begin = collx::now_ns();
        int code = 1;
        try {
            code = f();
        } catch (const collx::error& e) {
            mine.has_thrown = true;
            mine.code = e.code();
            mine.peer = e.peer();
            std::snprintf(mine.what, sizeof mine.what, "%s", e.what());
        } catch (const std::exception& e) {
            mine.has_thrown = true;
            std::snprintf(mine.what, sizeof mine.what, "foreign: %s", e.what());
        }
        mine.took_ns = collx::now_ns() - begin;
        ::_exit(code);
    }

    // Waits for all; kills those that still run after `limit_ms`, which is a limit for hangs.
    void wait(int limit_ms = 45'000) {
        const std::int64_t until = collx::now_ns() + patient(std::int64_t{limit_ms} * 1'000'000);
        for (int i = 0; i < most; ++i) {
            while (pids_[i] > 0) {
                int status = 0;
                const bool is_late = collx::now_ns() > until;
                if (is_late) ::kill(pids_[i], SIGKILL);
                const pid_t ended = ::waitpid(pids_[i], &status, is_late ? 0 : WNOHANG);
                if (ended == pids_[i]) {
                    if (!is_late)
                        outcomes_[i].exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
                    pids_[i] = 0;
                } else if (ended < 0 && errno == ECHILD) {
                    pids_[i] = 0; // the test has already waited for it
                } else {
                    ::usleep(500);
                }
            }
        }
    }
    pid_t pid(int i) const { return pids_[i]; }
    const outcome& operator[](int i) const { return outcomes_[i]; }

private:
    outcome* outcomes_;
    pid_t pids_[most] = {};
};

// Zeroed memory that the test shares with the processes that it starts.
template <class T>
class shared_page {
public:
    shared_page() {
        void* p = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) std::abort();
        page_ = static_cast<T*>(p);
    }
    shared_page(const shared_page&) = delete;
    ~shared_page() { ::munmap(page_, sizeof(T)); }
    T* operator->() const { return page_; }
    T& operator*() const { return *page_; }

private:
    T* page_;
};

// Waits for an event instead of sleeping: until `value` is at least `at_least`. Returns false after a limit for
// hangs.
inline bool wait_until(const std::atomic<int>& value, int at_least) {
    for (const std::int64_t until = collx::now_ns() + collx_test::patient(30'000'000'000); value.load() < at_least;
         ::usleep(500))
        if (collx::now_ns() > until) return false;
    return true;
}

} // namespace collx_test
