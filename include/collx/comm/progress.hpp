// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Who moves outstanding calls on: calls alone, or a thread as well. For programs that compute for long between their
// calls.
//
//   #include <collx/comm/progress.hpp>
//   auto mine = world.with(collx::progress::thread{});
//   auto sum = collx::async::all_reduce(world, gradient);
//   compute();                                            // meanwhile the sum goes on
//   sum.wait();
#pragma once

#include <collx/comm/bound_communicator.hpp>
#include <collx/job/progress_thread.hpp>

COLLX_BEGIN_NAMESPACE
namespace progress {

// From with() on, until its end or with(calls{}), a communicator's outstanding calls go on while the program is in no
// call of it; made through what with() returns or not. Local: other ranks need not do the same. What dup(), split() and
// shrink() make begins without. There is one thread in the process; it serves all that asked, sleeps while none has
// anything under way, and ends with the last.
// Operators, hooks and iterators of outstanding calls may run in it. What they throw is thrown by the wait() or test()
// of the call that they belong to, and ends the communicator. A copy of an operator may be destroyed in it.
// core: that the thread shall run on, -1: any that this process may use. It wants one that the program leaves free: see
// docs/performance.md for what it costs otherwise.
// Cost: a call takes two atomic exchanges more, and waits until the thread has finished the piece it is at.
// Errors: invalid_argument (a core that this process may not use, or another than before; in a call of this
//     communicator) · resource (no thread).
struct thread {
    // The core that the thread runs on, -1: any.
    int core = -1;

    // What with() does.
    void apply_to(communicator_core& c) const {
        bool has_work = false;
        {
            const detail::one_caller::call here(c.caller, c.net.rank());
            c.require_own();
            if (c.helper) return static_cast<detail::progress_member&>(*c.helper).pin(core);
            has_work = !c.pending.empty();
        }
        auto made = make_sole<detail::progress_member>(c);
        made->join(core);
        c.helper = std::move(made);
        c.caller.share(c.net.rank());
        if (has_work) c.helper->wake();
    }
};

// Calls alone, as in the beginning.
struct calls {
    // What with() does.
    void apply_to(communicator_core& c) const {
        c.require_own();
        { const detail::one_caller::call here(c.caller, c.net.rank()); }
        if (c.helper) c.helper->leave();
        c.helper = nullptr;
    }
};

} // namespace progress
COLLX_END_NAMESPACE
