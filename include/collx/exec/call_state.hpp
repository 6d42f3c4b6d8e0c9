// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The state that the parts of a task share: the call's schedule, its elements and how they are cut, and the position of
// each strand in the schedule.
#pragma once

#include <cstddef>

#include <collx/exec/bound_schedule.hpp>
#include <collx/exec/element_ops.hpp>
#include <collx/exec/operation.hpp>
#include <collx/exec/pieces.hpp>
#include <collx/transport/links.hpp>

COLLX_BEGIN_NAMESPACE

// A cursor over one strand.
struct strand_cursor {
    const sched::step *pc, *begin, *end;
    std::size_t piece, count;     // iterations: done, and all
    std::size_t position;         // of this iteration in the window's rings
    int seen;                     // peers that have signalled, in a wait for all ranks
    int index;                    // of the strand
    std::size_t* covered;         // by step: the first piece that has not gone with an earlier one; null: none has
    const receiving_end* awaited; // the channel whose message this step waits for, all preparations done; null: none

    std::size_t step_index(const sched::step& s) const { return static_cast<std::size_t>(&s - begin); }
};

struct call_state {
    links& net;
    bound_schedule& plan;
    element_ops& elements;
    pieces cuts;
    operation& op; // the call of these parts: it holds the awaited rank and the error
    // A number that is the same on all ranks of this call and differs from other calls (communicator_core::agree; for a
    // message between two ranks the kind of its elements). Messages and signals carry bits of it.
    std::uint64_t agreed;

    std::size_t bytes_of(std::size_t elems) const { return elems * elements.is.bytes; }
    bool blocked_on(int peer, awaited::why what = awaited::why::message) const {
        op.waiting_for = awaited(peer, plan.steps.strands.size() == 1 ? what : awaited::why::one_of_several);
        return false;
    }
    bool refused(const odd_message& m) const {
        op.error = net.refuse(m);
        return false;
    }
    bool broken(errc code, int peer) const {
        op.error = failure(code, peer);
        return false;
    }
};

COLLX_END_NAMESPACE
