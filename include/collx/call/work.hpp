// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The handle of a call that goes on while the program computes. It moves on whenever any call of its communicator
// waits, and in test() and communicator::progress(): no thread is started behind the program's back. With
// world.with(progress::thread{}) (comm/progress.hpp) one of the process moves it on, too.
//
//   auto w = collx::async::all_reduce(world, gradient);
//   while (!w.test()) compute_a_little();
//
// For several handles see wait_several.hpp. A wait moves calls of its own communicator only: where ranks have calls of
// several communicators under way and wait for them one by one in different orders, each waits for a call that no rank
// moves, until the time limit. wait_all() moves all of them.
#pragma once

#include <collx/core/duration.hpp>
#include <collx/core/pointers.hpp>
#include <type_traits>
#include <utility>

#include <collx/call/held.hpp>
#include <collx/job/communicator_core.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

struct handle_access; // wait_several.hpp

// The part of a handle that does not depend on what the call holds.
class call_under_way {
public:
    call_under_way(communicator_core& c, counted_ptr<operation> op, std::int64_t timeout_ns)
        : core_(&c), op_(std::move(op)), timeout_ns_(timeout_ns) {}
    call_under_way(call_under_way&& o) noexcept
        : core_(std::exchange(o.core_, nullptr)), op_(std::move(o.op_)), timeout_ns_(o.timeout_ns_), look_(o.look_),
          has_failed_(o.has_failed_) {}
    call_under_way& operator=(call_under_way&& o) noexcept {
        if (this != &o) {
            leave();
            core_ = std::exchange(o.core_, nullptr), op_ = std::move(o.op_), timeout_ns_ = o.timeout_ns_,
            look_ = o.look_, has_failed_ = o.has_failed_;
        }
        return *this;
    }
    ~call_under_way() { leave(); }
    // Before it goes.
    void note_drop() const noexcept {
        if (is_droppable())
            (void)core_->note_dropped("the handle of an unfinished call was destroyed, which ends the communicator",
                                      "wait() for it first");
    }

    bool test() {
        if (is_done()) return true;
        const one_caller::call here(core_->caller, core_->net.rank());
        core_->progress_pending();
        if (op_->state == task_state::failed) core_->give_up_on(*op_);
        if (op_->state != task_state::done) core_->look(look_, timeout_ns_, op_->waiting_for);
        return op_->state == task_state::done;
    }
    void wait() {
        if (!is_done()) core_->wait_for(*op_, timeout_ns_, true);
        settle();
    }
    bool wait_for(duration limit) { return is_done() || core_->wait_for(*op_, limit.count(), false); }

    // The program has heard of its end: wait_any and its like pass it over from now on.
    bool is_settled() const { return op_ == nullptr || has_failed_; }
    bool is_over() const { return op_ == nullptr || op_->state == task_state::done; }
    void settle() { op_ = nullptr; }
    // The same of a call that cannot go on: nothing touches its buffers any more, and test() and wait() say again why.
    void settle_failed() {
        has_failed_ = true;
        if (op_->is_left || core_->home->mark.is_child()) return; // gone with its communicator, or the parent's
        core_->drop(op_.get());
        if (op_->state != task_state::failed) op_->state = task_state::failed, op_->error = core_->net.failed();
    }
    // Throws where test() would refuse, because another call of the communicator is under way.
    void require_caller() const {
        if (!is_settled() && !is_over() && !op_->is_left) const one_caller::call here(core_->caller, core_->net.rank());
    }
    const wait_policy& waiting() const { return core_->settings.waiting; }

private:
    // Throws if there is no communicator, or none of this process, that could move the call on.
    bool is_done() const {
        if (op_ == nullptr || op_->state == task_state::done) return true;
        if (op_->is_left)
            fail(errc::aborted, op_->error.rank(), op_->error.rank(), "wait for calls before that",
                 "the communicator was destroyed here while this call was under way");
        core_->require_own();
        return false;
    }
    bool is_droppable() const noexcept {
        return core_ != nullptr && op_ != nullptr && op_->state != task_state::done && !op_->is_left;
    }
    void leave() noexcept {
        if (!is_droppable()) return;
        if (core_->home->mark.is_child()) return; // the call is the parent's
        core_->drop(op_.get());
        core_->net.report(failure(errc::aborted, core_->net.rank()));
    }
    communicator_core* core_;
    counted_ptr<operation> op_; // null: its end has been reported
    std::int64_t timeout_ns_;
    communicator_core::looking look_;
    bool has_failed_ = false; // and the program knows
};

} // namespace detail

// R is the buffer that was moved into the call and comes back from wait(), or void where the program kept it.
// Destroying the handle of an unfinished call aborts the communicator, because the buffers may be gone: wait() first.
// So does destroying the communicator before its calls are done; their handles then throw aborted.
template <class R>
class [[nodiscard]] work {
public:
    work(communicator_core& c, counted_ptr<operation> op, counted_ptr<detail::held_operation<R>> held,
         std::int64_t timeout_ns)
        : held_(std::move(held)), call_(c, std::move(op), timeout_ns) {}
    work(work&&) noexcept = default;
    work& operator=(work&& o) noexcept {
        call_.note_drop();
        call_ = std::move(o.call_); // what was under way here ends before its buffers do
        held_ = std::move(o.held_);
        return *this;
    }

    ~work() { call_.note_drop(); }

    // True once the call is done. Never waits. Throws what ended the call: a peer that died and time that has run out
    // are noticed here as in wait().
    bool test() { return call_.test(); }
    // Waits until the call is done and returns the buffer, if the call owns it. Throws what ended the call, or
    // timed_out.
    R wait() {
        call_.wait();
        if constexpr (!std::is_void_v<R>) return std::move(held_->held);
    }
    // Waits at most this long. True once the call is done.
    bool wait_for(duration limit) { return call_.wait_for(limit); }

private:
    friend struct detail::handle_access;
    counted_ptr<detail::held_operation<R>> held_;
    detail::call_under_way call_; // after what it works on, so that it goes first
};

COLLX_END_NAMESPACE
