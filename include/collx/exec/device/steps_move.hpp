// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Steps that move data: over channels, into windows and out of them, and from place to place. All kinds share one body,
// compiled once per kernel and called. They differ in a few branches that all threads take alike, and a step lasts as
// long as its memory accesses. A channel from rank a to rank b is a ring of slots in b's exchange memory:
//
//     empty --a fills, tail of b's control: message + 1--> full --b drains, head of a's control: message + 1--> empty
//
// a may run `slots` messages ahead. A message with flags beside its data needs no tail. A step has two barriers: one
// after the waits, which is also the vote on giving up, and one before the counters are raised. Source: the Simple, LL
// and LL128 protocols of NCCL.
#pragma once

#include <collx/exec/device/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// Not specialised by kind: where the kind is known, inlining leaves out what it rules out.
template <class Kind>
template <bool Channels>
COLLX_ALWAYS_INLINE COLLX_HD void executor<Kind>::hand_over(const sched::step& s) {
    const sched::ref& shape = chunk_move::counts_by_dst(s.what, s.src.where) ? s.dst : s.src;
    const int chunks = shape.chunks.count;
    const bool travels = Channels && (s.what & (sched::recv | sched::send)) != 0;
    if (travels && chunks > 1 && !run_has_elements(args().cuts, shape, args_.chunks, rank_, piece(), args_.piece_elems))
        return; // both ends know that the message is empty
    std::uint32_t at = 0;
    COLLX_ROLLED
    for (int i = 0; i < chunks; ++i) {
        const move_result done = run_move<Channels>(
            this->state(failed_), {static_cast<std::uint16_t>(s.what), s.src.where, s.dst.where,
                                   static_cast<std::uint8_t>(s.peer_from), static_cast<std::uint8_t>(s.peer_to), i == 0,
                                   i + 1 == chunks, static_cast<std::uint16_t>(s.src.chunks.at(i, args_.chunks)),
                                   static_cast<std::uint16_t>(s.dst.chunks.at(i, args_.chunks)), at});
        at = done.at;
        failed_ = done.failed;
        stop_if(done.stops);
        if (done.stops) return;
    }
}

// Not inlined.
template <class Kind>
template <bool Channels>
COLLX_HD move_result executor<Kind>::run_move(thread_state t, chunk_move m) {
    auto&& env = Env::take_over(t.env);
    executor ex(env, t);
    const std::uint32_t at = ex.template move<Channels>(m);
    return {at, ex.has_stopped(), ex.failed_};
}

template <class Kind>
template <bool Channels>
COLLX_HD std::uint32_t executor<Kind>::move(const chunk_move& m) {
    const bool travels = Channels && m.travels();
    transfer x = plan(m);
    if (travels) {
        if (m.is_first && m.is_last && x.count == 0) return 0; // both ends know that the message is empty
        use_slots(m, x);
        if (this->has_stopped()) return 0;
    }
    std::uint32_t at = m.at;
    if (!Channels || x.count != 0) {
        if constexpr (!Channels) use_windows(m, x);
        if (!x.finishes || x.combines || !access::is_in_place(mine(), mine(), x.from, x.to)) {
            if constexpr (lines) carry_lines(x);
            else if constexpr (words) carry_words(x);
            else if constexpr (!Channels && moves_as_is) carry_as_is(x);
            else carry<Channels>(x);
        }
        at += static_cast<std::uint32_t>(lines ? pairs_of(x.count) * pair_bytes : packs_of(x.count) * stride);
    }
    if (travels && m.is_last) leave(m, at);
    return at;
}

template <class Kind>
COLLX_HD message_ends executor<Kind>::ends_of(const chunk_move& m) const {
    return {static_cast<std::int16_t>(m.has(sched::recv) ? m.peer_from : -1),
            static_cast<std::int16_t>(m.has(sched::send) ? m.peer_to : -1), flagged, m.is_first};
}

template <class Kind>
COLLX_HD void executor<Kind>::leave(const chunk_move& m, std::uint32_t at) {
    if (words && m.has(sched::send))
        refresh(this->slot_of(m.peer_to, rank_, shared_.sent[m.peer_to], flagged), args_.shape.flag_slot_bytes,
                static_cast<unsigned>(at / stride), static_cast<std::uint32_t>(shared_.sent[m.peer_to] + 1));
    stop_if(worker::run_leave(this->state(failed_), ends_of(m)));
}

// Where a chunk lies, except in slots and windows.
template <class Kind>
COLLX_HD transfer executor<Kind>::plan(const chunk_move& m) const {
    transfer x;
    x.receives = m.has(sched::recv);
    x.combines = Types::reduces && m.has(sched::reduce | sched::reduce_after);
    x.own_first = m.has(sched::reduce_after);
    x.reads = x.combines || !x.receives;
    x.keeps = m.has(sched::copy);
    x.sends = m.has(sched::send);
    x.src_at = m.src_at;
    x.dst_at = m.dst_at;
    // What a reduction leaves in `out` is complete, and so is the whole collective of a single rank.
    x.finishes = x.keeps && m.dst_at == place::out && (x.combines || (m.what == sched::copy && m.src_at == place::in));
    x.owner = m.owner(rank_);
    x.peer = m.peer_from;
    const chunk_parts parts = run_plan(args().cuts, m, rank_, piece(), args_.piece_elems, cell_elems());
    x.from = parts.from;
    x.to = parts.to;
    x.count = parts.count;
    x.rx = x.tx = args_.exchange[rank_]; // no address is ever null
    x.is_fast = (!x.reads || is_aligned_at(own_operand(x))) && (!x.keeps || is_aligned_at(result_operand(x)));
    return x;
}

template <class Kind>
COLLX_HD void executor<Kind>::use_slots(const chunk_move& m, transfer& x) {
    const message_slots slots = worker::run_enter(this->state(false), ends_of(m));
    stop_if(slots.stops);
    x.rx = slots.rx + m.at;
    x.rx_flag = slots.in_number + 1;
    x.tx = slots.tx + m.at;
    x.tx_flag = slots.out_number + 1;
}

// A put sends into my own window. A get receives from a peer's window, or from the words that the peer pushed.
template <class Kind>
COLLX_HD void executor<Kind>::use_windows(const chunk_move& m, transfer& x) const {
    const bool puts = sched::is_window(m.dst_at), gets = sched::is_window(m.src_at);
    if (puts) {
        x.keeps = false;
        x.sends = true;
    }
    if (gets) {
        x.receives = true;
        x.reads = false;
    }
    x.tx = window_at(rank_, sched::segment_of(m.dst_at), m.dst_chunk);
    const int peer = gets ? m.peer_from : rank_;
    const int segment = sched::segment_of(m.src_at);
    // A switch has stored finished elements to all ranks' windows.
    const int holder = multicasts && segment == 1 ? rank_ : peer;
    x.rx = flagged ? packets_at(gets ? segment : 0, rank_, peer) : window_at(holder, segment, m.src_chunk);
    x.rx_flag = x.tx_flag = window_flag();
}

// Combines received elements and own ones.
template <class Kind>
template <class W>
COLLX_ALWAYS_INLINE COLLX_HD typename executor<Kind>::template acc_of<W>
executor<Kind>::combined(const transfer& x, const acc_of<W>& got, const acc_of<W>& own, unsigned m) const {
    // Two ranks that exchange operands must combine the same two numbers.
    const acc_of<W> rounded = access::through_wire(own);
    if (!is_commutative_v<typename Types::op_type, acc_type> && x.own_first)
        return access::template combine<W>(op(), rounded, got, m);
    return access::template combine<W>(op(), got, rounded, m);
}

// Moves elements out of windows and into them unchanged: one load, one store, whatever the places.
template <class Kind>
COLLX_HD void executor<Kind>::carry_as_is(const transfer& x) {
    // Chosen as bytes: from a choice of two pointers to a one-byte structure (e4m3) NVCC 13.0 makes a broken function.
    const auto* from =
        reinterpret_cast<const wire_type*>(x.receives ? x.rx : reinterpret_cast<const std::byte*>(own_operand(x).p));
    auto* to = reinterpret_cast<wire_type*>(x.sends ? x.tx : reinterpret_cast<std::byte*>(result_operand(x).p));
    // Windows begin with a pack; two buffers may agree from a later element on.
    const unsigned shift = x.receives || x.sends ? 0 : elems_before_pack<wire_type, V>(to);
    const bool fits = is_aligned<wire_type, V>(from + shift) && is_aligned<wire_type, V>(to + shift);
    each_pack<4>(x.count, fits ? shift : no_packs, [&](auto w, auto count, unsigned i, unsigned step, unsigned m) {
        using W = decltype(w);
        constexpr int U = count.value;
        const auto nth = [=](int u) { return i + static_cast<unsigned>(u) * step; };
        wire_of<W> packs[U];
        COLLX_UNROLL
        for (int u = 0; u < U; ++u) packs[u] = access::template read_raw<W>(from + nth(u), count_at<W>(nth(u), m));
        COLLX_UNROLL
        for (int u = 0; u < U; ++u) access::template write_raw<W>(to + nth(u), count_at<W>(nth(u), m), packs[u]);
    });
}

// Makes all loads of U packs first, those of the wire unconverted: no arithmetic may wait for one load before the next
// is under way. Only elements that come through a channel are combined.
template <class Kind>
template <bool Channels>
COLLX_HD void executor<Kind>::carry(const transfer& x) {
    const operand own = own_operand(x), result = result_operand(x);
    // Two operands are under way.
    constexpr int N = (narrow_unroll(sizeof(acc_type)) + 1) / 2;
    each_pack<unroll, N>(x.count, x.is_fast ? 0 : no_packs,
                         [&](auto w, auto count, unsigned i, unsigned step, unsigned end) {
                             using W = decltype(w);
                             constexpr int U = count.value;
                             const auto nth = [=](int u) { return i + static_cast<unsigned>(u) * step; };
                             const auto m = [=](int u) { return count_at<W>(nth(u), end); };
                             waiting_pack<wire_type, W::n> got[U]{};
                             acc_of<W> acc[U]{};
                             if (x.receives) {
                                 COLLX_UNROLL
                                 for (int u = 0; u < U; ++u)
                                     got[u].keep(this->template load_wire<W>(x.rx, nth(u), m(u)));
                             }
                             if (x.reads) {
                                 COLLX_UNROLL
                                 for (int u = 0; u < U; ++u) acc[u] = this->template read<W>(own, nth(u), m(u));
                             }
                             if (x.receives) {
                                 acc_of<W> in[U];
                                 COLLX_UNROLL
                                 for (int u = 0; u < U; ++u) in[u] = access::from_wire(got[u].get());
                                 if (Channels && Types::reduces && x.combines) {
                                     COLLX_UNROLL
                                     for (int u = 0; u < U; ++u)
                                         acc[u] = this->template combined<W>(x, in[u], acc[u], m(u));
                                 } else {
                                     COLLX_UNROLL
                                     for (int u = 0; u < U; ++u) acc[u] = in[u];
                                 }
                             }
                             if (access::has_post && x.finishes) {
                                 COLLX_UNROLL
                                 for (int u = 0; u < U; ++u)
                                     access::template finish<W>(this->op(), this->ranks(), x.to + nth(u), m(u), acc[u]);
                             }
                             waiting_pack<wire_type, W::n> next[U];
                             COLLX_UNROLL
                             for (int u = 0; u < U; ++u) next[u].keep(access::to_wire(acc[u]));
                             if (x.sends) {
                                 COLLX_UNROLL
                                 for (int u = 0; u < U; ++u)
                                     this->template store_wire<W>(x.tx, nth(u), m(u), next[u].get());
                             }
                             if (x.keeps) {
                                 if (access::rounds && x.finishes) {
                                     COLLX_UNROLL
                                     for (int u = 0; u < U; ++u) acc[u] = access::from_wire(next[u].get());
                                 }
                                 COLLX_UNROLL
                                 for (int u = 0; u < U; ++u) this->template write<W>(result, nth(u), m(u), acc[u]);
                             }
                         });
}

// Takes a pack of the wire as it arrives and returns it as it is sent on.
template <class Kind>
template <class W>
COLLX_ALWAYS_INLINE COLLX_HD typename executor<Kind>::wire_pack
executor<Kind>::through(const transfer& x, const operand& own, const operand& result, unsigned p, unsigned m,
                        const wire_pack& w) const {
    acc_pack acc{};
    if (x.reads) acc = this->template read<W>(own, std::size_t{p} * V, m);
    if (x.receives) {
        const acc_pack in = access::from_wire(w);
        acc = Types::reduces && x.combines ? this->template combined<W>(x, in, acc, m) : in;
    }
    if (access::has_post && x.finishes) access::template finish<W>(op(), ranks(), x.to + std::size_t{p} * W::n, m, acc);
    const wire_pack next = access::to_wire(acc);
    if (x.keeps)
        this->template write<W>(result, std::size_t{p} * V, m,
                                access::rounds && x.finishes ? access::from_wire(next) : acc);
    return next;
}

// Whole packs and the tail share one wait.
template <class Kind>
COLLX_HD void executor<Kind>::carry_words(const transfer& x) {
    const operand own = own_operand(x), result = result_operand(x);
    const unsigned elems = static_cast<unsigned>(x.count), packs = packs_of(x.count), whole = x.is_fast ? elems / V : 0;
    COLLX_ROLLED
    for (unsigned p = spreads ? thread_for(x.peer, packs) : env_.index(); p < packs; p += env_.threads()) {
        wire_pack w{};
        if (x.receives) w = receive_words(x.rx + p * stride, static_cast<std::uint32_t>(x.rx_flag), x.peer);
        if (p < whole) w = this->template through<packed>(x, own, result, p, V, w);
        else w = this->template through<partial>(x, own, result, p, elems - p * V < V ? elems - p * V : V, w);
        if (x.sends) store_packet<Env>(x.tx + p * stride, w, static_cast<std::uint32_t>(x.tx_flag));
    }
}

// The same in lines of 128 bytes. The threads of a line go through the loop together, because they look at one flag.
template <class Kind>
COLLX_HD void executor<Kind>::carry_lines(const transfer& x) {
    static_assert(
        !lines || wire_pack::bytes == sizeof(unit16),
        "collx: lines of 128 bytes carry elements of 1, 2, 4, 8 or 16 bytes, and accumulators at most twice as "
        "wide. Use packet_protocol or simple_protocol.");
    constexpr unsigned team = Env::line_threads, cells = line_cells / team; // of a line, that this thread moves
    const operand own = own_operand(x), result = result_operand(x);
    const unsigned elems = static_cast<unsigned>(x.count), packs = packs_of(x.count), whole = x.is_fast ? elems / V : 0;
    const unsigned me = env_.index() % team, pairs = pairs_of(x.count);
    COLLX_ROLLED
    for (unsigned q = env_.index() / team; q < pairs; q += env_.threads() / team) {
        unit16 got[2][cells] = {}, next[2][cells] = {};
        if (x.receives && !failed_) {
            const auto* from = reinterpret_cast<const unit16*>(x.rx + q * pair_bytes);
            failed_ = !this->template poll<true>(waits_for::packet, x.peer,
                                                 [&] { return env_.try_load_lines(from, x.rx_flag, got); });
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
            if (p < whole) w = this->template through<packed>(x, own, result, p, V, w);
            else if (p < packs)
                w = this->template through<partial>(x, own, result, p, elems - p * V < V ? elems - p * V : V, w);
            __builtin_memcpy(&raw, static_cast<const void*>(&w), sizeof raw);
            if (is_last) {
                next[0][c] = {raw.low, x.tx_flag};
                next[1][c] = {raw.high, x.tx_flag};
            } else {
                next[line][c] = raw;
            }
        }
        if (x.sends) env_.store_lines(reinterpret_cast<unit16*>(x.tx + q * pair_bytes), next);
    }
}

} // namespace device
COLLX_END_NAMESPACE
