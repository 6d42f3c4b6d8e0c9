// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Large messages between hosts that bypass slots: sent from the user's memory and received into it, where the schedule
// leaves that memory unchanged for long enough (docs/design/sockets.md). The code reads schedules and moves both ends
// of a channel on; the task does what a step does to elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/copy_bytes.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/exec/channel_steps.hpp>
#include <collx/exec/element_ops.hpp>
#include <collx/exec/pieces.hpp>
#include <collx/exec/remote.hpp>
#include <collx/exec/single_copy.hpp>

COLLX_BEGIN_NAMESPACE

// One step of a call, and the memory that it uses. Requires: plain elements, because what hooks or a wire type change
// on the way is not what lies there.
struct remote_step {
    const bound_schedule& plan;
    const pieces& cuts;
    const element_ops& elements;
    const sched::step& s;
    std::size_t strand, index; // where the step is in the schedule
    std::size_t piece;

    // Where a whole message lies; null: not in the user's memory, or not side by side.
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
    // Where the message to come may be received. Everything that the schedule orders before this step is also ordered
    // before the message.
    std::byte* wanted_at() const {
        constexpr auto reduces = sched::reduce | sched::reduce_after;
        if ((s.what & sched::copy) == 0 || (s.what & reduces) != 0 || s.dst.where != sched::place::out) return nullptr;
        return whole(s.dst);
    }
    // Where the message that the step sends lies once the rest of the step is done; null if it does not stay there.
    const std::byte* sent_from() const {
        const sched::ref& held = (s.what & sched::recv) != 0 ? s.dst : s.src;
        if (held.where == sched::place::in) {
            for (int i = 0; !elements.is_disjoint() && i < held.chunks.count; ++i)
                if (!stays_as_it_is(plan.steps, cuts, elements, held.chunks.at(i, plan.chunks))) return nullptr;
        } else if (held.where != sched::place::out || (plan.remote[strand][index] & bound_schedule::stays) == 0) {
            return nullptr;
        }
        return whole(held);
    }
};

// Runs a step whose message is in its pre-posted buffer, is sent from where it lies, or both. False: neither, and
// nothing was done. Requires: a message and room, as far as the step needs them. take(from) processes the message of a
// slot, without sending it on.
template <class Take>
bool run_remote(const remote_step& f, receiving_end* rx, sending_end* tx, std::size_t bytes, std::uint32_t tag,
                Take&& take) {
    const bool is_posted = rx != nullptr && rx->is_posted();
    const std::byte* const users = tx != nullptr && tx->may_send_in_place() ? f.sent_from() : nullptr;
    if (!is_posted && users == nullptr) return false;
    if (rx != nullptr && !is_posted) take(rx->peek(bytes));
    if (users != nullptr) {
        tx->commit_single_copy(users, bytes, tag);
    } else if (tx != nullptr) { // it is in its place, and is sent on through a slot
        copy_bytes(tx->try_acquire(bytes), f.whole(f.s.dst), bytes);
        tx->commit(bytes, tag);
    }
    if (is_posted) rx->release_posted();
    else if (rx != nullptr) rx->release(bytes);
    return true;
}

// Channel steps that bypass slots.
struct remote_steps {
    static remote_step at(const channel_steps& c, const sched::step& s, const strand_cursor& st) {
        const call_state& call = c.call_;
        return {call.plan, call.cuts, call.elements, s, static_cast<std::size_t>(st.index), st.step_index(s), st.piece};
    }

    static void want(channel_steps& c, const sched::step& s, const strand_cursor& st, receiving_end& rx,
                     std::size_t bytes, std::uint32_t tag) {
        const call_state& call = c.call_;
        if (!call.elements.is.plain) return;
        std::byte* const to = at(c, s, st).wanted_at();
        if (to == nullptr || !rx.want_at(to, bytes, tag) || !call.elements.is_disjoint()) return;
        strand_cursor there = st;
        for (const sched::step* t = st.begin; t != st.end; ++t) {
            there.piece = st.piece + (t < st.pc ? 1 : 0);
            if ((c.may(*t, st) & bound_schedule::alone) == 0 || t == st.pc) continue;
            if (there.piece >= call.cuts.count) continue;
            auto& other = call.net.rx(call.plan.at_port, t->peer_from);
            const std::size_t size = call.bytes_of(call.cuts.message_elems(t->dst.where, t->dst.chunks, there.piece));
            if (!c.is_remote(size, &other, nullptr) || other.has_message()) continue;
            if (std::byte* const next = at(c, *t, there).wanted_at(); next != nullptr)
                (void)other.want_at(next, size, c.tag_of(t->dst));
        }
    }

    static bool run(channel_steps& c, const sched::step& s, const strand_cursor& st, const channel_message& m) {
        if (!c.call_.elements.is.plain) return false;
        return run_remote(at(c, s, st), m.rx, m.tx, m.bytes, m.tag, [&](const std::byte* in) {
            for (int i = 0; i < s.dst.chunks.count; ++i) in += c.call_.bytes_of(c.touch(s, st, i, in, nullptr));
        });
    }
};

namespace detail {

[[gnu::cold]] inline void find_remote(bound_schedule& b) {
    const auto& strands = b.steps.strands;
    detail::growing_array<int> writes(static_cast<std::size_t>(b.chunks)), touches = writes, before, from;
    const auto add = [&](detail::growing_array<int>& count, const sched::ref& r) {
        for (int i = 0; r.where == sched::place::out && i < r.chunks.count; ++i) ++count[r.chunks.at(i, b.chunks)];
    };
    const auto all_are = [&](const sched::ref& r, const detail::growing_array<int>& x, const auto& y) {
        if (r.where != sched::place::out) return false; // scratch may have more chunks than buffers
        for (int i = 0; i < r.chunks.count; ++i) {
            const auto c = static_cast<std::size_t>(r.chunks.at(i, b.chunks));
            if (x[c] != y(c)) return false;
        }
        return true;
    };
    for (const auto& strand : strands)
        for (const auto& s : strand) {
            add(writes, s.dst);
            add(touches, s.dst);
            add(touches, s.src);
            if ((s.what & sched::recv) == 0) continue;
            if (static_cast<std::size_t>(s.peer_from) >= from.size())
                from.resize(static_cast<std::size_t>(s.peer_from) + 1);
            ++from[s.peer_from];
        }
    for (const auto& strand : strands) {
        b.remote.emplace_back();
        before.assign(writes.size(), 0);
        for (const auto& s : strand) {
            add(before, s.dst);
            char flags = 0;
            const sched::ref& held = (s.what & sched::recv) != 0 ? s.dst : s.src;
            const bool is_sent = (s.what & sched::send) != 0 && held.where == sched::place::out;
            b.uses_results |= is_sent || s.src.where == sched::place::out;
            if (is_sent && all_are(held, before, [&](std::size_t c) { return writes[c]; }))
                flags |= bound_schedule::stays;
            if (s.what == (sched::recv | sched::copy) && from[s.peer_from] == 1 &&
                all_are(s.dst, touches, [](std::size_t) { return 1; }))
                flags |= bound_schedule::alone;
            b.remote.back().push_back(flags);
        }
    }
    if (strands.size() != 1) return;
    for (std::size_t i = strands[0].size(); i-- > 0;) {
        if ((strands[0][i].what & sched::send) != 0) b.remote[0][i] |= bound_schedule::last;
        if ((strands[0][i].what & sched::recv) != 0) return;
    }
}

} // namespace detail

COLLX_END_NAMESPACE
