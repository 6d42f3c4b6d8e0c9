// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Steps over channels. A channel from rank a to rank b is a ring of slots in b's exchange memory:
//
//     empty --a fills, tail of b's control: message + 1--> full --b drains, head of a's control: message + 1--> empty
//
// a may run `slots` messages ahead. With flags in the words a message needs no tail. Two barriers a step: one after the
// waits, which is also the vote on giving up, one before the counters are raised.
// Source: the Simple and LL protocols of NCCL.
#pragma once

#include <collx/exec/device/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

template <class Env, class Algorithm, class Types, class Protocol, int Groups>
template <sched::action What>
COLLX_HD void executor<Env, Algorithm, Types, Protocol, Groups>::channel(const sched::step& s) {
    constexpr bool receives = (What & sched::recv) != 0, sends = (What & sched::send) != 0;
    constexpr bool keeps = (What & sched::copy) != 0;
    const sched::ref& shape = keeps || !sends ? s.dst : (s.src.where != place::none ? s.src : s.dst);
    if (cuts_.message_elems(shape.where, pieces::settled(shape.chunks, cuts_.chunks), piece_) == 0)
        return; // both ends know

    const std::uint64_t in_number = receives ? shared_.received[s.peer_from] : 0;
    const std::uint64_t out_number = sends ? shared_.sent[s.peer_to] : 0;
    // Two threads, of two warps where there are two: the message and the room are waited for at once.
    const unsigned second = env_.threads() > 32 ? 32 : env_.threads() - 1;
    bool failed = false;
    if (receives && !flagged && env_.index() == 0)
        failed = !wait_until(waits_for::message, s.peer_from, &control(rank_)->tail[s.peer_from], in_number + 1);
    if (sends && env_.index() == second && out_number >= shared_.drained[s.peer_to] + args_.shape.slots) {
        const std::uint64_t* head = &control(rank_)->head[s.peer_to];
        failed = failed || !wait_until(waits_for::room, s.peer_to, head, out_number + 1 - args_.shape.slots);
        shared_.drained[s.peer_to] = Env::load_relaxed(head); // read by this thread alone
    }
    stop_if(env_.any(failed));
    if (this->has_stopped()) return;
    if (env_.index() == 0) { // all threads have read them
        if constexpr (receives) shared_.received[s.peer_from] = in_number + 1;
        if constexpr (sends) shared_.sent[s.peer_to] = out_number + 1;
    }

    const std::byte* rx =
        receives ? args_.lane_of(rank_, lane_) + args_.shape.slot_at(s.peer_from, in_number) : nullptr;
    std::byte* tx = sends ? args_.lane_of(s.peer_to, lane_) + args_.shape.slot_at(rank_, out_number) : nullptr;
    const auto rx_flag = static_cast<std::uint32_t>(in_number + 1),
               tx_flag = static_cast<std::uint32_t>(out_number + 1);
    std::size_t at = 0;
    for (int i = 0; i < shape.chunks.count; ++i) {
        const std::size_t n = local(shape.where, shape.chunks.at(i, args_.chunks)).count;
        if (n == 0) continue;
        transfer<What>(s, i, receives ? rx + at : rx, sends ? tx + at : tx, rx_flag, tx_flag);
        at += packs_of(n) * stride;
    }
    if constexpr (sends && flagged) refresh(tx, args_.shape.slot_bytes, static_cast<unsigned>(at / stride), tx_flag);

    if constexpr (flagged) stop_if(env_.any(failed_));
    else env_.sync();
    if (sends && !flagged && env_.index() == 0) Env::store_release(&control(s.peer_to)->tail[rank_], out_number + 1);
    if (receives && env_.index() == second) Env::store_release(&control(s.peer_from)->head[rank_], in_number + 1);
}

// Chunk i of a message: received or own elements, combined, kept and sent on in one pass.
template <class Env, class Algorithm, class Types, class Protocol, int Groups>
template <sched::action What>
COLLX_HD void executor<Env, Algorithm, Types, Protocol, Groups>::transfer(const sched::step& s, int i,
                                                                          const std::byte* rx, std::byte* tx,
                                                                          std::uint32_t rx_flag,
                                                                          std::uint32_t tx_flag) {
    constexpr bool receives = (What & sched::recv) != 0, sends = (What & sched::send) != 0;
    constexpr bool keeps = (What & sched::copy) != 0, combines = (What & (sched::reduce | sched::reduce_after)) != 0;
    constexpr bool reads = combines || !receives;
    struct held {
        acc_pack got, own;
    };
    part from{}, to{};
    if constexpr (reads) from = local(s.src.where, s.src.chunks.at(i, args_.chunks));
    if constexpr (keeps || !reads) to = local(s.dst.where, s.dst.chunks.at(i, args_.chunks));
    const std::size_t n = reads ? from.count : to.count;
    const bool fast = (!reads || is_aligned_at(s.src.where, from.at)) && (!keeps || is_aligned_at(s.dst.where, to.at));
    each_pack<unroll>(
        n, fast,
        [&](auto is_fast, unsigned p, unsigned m) {
            held h{};
            if constexpr (receives) {
                wire_pack w;
                if constexpr (flagged) w = receive_words(rx + p * stride, rx_flag, s.peer_from);
                else w = load_pack<Env, wire_type, V>(rx + p * stride);
                h.got = access::from_wire(w);
            }
            if constexpr (reads) h.own = this->template read<is_fast.value>(s.src.where, from.at, p, m);
            return h;
        },
        [&](auto is_fast, unsigned p, unsigned m, const held& h) {
            acc_pack acc = receives ? h.got : h.own;
            // Two ranks that exchange operands must combine the same two numbers.
            if constexpr ((What & sched::reduce) != 0)
                acc = access::template combine<is_fast.value>(op(), h.got, access::through_wire(h.own), m);
            if constexpr ((What & sched::reduce_after) != 0)
                acc = access::template combine<is_fast.value>(op(), access::through_wire(h.own), h.got, m);
            if constexpr (keeps) {
                if (combines && s.dst.where == place::out)
                    access::template finish<is_fast.value>(op(), ranks(), to.at + p * V, m, acc);
                this->template write<is_fast.value>(s.dst.where, to.at, p, m, acc);
            }
            if constexpr (sends) {
                if constexpr (flagged) store_packet<Env>(tx + p * stride, access::to_wire(acc), tx_flag);
                else store_pack<Env>(tx + p * stride, access::to_wire(acc));
            }
        });
}

} // namespace device
COLLX_END_NAMESPACE
