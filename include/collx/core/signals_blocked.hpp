// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Around the start of a thread of collx's own: it inherits that all signals are blocked, so the program's handlers
// never run on it.
#pragma once

#include <signal.h>

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

} // namespace detail

COLLX_END_NAMESPACE
