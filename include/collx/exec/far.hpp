// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Large messages between hosts without a stop in a slot: sent from the user's memory and received into it, where the
// schedule leaves that memory alone for as long (docs/design/sockets.md). Reads schedules and moves both ends of a
// channel on; what a step does to elements is the task's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <collx/exec/bound_schedule.hpp>
#include <collx/exec/element_ops.hpp>
#include <collx/exec/lending.hpp>
#include <collx/exec/pieces.hpp>
#include <collx/transport/channel.hpp>

COLLX_BEGIN_NAMESPACE

// Below, copying costs less than what it takes to do without.
inline constexpr std::size_t least_far_bytes = 16 * 1024;

// One step of a call, and the memory that it is about. Requires: plain elements. What hooks or a wire type would change
// on the way is not what lies there.
struct far_step {
    const bound_schedule& plan;
    const pieces& cuts;
    const element_ops& elements;
    const sched::step& s;
    std::size_t strand, index; // where the step is in the schedule
    std::size_t piece;

    // Where all of a message lies; null: not in the user's memory, or in several places.
    std::byte* whole(const sched::ref& r) const {
        if (r.where != sched::place::in && r.where != sched::place::out) return nullptr;
        const chunk_layout& l = r.where == sched::place::in ? cuts.in : cuts.out;
        const pieces::part first = cuts.cut(l, r.chunks.at(0, plan.chunks), piece);
        std::size_t end = first.at + first.count;
        for (int i = 1; i < r.chunks.count; ++i) {
            const pieces::part next = cuts.cut(l, r.chunks.at(i, plan.chunks), piece);
            if (next.count != 0 && next.at != end) return nullptr;
            end += next.count;
        }
        std::byte* const base = r.where == sched::place::in ? const_cast<std::byte*>(elements.is.in) : elements.is.out;
        return base + first.at * elements.is.bytes;
    }
    // Where the message to come may be received. Whatever the schedule orders before this step comes before the message
    // too.
    std::byte* wanted_at() const {
        constexpr auto reduces = sched::reduce | sched::reduce_after;
        if ((s.what & sched::copy) == 0 || (s.what & reduces) != 0 || s.dst.where != sched::place::out) return nullptr;
        return whole(s.dst);
    }
    // Where the message that the step sends lies once the rest of the step is done, if it stays there.
    const std::byte* sent_from() const {
        const sched::ref& held = (s.what & sched::recv) != 0 ? s.dst : s.src;
        if (held.where == sched::place::in) {
            for (int i = 0; !elements.is_apart() && i < held.chunks.count; ++i)
                if (!stays_as_it_is(plan.steps, cuts, elements, held.chunks.at(i, plan.chunks))) return nullptr;
        } else if (held.where != sched::place::out || (plan.far[strand][index] & bound_schedule::stays) == 0) {
            return nullptr;
        }
        return whole(held);
    }
};

// A step whose message has landed, is sent from where it lies, or both. False if neither: nothing was done. Requires: a
// message and room, as far as the step wants them. take(from): works a message of a slot in, without sending it on.
template <class Take>
bool run_far(const far_step& f, receiving_end* rx, sending_end* tx, std::size_t bytes, std::uint32_t tag, Take&& take) {
    const bool has_landed = rx != nullptr && rx->has_landed();
    const std::byte* const lent = tx != nullptr && tx->may_send_in_place() ? f.sent_from() : nullptr;
    if (!has_landed && lent == nullptr) return false;
    if (rx != nullptr && !has_landed) take(rx->peek(bytes));
    if (lent != nullptr) {
        tx->lend(lent, bytes, tag);
    } else if (tx != nullptr) { // landed, and goes on to a slot
        std::memcpy(tx->try_acquire(bytes), f.whole(f.s.dst), bytes);
        tx->commit(bytes, tag);
    }
    if (has_landed) rx->release_landed();
    else if (rx != nullptr) rx->release(bytes);
    return true;
}

COLLX_END_NAMESPACE
