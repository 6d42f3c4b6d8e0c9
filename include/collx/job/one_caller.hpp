// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tracks which thread is in a call of a communicator. One thread at a time makes calls. Code of the program that a call
// runs (operators, hooks, iterators) makes no other call on the same communicator, because the engine is in the middle
// of one. The state is a word that only the caller writes. There is no lock: two threads that come within a few
// nanoseconds of each other pass undetected.
//
// With a progress thread (progress_thread.hpp) the word is a lock. At rest it is `shared` instead of 0, and a call or
// the progress thread takes it by an exchange. A call waits until the thread has finished its turn; the thread waits
// for no call. Communicators without a progress thread pay nothing for this (docs/design/progress.md).
#pragma once

#include <cstdint>

#include <sched.h>
#include <unistd.h>

#include <collx/core/atomic.hpp>
#include <collx/core/error.hpp>
#include <collx/transport/wait.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

alignas(8) inline constinit thread_local char this_thread = 0; // its address tells threads apart

class one_caller {
public:
    // Lasts from the beginning of a call to its end. A call that consists of other calls enters again for each.
    class call {
    public:
        // Errors: invalid_argument where another thread is in a call, or this one in the program's code of one.
        call(one_caller& c, int rank) : word_(c.word_), before_(word_.load(memory_order::acquire)) {
            const std::uintptr_t me = this_one();
            if (before_ != me) {
                if (before_ == 0) [[likely]]
                    word_.store(me, memory_order::relaxed);
                else before_ = c.enter_shared(rank);
            }
        }
        ~call() { word_.store(before_, memory_order::release); }
        call(const call&) = delete;
        call& operator=(const call&) = delete;

    private:
        atomic<std::uintptr_t>& word_;
        std::uintptr_t before_;
    };
    // Keeps the progress thread away, if there is one. Refuses nothing; may be used inside calls and inside the
    // program's code of a call.
    class alone {
    public:
        explicit alone(one_caller& c) : word_(c.word_), is_taken_(c.take_from_helper()) {}
        ~alone() {
            if (is_taken_) word_.store(shared, memory_order::release);
        }
        alone(const alone&) = delete;
        alone& operator=(const alone&) = delete;

    private:
        atomic<std::uintptr_t>& word_;
        const bool is_taken_;
    };
    // Surrounds code that may run code of the program. Requires: in a call.
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

    // Whether this thread may make a call: none is under way, or this thread makes this one as part of another.
    bool admits_this_thread() const {
        const std::uintptr_t who = word_.load(memory_order::relaxed);
        return who == 0 || who == this_one();
    }

    // Whether this thread is in a call (a turn of the progress thread is none); whether the program is in no call.
    bool is_in_call() const {
        const std::uintptr_t who = word_.load(memory_order::relaxed);
        return thread_of(who) == this_one() && (who & helps) == 0;
    }
    bool is_at_rest() const {
        const std::uintptr_t who = word_.load(memory_order::relaxed);
        return who == 0 || who == shared || (who & helps) != 0;
    }

    // ------------------------------------------------------------------ with a progress thread
    // Errors: invalid_argument in a call, or while another thread is in one.
    void share(int rank) {
        std::uintptr_t seen = 0;
        if (!word_.compare_exchange_strong(seen, shared, memory_order::acq_rel) && seen != shared)
            refuse(rank, thread_of(seen) == this_one());
        process_ = ::getpid();
    }
    // Requires: the progress thread will not come again.
    void stop_sharing() { word_.store(0, memory_order::release); }
    // For the progress thread: begins a turn, unless the program is in a call or waits to be. Never waits.
    bool begin_turn() {
        std::uintptr_t seen = shared;
        return wanted_.load(memory_order::relaxed) == 0 &&
               word_.compare_exchange_strong(seen, this_one() | helps, memory_order::acquire);
    }
    void end_turn() { word_.store(shared, memory_order::release); }
    bool is_in_turn() const { return word_.load(memory_order::relaxed) == (this_one() | helps); }

private:
    static constexpr std::uintptr_t in_user_code = 1, shared = 2, helps = 4; // bits below a thread's address
    static std::uintptr_t this_one() { return reinterpret_cast<std::uintptr_t>(&this_thread); }
    static constexpr std::uintptr_t thread_of(std::uintptr_t word) { return word & ~std::uintptr_t{7}; }

    // Enters a call when the word is not 0. Returns what the word says at rest.
    [[gnu::cold, gnu::noinline]] std::uintptr_t enter_shared(int rank) {
        if (take_from_helper()) return shared;
        std::uintptr_t seen = word_.load(memory_order::acquire);
        if (seen != 0) refuse(rank, thread_of(seen) == this_one());
        word_.store(this_one(), memory_order::relaxed); // the other thread's call has ended meanwhile
        return 0;
    }
    // Takes the word, after the progress thread's turn. False if there is no such thread, or a call has the word.
    bool take_from_helper() {
        std::uintptr_t seen = word_.load(memory_order::relaxed);
        if (seen != shared && (seen & helps) == 0) [[likely]]
            return false;
        wanted_.fetch_add(1, memory_order::relaxed);
        bool is_taken = false;
        for (unsigned turn = 0;; ++turn) {
            if (seen == shared) is_taken = word_.compare_exchange_strong(seen, this_one(), memory_order::acquire);
            if (is_taken || (seen != shared && ((seen & helps) == 0 || thread_of(seen) == this_one()))) break;
            if (turn < 64) cpu_relax();
            else if (::getpid() != process_) word_.store(shared, memory_order::relaxed); // after fork(): not our thread
            else ::sched_yield();
            seen = word_.load(memory_order::relaxed);
        }
        wanted_.fetch_sub(1, memory_order::relaxed);
        return is_taken;
    }
    [[noreturn, gnu::cold, gnu::noinline]] static void refuse(int rank, bool is_same_thread) {
        if (is_same_thread)
            fail(errc::invalid_argument, rank, -1,
                 "make it when the first has returned, or on another communicator (dup())",
                 "an operator, hook or iterator of a call makes another call of the same communicator");
        fail(errc::invalid_argument, rank, -1, "give each thread a communicator of its own (dup())",
             "another thread is in a call of this communicator");
    }
    atomic<std::uintptr_t> word_{0};  // address of the caller's this_thread, plus bits; 0 or shared: no caller
    atomic<std::uint32_t> wanted_{0}; // calls that wait for the progress thread's turn to end
    int process_ = 0;                 // that called share()
};

} // namespace detail
COLLX_END_NAMESPACE
