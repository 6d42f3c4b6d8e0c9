// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The composed form of an algorithm of messages, as composed.hpp is that of one over windows: its function runs
// directly over the channels, with the mover of one call, so that the compiler sees which sums, moves and waits this
// algorithm makes on this type. It puts the same messages in the same slots as a task, which a peer may be running.
//
// For algorithms of one strand, between ranks that share memory, whose messages are one piece and never single copies.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/exec/bound_schedule.hpp>
#include <collx/exec/pieces.hpp>
#include <collx/exec/single_copy.hpp>
#include <collx/sched/executor.hpp>
#include <collx/transport/links.hpp>
#include <collx/transport/write_for_others.hpp>

COLLX_BEGIN_NAMESPACE

// Whether the steps of a bound algorithm can run in the order in which its function names them, over channels alone.
inline bool is_composable_of_messages(const bound_schedule& plan) {
    if (plan.window != nullptr || plan.steps.strands.size() != 1) return false;
    for (const sched::step& s : plan.steps.strands[0])
        if ((s.what & (sched::recv | sched::send)) == 0 && s.what != sched::copy) return false;
    return true;
}

// What all runs of one call have in common.
template <class Mover>
struct composed_messages {
    links& net;
    bound_schedule& plan;
    Mover& mover;
    const pieces cuts;

    composed_messages(links& l, bound_schedule& b, Mover& m, const chunk_layout& in, const chunk_layout& out,
                      std::size_t piece_elems)
        : net(l), plan(b), mover(m), cuts(in, out, b.chunks, piece_elems) {}

    // Whether each message is one piece that a slot's ring carries like any other.
    bool fits() const {
        if (cuts.count != 1 || alignof(wire) > 16) return false;
        for (const sched::step& s : plan.steps.strands[0])
            for (const sched::ref& r : {s.src, s.dst})
                if (r.where != sched::place::none || (s.what & sched::send) != 0) {
                    const std::size_t bytes = cuts.message_elems(r.where, r.chunks, 0) * sizeof(wire);
                    if (bytes >= least_measured_bytes || bytes > net.slot_bytes()) return false;
                }
        return true;
    }

    using wire = typename Mover::wire_type;
};

// Wait: message(rx, bytes, tag, peer) returns when there is this message, room(tx, bytes, peer) when there is room for
// one; both may throw.
template <class Mover, class Wait>
class composed_message_run : public sched::verbs<composed_message_run<Mover, Wait>> {
    using wire = typename Mover::wire_type;

public:
    // agreed: see call_state.
    composed_message_run(const composed_messages<Mover>& call, Wait& wait, std::uint64_t agreed)
        : call_(call), wait_(wait), agreed_(folded(agreed)) {
        call.mover.set_tmp(call.plan.scratch, call.plan.scratch_travels);
    }

    template <sched::action What>
    COLLX_ALWAYS_INLINE void emit(sched::step s) {
        if constexpr (What != sched::copy && (What & (sched::recv | sched::send)) == 0)
            __builtin_unreachable(); // see is_composable_of_messages
        s.src.chunks = pieces::settled(s.src.chunks, call_.plan.chunks);
        s.dst.chunks = pieces::settled(s.dst.chunks, call_.plan.chunks);
        if constexpr (What == sched::copy) copy(s);
        else message<What>(s);
    }

private:
    COLLX_ALWAYS_INLINE void copy(const sched::step& s) {
        for (int i = 0; i < s.dst.chunks.count; ++i) {
            const pieces::part from = part(s.src, i), to = part(s.dst, i);
            call_.mover.move(s.src.where, from.at, s.dst.where, to.at, from.count);
        }
    }
    template <sched::action What>
    COLLX_ALWAYS_INLINE void message(const sched::step& s) {
        constexpr bool receives = (What & sched::recv) != 0, sends = (What & sched::send) != 0;
        const sched::ref& shape =
            (What & sched::copy) != 0 || !sends ? s.dst : (s.src.where != sched::place::none ? s.src : s.dst);
        const std::size_t bytes = call_.cuts.message_elems(shape.where, shape.chunks, 0) * sizeof(wire);
        const std::uint32_t tag = call_.cuts.transfer_tag(shape) ^ agreed_;
        const int port = call_.plan.at_port;
        receiving_end* rx = nullptr;
        sending_end* tx = nullptr;
        const std::byte* in = nullptr;
        std::byte* out = nullptr;
        if constexpr (receives) {
            rx = &call_.net.rx(port, s.peer_from);
            wait_.message(*rx, bytes, tag, s.peer_from);
            in = rx->peek(bytes);
        }
        if constexpr (sends) {
            tx = &call_.net.tx(port, s.peer_to);
            wait_.room(*tx, bytes, s.peer_to);
            if (bytes >= call_.plan.least_restarted_bytes) tx->restart_if_empty();
            out = tx->try_acquire(bytes);
        }
        for (int i = 0; i < shape.chunks.count; ++i) {
            const std::size_t done = touch<What>(s, i, in, out) * sizeof(wire);
            if constexpr (receives) in += done;
            if constexpr (sends) out += done;
        }
        if constexpr (sends) tx->commit(bytes, tag);
        if constexpr (receives) rx->release(bytes);
    }
    // Does one chunk; returns its number of elements.
    template <sched::action What>
    COLLX_ALWAYS_INLINE std::size_t touch(const sched::step& s, int i, const std::byte* in, std::byte* out) {
        const auto* const received = reinterpret_cast<const wire*>(in);
        auto* const forward = reinterpret_cast<wire*>(out);
        if constexpr ((What & sched::recv) == 0) {
            const pieces::part from = part(s.src, i);
            call_.mover.load(forward, s.src.where, from.at, from.count);
            return from.count;
        } else if constexpr ((What & (sched::reduce | sched::reduce_after)) != 0) {
            const pieces::part own = part(s.src, i), to = part(s.dst, i);
            call_.mover.combine(received, (What & sched::reduce) != 0, s.src.where, own.at, s.dst.where, to.at, forward,
                                own.count);
            return own.count;
        } else {
            const pieces::part to = part(s.dst, i);
            if constexpr ((What & sched::copy) != 0) call_.mover.store(s.dst.where, to.at, received, to.count);
            if constexpr ((What & sched::send) != 0)
                if (to.count != 0) write_for_others(out, in, to.count * sizeof(wire));
            return to.count;
        }
    }
    COLLX_ALWAYS_INLINE pieces::part part(const sched::ref& r, int i) const {
        return call_.cuts.local(r.where, call_.cuts.chunk(r.chunks, i), 0);
    }

    const composed_messages<Mover>& call_;
    Wait& wait_;
    const std::uint32_t agreed_;
};

COLLX_END_NAMESPACE
