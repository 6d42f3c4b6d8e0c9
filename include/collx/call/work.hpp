// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The handle of a call that continues while the program computes. The call advances whenever any call of its
// communicator waits, and in test() and communicator::progress(). No thread is started implicitly; with
// world.with(progress::thread{}) (comm/progress.hpp) a thread of the process advances it, too.
//
//   auto w = collx::async::all_reduce(world, gradient);
//   while (!w.test()) compute_a_little();
//
// For several handles see wait_several.hpp. A wait advances only calls of its own communicator. Where ranks have calls
// of several communicators under way and wait for them one by one in different orders, each waits for a call that no
// rank advances, until the time limit. wait_all() advances all of them.
#pragma once

#include <collx/core/duration.hpp>
#include <collx/core/pointers.hpp>
#include <type_traits>
#include <utility>

#include <collx/call/held.hpp>
#include <collx/job/communicator_core.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

struct handle_access;

// The part of a handle that does not depend on what the call holds.
class call_under_way {
public:
    call_under_way(communicator_core& c, counted_ptr<operation> op, std::int64_t timeout_ns)
        : core_(&c), op_(std::move(op)), timeout_ns_(timeout_ns) {}
    call_under_way(call_under_way&& o) noexcept
        : core_(std::exchange(o.core_, nullptr)), op_(std::move(o.op_)), timeout_ns_(o.timeout_ns_), look_(o.look_),
          short_look_(o.short_look_), has_failed_(o.has_failed_) {}
    call_under_way& operator=(call_under_way&& o) noexcept {
        if (this != &o) {
            leave();
            core_ = std::exchange(o.core_, nullptr);
            op_ = std::move(o.op_);
            timeout_ns_ = o.timeout_ns_;
            look_ = o.look_;
            short_look_ = o.short_look_;
            has_failed_ = o.has_failed_;
        }
        return *this;
    }
    ~call_under_way() { leave(); }
    // Reports a handle that is destroyed before its call is done.
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
        if (op_->state != task_state::done) core_->check_for_failure(*op_, look_, timeout_ns_);
        return op_->state == task_state::done;
    }
    void wait() {
        failure_watch::looking look;
        if (!is_done()) core_->wait_for(*op_, timeout_ns_, true, look);
        settle();
    }
    // wait() for a part of a call whose time limit began before.
    void wait_at_most(std::int64_t timeout_ns) {
        timeout_ns_ = timeout_ns;
        wait();
    }
    bool wait_for(duration limit) { return is_done() || core_->wait_for(*op_, limit.count(), false, short_look_); }

    // Whether the program has learned of the call's end: wait_any() and wait_some() then skip it.
    bool is_settled() const { return op_ == nullptr || has_failed_; }
    bool is_over() const { return op_ == nullptr || op_->state == task_state::done; }
    void settle() { op_ = nullptr; }
    // Settles a call that cannot continue: nothing touches its buffers any more, and test() and wait() throw again.
    // Does nothing to one that is done.
    void settle_failed() {
        has_failed_ = true;
        if (is_over() || op_->is_orphaned || core_->home->mark.is_child()) return; // is_child: the call is the parent's
        core_->pending.drop(op_.get());
        if (op_->state == task_state::done || op_->state == task_state::failed) return;
        op_->error = core_->net.failed() ? core_->net.failed() : failure(errc::aborted, core_->net.rank());
        op_->state = task_state::failed;
    }
    // Throws what code of the program threw in this call in the progress thread, if no one has thrown it yet.
    void rethrow_kept() {
        if (op_ == nullptr || op_->is_orphaned || core_->home->mark.is_child() || core_->helper == nullptr) return;
        const one_caller::alone here(core_->caller);
        core_->helper->rethrow(*op_);
    }
    // Throws where test() would refuse, because another call of the communicator is under way.
    void require_caller() const {
        if (may_advance()) const one_caller::call here(core_->caller, core_->net.rank());
    }
    // Null if there is nothing to wait for.
    const wait_policy* waiting() const { return may_advance() ? &core_->settings.waiting : nullptr; }

private:
    // Otherwise the communicator may be gone.
    bool may_advance() const { return !is_settled() && !is_over() && !op_->is_orphaned; }
    // Throws if the communicator that could advance the call is gone, or belongs to the parent of this process.
    bool is_done() const {
        if (op_ == nullptr || op_->state == task_state::done) return true;
        if (op_->is_orphaned)
            fail(errc::aborted, op_->error.rank(), op_->error.rank(), "wait for calls before that",
                 "the communicator was destroyed here while this call was under way");
        core_->require_own();
        return false;
    }
    bool is_droppable() const noexcept {
        return core_ != nullptr && op_ != nullptr && op_->state != task_state::done && !op_->is_orphaned;
    }
    void leave() noexcept {
        if (!is_droppable()) return;
        if (core_->home->mark.is_child()) return; // the call is the parent's
        core_->pending.drop(op_.get());
        core_->net.report(failure(errc::aborted, core_->net.rank()));
        try {
            core_->net.announce_failure(); // ranks of other hosts do not see the word
        } catch (...) {                    // no memory: they find out when this rank leaves
        }
        core_->take_buffers_back();
    }
    communicator_core* core_;
    counted_ptr<operation> op_; // null: its end was reported to the program
    std::int64_t timeout_ns_;
    failure_watch::looking look_, short_look_; // of test(), of wait_for()
    bool has_failed_ = false;                  // and the failure was reported to the program
};

} // namespace detail

// The handle of an async call. R: the buffer that was moved into the call and that wait() returns, or void. Destroying
// the handle of an unfinished call aborts the communicator, because the buffers may be gone: wait() first. Destroying
// the communicator before its calls are done does so, too; their handles then throw aborted.
template <class R>
class [[nodiscard]] work {
public:
    work(communicator_core& c, counted_ptr<operation> op, counted_ptr<detail::held_operation<R>> held,
         std::int64_t timeout_ns)
        : held_(std::move(held)), call_(c, std::move(op), timeout_ns) {}
    work(work&&) noexcept = default;
    work& operator=(work&& o) noexcept {
        if (this == &o) return *this;
        call_.note_drop();
        call_ = std::move(o.call_); // the call under way here ends before its buffers do
        held_ = std::move(o.held_);
        return *this;
    }

    ~work() { call_.note_drop(); }

    // True once the call is done. Never waits. Throws the error that ended the call. As in wait(), a peer that died
    // and an expired time limit end it.
    bool test() { return call_.test(); }
    // Waits until the call is done and returns the buffer, if the call owns it. Throws the error that ended the call,
    // or timed_out.
    R wait() {
        call_.wait();
        if constexpr (!std::is_void_v<R>) {
            if (held_ == nullptr)
                fail(errc::invalid_argument, -1, -1, "wait() for the handle that it was moved to",
                     "this handle was moved from, and the buffer with it");
            return std::move(held_->held);
        }
    }
    // Waits at most this long. True once the call is done. Throws the error that ended the call, as test() does; the
    // call's own time limit does not end it here.
    bool wait_for(duration limit) { return call_.wait_for(limit); }

private:
    friend struct detail::handle_access;
    counted_ptr<detail::held_operation<R>> held_;
    detail::call_under_way call_; // after its buffers, so that it is destroyed first
};

namespace detail {

struct handle_access {
    template <class R>
    static call_under_way& of(work<R>& w) {
        return w.call_;
    }
};

} // namespace detail

COLLX_END_NAMESPACE
