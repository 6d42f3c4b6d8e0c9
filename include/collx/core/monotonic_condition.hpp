// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A condition variable of the system whose deadlines are of the clock of now_ns(). (std::condition_variable includes
// what locked_mutex.hpp avoids.)
#pragma once

#include <pthread.h>

#include <collx/core/clock.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

class monotonic_condition {
public:
    monotonic_condition() {
        pthread_condattr_t attributes;
        ::pthread_condattr_init(&attributes);
        ::pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        ::pthread_cond_init(&condition_, &attributes);
        ::pthread_condattr_destroy(&attributes);
    }
    ~monotonic_condition() { ::pthread_cond_destroy(&condition_); }
    monotonic_condition(const monotonic_condition&) = delete;
    monotonic_condition& operator=(const monotonic_condition&) = delete;

    // Waits for a signal, at most until the deadline. The caller holds the mutex. May return early.
    void wait(pthread_mutex_t& held, const deadline& until = {}) {
        if (until.at_ns == INT64_MAX) return void(::pthread_cond_wait(&condition_, &held));
        const timespec at{static_cast<time_t>(until.at_ns / 1'000'000'000),
                          static_cast<long>(until.at_ns % 1'000'000'000)};
        (void)::pthread_cond_timedwait(&condition_, &held, &at);
    }
    void signal() { ::pthread_cond_signal(&condition_); }
    void broadcast() { ::pthread_cond_broadcast(&condition_); }

private:
    pthread_cond_t condition_;
};

} // namespace detail
COLLX_END_NAMESPACE
