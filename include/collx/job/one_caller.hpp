// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Who is in a call of a communicator. One thread at a time makes its calls, and what a call runs of the program
// (operators, hooks, iterators) makes no other on it: the engine is in the middle of one. A word that only its caller
// writes says so. There is no lock: two threads that come within a few nanoseconds of each other pass unseen.
#pragma once

#include <cstdint>

#include <collx/core/atomic.hpp>
#include <collx/core/error.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

alignas(8) inline constinit thread_local char this_thread = 0; // its address tells threads apart

class one_caller {
public:
    // From the beginning of a call to its end. Calls that are made of others enter again.
    class call {
    public:
        // Errors: invalid_argument where another thread is in a call, or this one in the program's code of one.
        call(one_caller& c, int rank) : word_(c.word_), before_(word_.load(memory_order::relaxed)) {
            const auto me = reinterpret_cast<std::uintptr_t>(&this_thread);
            if (before_ != me) {
                if (before_ != 0) [[unlikely]]
                    refuse(rank, (before_ & ~in_user_code) == me);
                word_.store(me, memory_order::relaxed);
            }
        }
        ~call() { word_.store(before_, memory_order::relaxed); }
        call(const call&) = delete;
        call& operator=(const call&) = delete;

    private:
        atomic<std::uintptr_t>& word_;
        const std::uintptr_t before_;
    };
    // Around what may run code of the program. Requires: in a call.
    class user_code {
    public:
        explicit user_code(one_caller& c) : word_(c.word_), before_(word_.load(memory_order::relaxed)) {
            word_.store(before_ | in_user_code, memory_order::relaxed);
        }
        ~user_code() { word_.store(before_, memory_order::relaxed); }
        user_code(const user_code&) = delete;
        user_code& operator=(const user_code&) = delete;

    private:
        atomic<std::uintptr_t>& word_;
        const std::uintptr_t before_;
    };

    // Whether a call may be made here: none is under way, or one that this thread makes of others.
    bool admits_this_thread() const {
        const std::uintptr_t who = word_.load(memory_order::relaxed);
        return who == 0 || who == reinterpret_cast<std::uintptr_t>(&this_thread);
    }

private:
    static constexpr std::uintptr_t in_user_code = 1;
    [[noreturn, gnu::cold, gnu::noinline]] static void refuse(int rank, bool is_same_thread) {
        if (is_same_thread)
            fail(errc::invalid_argument, rank, -1,
                 "make it when the first has returned, or on another communicator (dup())",
                 "an operator, hook or iterator of a call makes another call of the same communicator");
        fail(errc::invalid_argument, rank, -1, "give each thread a communicator of its own (dup())",
             "another thread is in a call of this communicator");
    }
    atomic<std::uintptr_t> word_{0}; // this_thread's address, plus a bit; 0: no thread's
};

} // namespace detail
COLLX_END_NAMESPACE
