// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Persistent calls: checked, chosen and bound once, then made any number of times. Each verb has a persistent form:
//
//   auto sum = collx::persistent::all_reduce(world, gradient);
//   for (...) {
//       compute(gradient);
//       sum();                        // or sum.start(); something_else(); sum.wait();
//   }
//
// Making a persistent call is itself a call: all ranks do it, in the order of their calls (of a send and a recv, each
// rank makes its own), and a checked communicator compares the arguments, once. So is starting it: all ranks start the
// same calls in the same order.
#pragma once

#include <utility>

#include <collx/call/ready_call.hpp>
#include <collx/job/communicator_core.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {
class listed_handle; // comm/wait_several.hpp
}

// A call that is ready to run. Refers to the communicator and to the buffers, which must stay in place and keep their
// sizes; temporary inputs are moved in. Movable. Destroying one that is under way aborts the communicator, as dropping
// a work does, and is reported on stderr. One that has ended without wait() or test() having said so is only reported.
// One that was never started is no error.
// Cost: making one allocates. A run does not allocate, check, choose or look up anything; it only tests that the
//     buffers and the communicator are still there.
// Errors of a run: invalid_argument (already under way; a container was moved, resized or emptied) · the error that
//     has ended the communicator · aborted, where it was destroyed · those of the verb.
class [[nodiscard]] persistent_call {
public:
    persistent_call(communicator_core& c, sole_ptr<detail::ready_call> call)
        : core_(&c), end_(c.watch_end()), call_(std::move(call)) {}
    persistent_call(persistent_call&& o) noexcept
        : core_(o.core_), end_(std::move(o.end_)), call_(std::move(o.call_)), state_(o.state_) {
        o.state_ = idle;
    }
    persistent_call& operator=(persistent_call&& o) noexcept {
        if (this == &o) return *this;
        note_drop();
        call_ = std::move(o.call_); // what was under way here ends
        core_ = o.core_;
        end_ = std::move(o.end_);
        state_ = o.state_;
        o.state_ = idle;
        return *this;
    }

    ~persistent_call() { note_drop(); }

    // Makes the call and waits for it.
    void operator()() {
        require_startable();
        or_leave([&] { call_->run(); });
    }
    // Starts the call. It advances as an async call does: whenever a call of its communicator waits, and in test().
    void start();
    // True once the started call is done. Never waits. Throws what ended it; invalid_argument if none was started.
    bool test();
    // Waits until the started call is done. Errors: as test(), and timed_out. For several calls: wait_all().
    void wait();

    // Takes the call out, for a persistent call that consists of several.
    sole_ptr<detail::ready_call> release() { return std::move(call_); }

private:
    friend class detail::listed_handle;
    // given_up: wait_all() or another function of wait_several.hpp has thrown the call's error.
    enum stage : unsigned char { idle, under_way, done, given_up };
    void require_startable() const {
        if (call_ == nullptr || end_->has_come || state_ == under_way || core_->net.failed()) [[unlikely]]
            refuse();
    }
    void refuse() const;
    // Runs or starts the call. A run that throws is not under way, so what it began is ended here.
    template <class F>
    void or_leave(F&& f) {
        try {
            core_->or_abandon(f);
        } catch (...) {
            call_->leave();
            throw;
        }
    }
    void note_drop() const noexcept {
        if (state_ != under_way || call_ == nullptr || end_->has_come) [[likely]]
            return;
        (void)core_->note_dropped("a persistent call was started and destroyed without wait()", "wait() for it");
        call_->leave(); // before parts of it are gone that the progress thread may use
    }
    [[noreturn]] void refuse_idle() const;

    communicator_core* core_;
    counted_ptr<detail::communicator_end> end_;
    sole_ptr<detail::ready_call> call_;
    stage state_ = idle;
};

COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/call/persistent_once.hpp>
#endif
