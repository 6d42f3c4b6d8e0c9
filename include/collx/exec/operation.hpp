// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a communicator moves on: anything that advances without blocking and says how far it is.
#pragma once

#include <cstdint>

#include <collx/core/atomic.hpp>
#include <collx/transport/links.hpp>

COLLX_BEGIN_NAMESPACE

// How far a look at a task has brought it.
enum class task_state : unsigned char { blocked, moved, done, failed };

namespace detail {
// How far an operation is. Written by the thread that moves it on, which may be the progress thread; a thread that
// reads `done` sees all that was done before.
class kept_state {
public:
    operator task_state() const { return now_.load(memory_order::acquire); }
    void operator=(task_state s) { now_.store(s, memory_order::release); }

private:
    atomic<task_state> now_{task_state::blocked};
};
} // namespace detail

// Something under way on a communicator.
class operation {
public:
    virtual ~operation() = default;
    virtual task_state advance() = 0;
    // Where it has come to, for those who look at a call that waits: a step of how many, in a piece of how many. -1:
    // not known.
    struct place {
        int step = -1, steps = -1, piece = -1, pieces = -1;
    };
    virtual place where() const { return {}; }
    detail::kept_state state; // kept by the progress engine, read by waits
    bool is_left = false;     // its communicator is gone, and with it all that it refers to
    bool is_dropped = false;  // its handle is gone, and perhaps its buffers: nothing may move it on
    failure error{};
    int at_port = -1;           // that its messages travel on
    std::uint64_t recorded = 0; // number of its record (job/flight_recorder.hpp), 0: none
    awaited waiting_for; // a peer that a blocked strand waits for; of several strands another each time it is asked
};

COLLX_END_NAMESPACE
