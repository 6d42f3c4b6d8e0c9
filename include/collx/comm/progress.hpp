// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Selects who advances outstanding calls: calls alone, or a thread as well. For programs that compute for long between
// their calls.
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

// From with() on, until the communicator ends or with(calls{}), a thread advances its outstanding calls while the
// program is in no call of it, whether they are made through what with() returns or not. Local: other ranks need not
// do the same. Communicators that dup(), split() and shrink() make begin without it. The process has one such thread;
// it serves all communicators that asked, sleeps while none has anything under way, and ends with the last.
// Operators, hooks and iterators of outstanding calls may run in it. What they throw is thrown by the wait() or test()
// of their call, and ends the communicator. A copy of an operator may be destroyed in it.
// core: the core on which the thread runs, -1: any that this process may use. The program should leave it free: see
// docs/performance.md for the cost otherwise.
// Cost: a call takes two more atomic exchanges, and waits until the thread has finished its current piece.
// Errors: invalid_argument (a core that this process may not use, or another than before; in a call of this
//     communicator) · resource (no thread).
struct thread {
    // The core that the thread runs on, -1: any.
    int core = -1;

    // Called by with().
    void apply_to(communicator_core& c) const {
        bool has_work = false;
        auto* here_already = static_cast<detail::progress_member*>(c.helper.get());
        {
            const detail::one_caller::call here(c.caller, c.net.rank());
            c.require_own();
            if (here_already != nullptr && !here_already->has_left()) return here_already->pin(core);
            has_work = !c.pending.empty();
        }
        if (here_already != nullptr) {
            here_already->join(core);
        } else {
            auto made = make_sole<detail::progress_member>(c);
            made->join(core);
            c.helper = std::move(made);
        }
        c.caller.share(c.net.rank());
        if (has_work) c.helper->wake();
    }
};

// Only calls advance outstanding calls: the default.
struct calls {
    // Called by with().
    void apply_to(communicator_core& c) const {
        c.require_own();
        { const detail::one_caller::call here(c.caller, c.net.rank()); }
        if (c.helper == nullptr) return;
        auto& member = static_cast<detail::progress_member&>(*c.helper);
        member.leave();
        if (!member.has_exceptions()) c.helper = nullptr; // else wait() of their calls throws them
    }
};

} // namespace progress
COLLX_END_NAMESPACE
