// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages between two ranks, as the smallest schedules there are: one step each.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// The sender's side of one message.
// Cost: one message per piece; slots >= 1.
struct send_message {
    static constexpr collective op = collective::send_recv;
    static constexpr const char* name = "send";
    static constexpr int chunks(int) { return 1; }
    int peer = 0;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int, int) const {
        ex.step(send, to(peer), in(0));
    }
};

// The receiver's side of one message.
struct recv_message {
    static constexpr collective op = collective::send_recv;
    static constexpr const char* name = "recv";
    static constexpr int chunks(int) { return 1; }
    int peer = 0;

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int, int) const {
        ex.step(recv | copy, from(peer), out(0));
    }
};

} // namespace algo
COLLX_END_NAMESPACE
