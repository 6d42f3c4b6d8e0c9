// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Signals kept away from a thread: all of them around the start of one of collx's own, which inherits that, so that the
// program's handlers never run on it; SIGPIPE around a system call that has no flag for that.
#pragma once

#include <signal.h>

#include <cerrno>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// This thread's signals are blocked while the object lives, and then as they were.
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

// A call of this thread that ends with EPIPE while the object lives raises no SIGPIPE. Keeps errno.
class sigpipe_blocked {
public:
    sigpipe_blocked() {
        ::sigemptyset(&pipe_);
        ::sigaddset(&pipe_, SIGPIPE);
        ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    sigpipe_blocked(const sigpipe_blocked&) = delete;
    ~sigpipe_blocked() {
        const int error = errno;
        if (error == EPIPE) take_back();
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = error;
    }

private:
    [[gnu::cold]] void take_back() {
        const timespec at_once{0, 0};
        while (::sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
        }
    }
    sigset_t pipe_, before_;
};

} // namespace detail

COLLX_END_NAMESPACE
