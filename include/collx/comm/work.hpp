// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The handle of a call that goes on while the program computes. It moves on whenever any call of its communicator
// waits, and in test() and communicator::progress(): no thread is started behind the program's back.
//
//   auto w = collx::async::all_reduce(world, gradient);
//   while (!w.test()) compute_a_little();
#pragma once

#include <collx/comm/duration.hpp>
#include <collx/core/pointers.hpp>
#include <type_traits>
#include <utility>

#include <collx/comm/communicator.hpp>
#include <collx/comm/held.hpp>

COLLX_BEGIN_NAMESPACE

// R is the buffer that was moved into the call and comes back from wait(), or void where the program kept it.
// Destroying the handle of an unfinished call aborts the communicator, because the buffers may be gone: wait() first.
// So does destroying the communicator before its calls are done; their handles then throw aborted.
template <class R>
class [[nodiscard]] work {
public:
    work(communicator::core& c, counted_ptr<operation> op, counted_ptr<detail::held_operation<R>> held,
         std::int64_t timeout_ns)
        : core_(&c), op_(std::move(op)), held_(std::move(held)), timeout_ns_(timeout_ns) {}
    work(work&& o) noexcept
        : core_(std::exchange(o.core_, nullptr)), op_(std::move(o.op_)), held_(std::move(o.held_)),
          timeout_ns_(o.timeout_ns_), look_(o.look_) {}
    work& operator=(work&& o) noexcept {
        if (this != &o) {
            leave();
            core_ = std::exchange(o.core_, nullptr), op_ = std::move(o.op_), held_ = std::move(o.held_),
            timeout_ns_ = o.timeout_ns_, look_ = o.look_;
        }
        return *this;
    }
    ~work() { leave(); }

    // True once the call is done. Never waits. Throws what ended the call: a peer that died and time that has run out
    // are noticed here as in wait().
    bool test() {
        if (is_done()) return true;
        core_->progress_pending();
        if (op_->state == task_state::failed) core_->give_up(op_->error, op_->waiting_for);
        if (op_->state != task_state::done) core_->look(look_, timeout_ns_, op_->waiting_for);
        return op_->state == task_state::done;
    }
    // Waits until the call is done and returns the buffer, if the call owns it. Throws what ended the call, or
    // timed_out.
    R wait() {
        if (!is_done()) core_->wait_for(*op_, timeout_ns_, true);
        op_ = nullptr;
        if constexpr (!std::is_void_v<R>) return std::move(held_->held);
    }
    // Waits at most this long. True once the call is done.
    bool wait_for(duration limit) { return is_done() || core_->wait_for(*op_, limit.count(), false); }

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
    void leave() noexcept {
        if (core_ == nullptr || op_ == nullptr || op_->state == task_state::done || op_->is_left) return;
        if (core_->home->mark.is_child()) return; // the call is the parent's
        core_->drop(op_.get());
        core_->net.report(failure(errc::aborted, core_->net.rank()));
    }
    communicator::core* core_;
    counted_ptr<operation> op_;
    counted_ptr<detail::held_operation<R>> held_;
    std::int64_t timeout_ns_;
    communicator::core::looking look_;
};

COLLX_END_NAMESPACE
