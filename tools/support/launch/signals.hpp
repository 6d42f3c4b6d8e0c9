// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Signals as data: they are blocked and read from a descriptor in the launcher's one loop, so that no handler ever
// interrupts anything. Signals that were ignored when the launcher started (nohup) stay ignored.
#pragma once

#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>

#include <string>

#include "system.hpp"

namespace collx::tools::launch {

/// For example: SIGSEGV (Segmentation fault)
inline std::string signal_text(int number) {
    const char* name = ::sigabbrev_np(number);
    const char* meaning = ::sigdescr_np(number);
    if (name == nullptr || meaning == nullptr) return "signal " + std::to_string(number);
    return "SIG" + std::string(name) + " (" + meaning + ")";
}

class signal_queue {
public:
    signal_queue() {
        ::signal(SIGCHLD, SIG_DFL); // inherited as ignored, it would hide how ranks end
        sigset_t wanted;
        ::sigemptyset(&wanted);
        for (const int s : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}) {
            struct sigaction action {};
            ::sigaction(s, nullptr, &action);
            if (action.sa_handler != SIG_IGN) ::sigaddset(&wanted, s);
        }
        fd_ = descriptor(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
        if (!fd_.is_open()) fail_with_errno("cannot make a descriptor for signals");
        ::sigaddset(&wanted, SIGPIPE); // write() then fails with EPIPE
        ::sigaddset(&wanted, SIGXFSZ); // and with EFBIG
        ::sigprocmask(SIG_BLOCK, &wanted, &before_);
    }
    signal_queue(const signal_queue&) = delete;
    signal_queue& operator=(const signal_queue&) = delete;
    ~signal_queue() {
        // If one is pending, it would kill us now, before the status is returned.
        sigset_t of_writes;
        ::sigemptyset(&of_writes);
        ::sigaddset(&of_writes, SIGPIPE);
        ::sigaddset(&of_writes, SIGXFSZ);
        const timespec at_once{};
        while (::sigtimedwait(&of_writes, nullptr, &at_once) > 0) {
        } // at most two turns: they do not queue
        ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    }

    [[nodiscard]] int fd() const { return fd_.get(); }
    /// The mask that ranks must start with: masks survive exec.
    [[nodiscard]] const sigset_t& mask_before() const { return before_; }
    /// Returns the next signal, or 0 if there is none.
    [[nodiscard]] int next() const {
        signalfd_siginfo info{};
        return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
    }

private:
    descriptor fd_;
    sigset_t before_{};
};

} // namespace collx::tools::launch
