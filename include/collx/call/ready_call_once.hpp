// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of ready_call.hpp.
#pragma once

#include <collx/call/ready_call.hpp>
#include <collx/call/short_calls.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

COLLX_ONCE void ready_operation::run() {
    if (has_to_queue()) {
        start();
        return wait();
    }
    require_unmoved();
    begin();
    recorded(core_.recorder.get(), words_, [&] {
        refresh();
        run_now();
    });
}

COLLX_ONCE void ready_operation::start() {
    require_unmoved();
    begin();
    refresh();
    under_way_.reset();
    if (core_.recorder) [[unlikely]]
        (void)core_.recorder->begin_async(words_);
    const counted_ptr<operation> op = arm();
    core_.start(op, queue_);
    under_way_.emplace(core_, op, timeout_ns_);
}

COLLX_ONCE counted_ptr<operation> ready_operation::arm() {
    if (!task_) task_ = make_counted<maybe<task>>();
    task& t =
        task_->emplace(core_.net, *call_.plan, *ops_, call_.in, call_.out, call_.piece_elems, agreed(), call_.attached);
    if (waits_for_readers_) t.wait_for_readers();
    return counted_ptr<operation>(task_, &t);
}

COLLX_ONCE void ready_operation::run_now() {
    const std::uint64_t said = agreed();
    if (call_.is_short)
        return run_short(core_, *call_.plan, {*ops_, call_.in, call_.out, call_.piece_elems, said}, timeout_ns_);
    task t(core_.net, *call_.plan, *ops_, call_.in, call_.out, call_.piece_elems, said, call_.attached);
    if (waits_for_readers_) t.wait_for_readers();
    core_.run(t, timeout_ns_);
}

[[gnu::cold]] COLLX_ONCE void refuse_moved(const communicator_core& c, const char* which, std::size_t elems,
                                           std::size_t now) {
    fail(errc::invalid_argument, c.net.rank(), -1,
         "keep the buffers of a persistent call as they are, or make the call again",
         "the %s buffer of a persistent call was moved, resized or freed: it had %zu elements and has %zu, or they lie "
         "elsewhere",
         which, elems, now);
}

} // namespace detail
COLLX_END_NAMESPACE
