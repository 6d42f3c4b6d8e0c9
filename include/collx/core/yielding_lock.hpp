// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A lock for code that holds it for microseconds, and its two guards.
#pragma once

#include <sched.h>

#include <collx/core/atomic.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// A lock whose taker yields the core until it is free. Held for microseconds, by the calling thread or by one that
// helps.
class yielding_lock {
public:
    bool try_lock() { return !held_.test_and_set(memory_order::acquire); }
    void lock() {
        while (!try_lock()) ::sched_yield();
    }
    void unlock() { held_.clear(memory_order::release); }

private:
    atomic_flag held_;
};
class lock_held {
public:
    explicit lock_held(yielding_lock& l) : lock_(l) { l.lock(); }
    lock_held(const lock_held&) = delete;
    ~lock_held() { lock_.unlock(); }

private:
    yielding_lock& lock_;
};
// The same for a thread that does not wait. Given back also when the code that holds it throws.
class lock_tried {
public:
    explicit lock_tried(yielding_lock& l) : lock_(l), is_held_(l.try_lock()) {}
    lock_tried(const lock_tried&) = delete;
    ~lock_tried() {
        if (is_held_) lock_.unlock();
    }
    explicit operator bool() const { return is_held_; }

private:
    yielding_lock& lock_;
    bool is_held_;
};

} // namespace detail

COLLX_END_NAMESPACE
