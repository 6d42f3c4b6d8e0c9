// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of outstanding_calls.hpp.
#pragma once

#include <utility>

#include <collx/job/communicator_core.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

COLLX_ONCE void outstanding_calls::advance() {
    for (std::size_t i = 0; i < list_.size();) {
        const int queue = list_[i].queue;
        bool is_first = true;
        for (std::size_t j = 0; j < i && is_first && queue != no_queue; ++j) is_first = list_[j].queue != queue;
        operation& op = *list_[i].op;
        try {
            if (is_first && !op.is_dropped) {
                const task_state s = core_.advance(op);
                // Recorded before another thread can see that the operation has ended.
                if (op.recorded != 0 && (s == task_state::done || s == task_state::failed)) [[unlikely]]
                    core_.recorder->ended(op, s);
                op.state = s;
            }
        } catch (...) { // a later wait for it reports that this rank gave up
            const counted_ptr<operation> ended = list_[i].op;
            set_aside(i);
            const bool is_in_thread = core_.caller.is_in_turn(); // no call of the program would get the exception
            if (is_in_thread) core_.helper->keep_exception(*ended);
            ended->error = failure(errc::aborted, core_.net.rank());
            ended->state = task_state::failed;
            if (is_in_thread) continue;
            fail_all(ended->error); // the program may take this exception for the end of any of them
            throw;
        }
        moves_ += is_first && op.state != task_state::blocked;
        if (op.state == task_state::failed) core_.net.report(op.error);
        if (op.state == task_state::done) list_.erase_at(i);
        else if (op.state == task_state::failed || op.is_dropped) set_aside(i);
        else ++i;
    }
}

COLLX_ONCE void outstanding_calls::drop(operation* op) {
    const one_caller::alone here(core_.caller);
    op->be_dropped();
    for (std::size_t i = 0; i < list_.size() && core_.caller.admits_this_thread(); ++i)
        if (list_[i].op.get() == op) return set_aside(i);
}

[[gnu::cold]] COLLX_ONCE void outstanding_calls::fail_all(const failure& f) {
    for (auto& e : list_) {
        e.op->state = task_state::failed;
        e.op->error = f;
    }
    while (!list_.empty()) set_aside(0);
}

[[gnu::cold]] COLLX_ONCE void outstanding_calls::leave_all(const failure& aborted) {
    for (auto& e : list_) {
        e.op->state = task_state::failed;
        e.op->error = aborted;
        e.op->is_orphaned = true;
    }
    for (auto op = std::move(failed_); op;) { // one by one: they may be many
        op->is_orphaned = true;
        op = std::move(op->failed_before);
    }
}

[[gnu::cold]] COLLX_ONCE awaited outstanding_calls::awaited_in_queue(const operation& op) const {
    for (const auto& its : list_) {
        const bool is_it = its.op.get() == &op || op.has_part(its.op.get());
        for (const auto& first : list_)
            if (is_it && its.queue != no_queue && first.queue == its.queue) return first.op->waiting_for;
    }
    return op.waiting_for;
}

[[gnu::cold]] COLLX_ONCE void outstanding_calls::set_aside(std::size_t i) noexcept {
    list_[i].op->failed_before = std::move(failed_);
    failed_ = list_[i].op;
    list_.erase_at(i);
}

} // namespace detail
COLLX_END_NAMESPACE
