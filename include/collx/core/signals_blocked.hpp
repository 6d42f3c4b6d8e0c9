// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks signals of a thread: all of them around the start of a thread of collx, which inherits the mask, so that the
// program's handlers never run on it; SIGPIPE around a system call that has no flag against it.
#pragma once

#include <signal.h>

#include <cerrno>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Blocks all signals of this thread while the object lives, then restores the mask.
class signals_blocked {
public:
    signals_blocked() {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    signals_blocked(const signals_blocked&) = delete;
    ~signals_blocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_;
};

// Calls of this thread raise no SIGPIPE while the object lives. Keeps errno. A call may raise the signal and still
// report bytes: splice() does when the connection breaks between two of its pages. So the destructor looks for a
// pending signal, not at errno. A signal that was pending before stays pending.
class sigpipe_blocked {
public:
    sigpipe_blocked() {
        ::sigemptyset(&pipe_);
        ::sigaddset(&pipe_, SIGPIPE);
        ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
        was_pending_ = ::sigismember(&before_, SIGPIPE) == 1 && is_pending();
    }
    sigpipe_blocked(const sigpipe_blocked&) = delete;
    ~sigpipe_blocked() {
        const int error = errno;
        if (!was_pending_) take_back();
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = error;
    }

private:
    static bool is_pending() {
        sigset_t waiting;
        return ::sigpending(&waiting) == 0 && ::sigismember(&waiting, SIGPIPE) == 1;
    }
    void take_back() {
        const timespec at_once{0, 0};
        while (::sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
        }
    }
    sigset_t pipe_, before_;
    bool was_pending_ = false;
};

} // namespace detail

COLLX_END_NAMESPACE
