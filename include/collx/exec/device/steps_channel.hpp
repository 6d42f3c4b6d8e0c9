// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Steps over channels. A channel from rank a to rank b is a ring of slots in b's exchange memory:
//
//     empty --a fills, tail of b's control: message + 1--> full --b drains, head of a's control: message + 1--> empty
//
// a may run `slots` messages ahead. With flags beside the data a message needs no tail. Two barriers a step: one after
// the waits, which is also the vote on giving up, one before the counters are raised. Source: the Simple, LL and LL128
// protocols of NCCL.
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
    if (!has_elements(shape)) return; // both ends know

    const std::uint64_t in_number = receives ? shared_.received[s.peer_from] : 0;
    const std::uint64_t out_number = sends ? shared_.sent[s.peer_to] : 0;
    // Two threads, of two warps where there are two: the message and the room are waited for at once.
    const unsigned second = env_.threads() > 32 ? 32 : env_.threads() - 1;
    bool failed = false;
    if (receives && !flagged && env_.index() == 0)
        failed = !wait_until(waits_for::message, s.peer_from, &control(rank_)->tail[s.peer_from], in_number + 1);
    if (sends && env_.index() == second && out_number >= shared_.drained[s.peer_to] + args_.shape.slots) {
        failed = failed || !wait_until(waits_for::room, s.peer_to, &control(rank_)->head[s.peer_to],
                                       out_number + 1 - args_.shape.slots, &shared_.drained[s.peer_to]);
    }
    stop_if(env_.any(failed));
    if (this->has_stopped()) return;
    if (env_.index() == 0) { // all threads have read them
        if constexpr (receives) shared_.received[s.peer_from] = in_number + 1;
        if constexpr (sends) shared_.sent[s.peer_to] = out_number + 1;
    }

    const std::byte* rx = receives ? slot_of(rank_, s.peer_from, in_number) : nullptr;
    std::byte* tx = sends ? slot_of(s.peer_to, rank_, out_number) : nullptr;
    std::size_t at = 0;
    COLLX_ROLLED
    for (int i = 0; i < shape.chunks.count; ++i) {
        const std::size_t n = local(shape.where, shape.chunks.at(i, args_.chunks)).count;
        if (n == 0) continue;
        const std::byte* from = receives ? rx + at : rx;
        std::byte* to = sends ? tx + at : tx;
        if constexpr (lines) transfer_lines<What>(s, i, from, to, in_number + 1, out_number + 1);
        else
            transfer<What>(s, i, from, to, static_cast<std::uint32_t>(in_number + 1),
                           static_cast<std::uint32_t>(out_number + 1));
        at += lines ? pairs_of(n) * pair_bytes : packs_of(n) * stride;
    }
    if constexpr (sends && words)
        refresh(tx, args_.shape.flag_slot_bytes, static_cast<unsigned>(at / stride),
                static_cast<std::uint32_t>(out_number + 1));

    if constexpr (flagged) stop_if(env_.any(failed_));
    else env_.sync();
    if (sends && !flagged && env_.index() == 0) Env::store_release(&control(s.peer_to)->tail[rank_], out_number + 1);
    if (receives && env_.index() == second) Env::store_release(&control(s.peer_from)->head[rank_], in_number + 1);
}

// What a step makes of elements that were received, of own ones, or of both: combined, and kept where it keeps.
template <class Env, class Algorithm, class Types, class Protocol, int Groups>
template <sched::action What, class W>
COLLX_ALWAYS_INLINE COLLX_HD typename executor<Env, Algorithm, Types, Protocol, Groups>::template acc_of<W>
executor<Env, Algorithm, Types, Protocol, Groups>::work(const sched::step& s, std::size_t to, unsigned i, unsigned m,
                                                        const acc_of<W>& got, const acc_of<W>& own) {
    constexpr bool combines = (What & (sched::reduce | sched::reduce_after)) != 0;
    acc_of<W> acc = (What & sched::recv) != 0 ? got : own;
    // Two ranks that exchange operands must combine the same two numbers.
    if constexpr ((What & sched::reduce) != 0)
        acc = access::template combine<W>(op(), got, access::through_wire(own), m);
    if constexpr ((What & sched::reduce_after) != 0)
        acc = access::template combine<W>(op(), access::through_wire(own), got, m);
    if constexpr ((What & sched::copy) != 0) {
        if (combines && s.dst.where == place::out)
            access::template finish<W>(op(), ranks(), to + std::size_t{i} * W::n, m, acc);
        this->template write<W>(s.dst.where, to, i, m, acc);
    }
    return acc;
}

// Chunk i of a message: received or own elements, combined, kept and sent on in one pass.
template <class Env, class Algorithm, class Types, class Protocol, int Groups>
template <sched::action What>
COLLX_HD void executor<Env, Algorithm, Types, Protocol, Groups>::transfer(const sched::step& s, int i,
                                                                          const std::byte* rx, std::byte* tx,
                                                                          std::uint32_t rx_flag,
                                                                          std::uint32_t tx_flag) {
    constexpr bool receives = (What & sched::recv) != 0, sends = (What & sched::send) != 0;
    using operands = operands_of<What>;
    const operands x(*this, s, i);
    if constexpr (words) { // one wait for whole packs and the tail
        const unsigned elems = static_cast<unsigned>(x.count), packs = packs_of(x.count),
                       whole = x.fast ? elems / V : 0;
        COLLX_ROLLED
        for (unsigned p = env_.index(); p < packs; p += env_.threads()) {
            wire_pack w{};
            if constexpr (receives) w = receive_words(rx + p * stride, rx_flag, s.peer_from);
            if (p < whole) w = this->template through<What, packed>(s, x, p, V, w);
            else w = this->template through<What, partial>(s, x, p, elems - p * V < V ? elems - p * V : V, w);
            if constexpr (sends) store_packet<Env>(tx + p * stride, w, tx_flag);
        }
    } else {
        each_pack<unroll>(
            x.count, x.fast,
            [&](auto w, unsigned p, unsigned m) {
                using W = decltype(w);
                struct {
                    acc_of<W> got, own;
                } h{};
                if constexpr (receives) h.got = access::from_wire(this->template load_wire<W>(rx, p));
                if constexpr (operands::reads) h.own = this->template read<W>(s.src.where, x.from, p, m);
                return h;
            },
            [&](auto w, unsigned p, unsigned m, const auto& h) {
                using W = decltype(w);
                const auto acc = this->template work<What, W>(s, x.to, p, m, h.got, h.own);
                if constexpr (sends) this->template store_wire<W>(tx, p, acc);
            });
    }
}

// A pack of the wire as it comes and as it goes.
template <class Env, class Algorithm, class Types, class Protocol, int Groups>
template <sched::action What, class W>
COLLX_ALWAYS_INLINE COLLX_HD typename executor<Env, Algorithm, Types, Protocol, Groups>::wire_pack
executor<Env, Algorithm, Types, Protocol, Groups>::through(const sched::step& s, const operands_of<What>& x, unsigned p,
                                                           unsigned m, const wire_pack& w) {
    acc_pack own{};
    if constexpr (operands_of<What>::reads) own = this->template read<W>(s.src.where, x.from, p, m);
    return access::to_wire(this->template work<What, W>(s, x.to, p, m, access::from_wire(w), own));
}

// The same in lines of 128 bytes. The threads of a line go through the loop together: they look at one flag.
template <class Env, class Algorithm, class Types, class Protocol, int Groups>
template <sched::action What>
COLLX_HD void executor<Env, Algorithm, Types, Protocol, Groups>::transfer_lines(const sched::step& s, int i,
                                                                                const std::byte* rx, std::byte* tx,
                                                                                std::uint64_t rx_flag,
                                                                                std::uint64_t tx_flag) {
    static_assert(
        !lines || wire_pack::bytes == sizeof(unit16),
        "collx: lines of 128 bytes carry elements of 1, 2, 4, 8 or 16 bytes, and accumulators at most twice as "
        "wide. Use packet_protocol or simple_protocol.");
    constexpr bool receives = (What & sched::recv) != 0, sends = (What & sched::send) != 0;
    constexpr unsigned team = Env::line_threads, cells = line_cells / team; // of a line, that this thread moves
    const operands_of<What> x(*this, s, i);
    const unsigned elems = static_cast<unsigned>(x.count), packs = packs_of(x.count), whole = x.fast ? elems / V : 0;
    const unsigned me = env_.index() % team, pairs = pairs_of(x.count);
    COLLX_ROLLED
    for (unsigned q = env_.index() / team; q < pairs; q += env_.threads() / team) {
        unit16 got[2][cells] = {}, next[2][cells] = {};
        if constexpr (receives) {
            const auto* from = reinterpret_cast<const unit16*>(rx + q * pair_bytes);
            if (!failed_ && !this->template poll<true>(waits_for::packet, s.peer_from,
                                                       [&] { return env_.try_load_lines(from, rx_flag, got); }))
                failed_ = true;
        }
        COLLX_UNROLL
        for (unsigned k = 0; k < 2 * cells; ++k) {
            const unsigned line = k / cells, c = k % cells, cell = c * team + me;
            const bool is_last = cell == line_cells - 1; // its two halves are one pack
            if (is_last && line == 1) continue;
            const unsigned p = q * pair_packs + (is_last ? pair_packs - 1 : line * (line_cells - 1) + cell);
            unit16 raw = is_last ? unit16{got[0][c].low, got[1][c].low} : got[line][c];
            wire_pack w{};
            __builtin_memcpy(static_cast<void*>(&w), &raw, sizeof raw);
            if (p < whole) w = this->template through<What, packed>(s, x, p, V, w);
            else if (p < packs)
                w = this->template through<What, partial>(s, x, p, elems - p * V < V ? elems - p * V : V, w);
            __builtin_memcpy(&raw, static_cast<const void*>(&w), sizeof raw);
            if (is_last) {
                next[0][c] = {raw.low, tx_flag};
                next[1][c] = {raw.high, tx_flag};
            } else {
                next[line][c] = raw;
            }
        }
        if constexpr (sends) env_.store_lines(reinterpret_cast<unit16*>(tx + q * pair_bytes), next);
    }
}

} // namespace device
COLLX_END_NAMESPACE
