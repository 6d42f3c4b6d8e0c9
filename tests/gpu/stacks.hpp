// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shows where every thread of a test is if progress stops for a while. A rank whose launch waits in the driver
// reports no error before the others have ended, and then its stack is gone. Where no debugger can be attached, each
// thread prints its own stack.
#pragma once

#include <dirent.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace stacks {

inline std::atomic<long> results{0};
// Records progress.
inline void passed() { ++results; }

namespace detail {

// backtrace() is not guaranteed to be safe in a handler; an earlier call has loaded everything that it needs.
inline void show_own(int) {
    void* at[64];
    const int count = ::backtrace(at, 64);
    ::backtrace_symbols_fd(at, count, STDERR_FILENO);
}
inline void show_all() {
    DIR* const tasks = ::opendir("/proc/self/task");
    if (tasks == nullptr) return;
    const auto own = static_cast<pid_t>(::syscall(SYS_gettid));
    while (const dirent* const entry = ::readdir(tasks)) {
        const auto id = static_cast<pid_t>(std::atoi(entry->d_name));
        if (id <= 0 || id == own) continue;
        std::fprintf(stderr, "thread %d:\n", static_cast<int>(id));
        ::syscall(SYS_tgkill, ::getpid(), id, SIGUSR2);
        std::this_thread::sleep_for(std::chrono::milliseconds(20)); // so that the outputs do not mix
    }
    ::closedir(tasks);
}

} // namespace detail

// While it lives, shows all stacks once after `limit` without progress, and calls `more`.
class watch {
public:
    explicit watch(std::chrono::milliseconds limit, void (*more)() = nullptr) : limit_(limit), more_(more) {
        void* at[1];
        (void)::backtrace(at, 1);
        struct sigaction action {};
        action.sa_handler = detail::show_own;
        action.sa_flags = SA_RESTART;
        ::sigaction(SIGUSR2, &action, nullptr);
        thread_ = std::thread([this] { look(); });
    }
    ~watch() { ends_ = true, thread_.join(); }
    watch(const watch&) = delete;

private:
    void look() const {
        using clock = std::chrono::steady_clock;
        long seen = results;
        for (auto since = clock::now(); !ends_; std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
            if (const long now = results; now != seen) seen = now, since = clock::now();
            if (clock::now() - since < limit_) continue;
            std::fprintf(stderr, "no result for %lld ms:\n", static_cast<long long>(limit_.count()));
            detail::show_all();
            if (more_ != nullptr) more_();
            return;
        }
    }

    std::chrono::milliseconds limit_;
    void (*more_)();
    std::atomic<bool> ends_{false};
    std::thread thread_;
};

} // namespace stacks
