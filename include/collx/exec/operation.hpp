// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a communicator moves on: anything that advances without blocking and says how far it is.
#pragma once

#include <collx/transport/links.hpp>

COLLX_BEGIN_NAMESPACE

enum class task_state : unsigned char { blocked, moved, done, failed };

// Something under way on a communicator.
class operation {
public:
    virtual ~operation() = default;
    virtual task_state advance() = 0;
    task_state state = task_state::blocked; // kept by the progress engine, read by waits
    bool is_left = false;                   // its communicator is gone, and with it all that it refers to
    bool is_dropped = false;                // its handle is gone, and perhaps its buffers: nothing may move it on
    failure error{};
    int at_port = -1;    // that its messages travel on
    awaited waiting_for; // a peer that a blocked strand waits for; of several strands another each time it is asked
};

COLLX_END_NAMESPACE
