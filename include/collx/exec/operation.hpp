// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An operation: anything that a communicator advances without blocking and that says how far it is.
#pragma once

#include <cstdint>

#include <collx/core/atomic.hpp>
#include <collx/core/pointers.hpp>
#include <collx/transport/links.hpp>

COLLX_BEGIN_NAMESPACE

// The outcome of one call of advance().
enum class task_state : unsigned char { blocked, moved, done, failed };

namespace detail {
// The state of an operation. Written by the thread that advances it, which may be the progress thread. A thread that
// reads `done` sees everything that was done before.
class kept_state {
public:
    operator task_state() const { return now_.load(memory_order::acquire); }
    void operator=(task_state s) { now_.store(s, memory_order::release); }

private:
    atomic<task_state> now_{task_state::blocked};
};
} // namespace detail

// An operation under way on a communicator.
class operation {
public:
    virtual ~operation() = default;
    virtual task_state advance() = 0;
    // How far it is, for reports about a call that waits: step `step` of `steps`, in piece `piece` of `pieces`. -1: not
    // known.
    struct place {
        int step = -1, steps = -1, piece = -1, pieces = -1;
    };
    virtual place where() const { return {}; }
    // Whether it consists of others, and this is one of them.
    virtual bool has_part(const operation*) const { return false; }
    // Nothing may touch its buffers any more. The progress thread is kept away meanwhile.
    virtual void be_dropped() { is_dropped = true; }
    detail::kept_state state; // written where it is advanced, read by waits
    bool is_orphaned = false; // its communicator is gone, and everything that it refers to
    bool is_dropped = false;  // its handle is gone, and perhaps its buffers: it must not be advanced
    failure error{};
    int at_port = -1;           // the port of its messages
    std::uint64_t recorded = 0; // number of its record (job/flight_recorder.hpp), 0: none
    awaited waiting_for; // a peer that a blocked strand waits for; with several strands it changes from look to look
    counted_ptr<operation> failed_before; // the next in the list outstanding_calls::failed_
};

COLLX_END_NAMESPACE
