// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of persistent.hpp.
#pragma once

#include <collx/call/persistent.hpp>

COLLX_BEGIN_NAMESPACE

[[gnu::cold]] COLLX_ONCE void persistent_call::refuse() const {
    if (call_ == nullptr)
        fail(errc::invalid_argument, -1, -1, "make it with collx::persistent::", "this persistent call is empty");
    if (end_->has_come)
        fail(errc::aborted, -1, -1, "keep the communicator as long as its persistent calls",
             "the communicator of this persistent call was destroyed");
    core_->require_own();
    const int me = core_->net.rank();
    if (const failure f = core_->net.failed(); f)
        fail(f.code(), me, f.rank(), "make the call again on what shrink() returns",
             "the communicator of this persistent call has ended: %s, by rank %d", name_of(f.code()), f.rank());
    if (state_ == under_way)
        fail(errc::invalid_argument, me, -1, "wait() for it first, or make one call for each that is under way",
             "this persistent call is under way already");
}
[[gnu::cold]] COLLX_ONCE void persistent_call::refuse_idle() const {
    if (call_ == nullptr) refuse();
    fail(errc::invalid_argument, end_->has_come ? -1 : core_->net.rank(), -1, "start() it first",
         "this persistent call is not under way");
}

COLLX_ONCE void persistent_call::start() {
    require_startable();
    or_leave([&] { call_->start(); });
    state_ = under_way;
}
COLLX_ONCE bool persistent_call::test() {
    if (state_ == idle) refuse_idle();
    if (state_ != done && call_->test()) state_ = done;
    return state_ == done;
}
COLLX_ONCE void persistent_call::wait() {
    if (state_ == idle) refuse_idle();
    call_->wait();
    state_ = idle;
}

COLLX_END_NAMESPACE
