// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Steps over windows and over peers' own buffers: put, get, and the reduction of all ranks' operands in rank order.
// Where words carry flags a put is pushed into the memory of the rank that reads it, so that reading is local and needs
// no signal. docs/design/device.md says for which algorithms that is correct.
#pragma once

#include <collx/exec/device/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// A put where words carry flags: pushed to all ranks, or to the one that reads the chunk.
template <class Kind>
COLLX_HD void executor<Kind>::push(const sched::step& s) {
    static_assert(!flagged || !has_windows || may_push_v<Algorithm>,
                  "collx: words with flags replace signals only where every rank reads every rank in each iteration: "
                  "the one-shot algorithms. Use simple_protocol.");
    static_assert(!spreads || Groups == 1, "collx: words of a two-shot sum are pushed by one group of threads.");
    constexpr bool to_one = sched::pushes_parts_v<Algorithm>;
    COLLX_ROLLED
    for (int c = 0; c < s.src.chunks.count; ++c) {
        const int chunk = s.dst.chunks.at(c, args_.chunks);
        const part from = local(s.src.where, s.src.chunks.at(c, args_.chunks));
        const int first = to_one ? chunk : 0, last = to_one ? chunk + 1 : ranks();
        const operand own = operand_at(mine(), s.src.where, from.at);
        each_pack<1>(
            from.count, is_aligned_at(own) ? 0 : no_packs,
            [&](auto w, auto, unsigned i, unsigned, unsigned m) {
                using W = decltype(w);
                if constexpr (W::n == V)
                    this->push_pack(0, first, last, i, access::to_wire(this->template read<W>(own, i, m)));
            },
            chunk);
        refresh_pushed(0, first, last, from.count);
    }
}
// Pushes one pack of words to the ranks from `first` on, before `last`.
template <class Kind>
COLLX_HD void executor<Kind>::push_pack(int segment, int first, int last, unsigned i, const wire_pack& x) const {
    COLLX_ROLLED
    for (int k = first; k < last; ++k)
        if (k != rank_) store_packet<Env>(packets_at(segment, k, rank_) + i / V * stride, x, window_flag());
}
template <class Kind>
COLLX_HD void executor<Kind>::refresh_pushed(int segment, int first, int last, std::size_t n) const {
    if (!refreshes(window_flag())) return;
    COLLX_ROLLED
    for (int k = first; k < last; ++k) {
        if (k == rank_) continue;
        refresh(packets_at(segment, k, rank_), args_.shape.packet_bytes, packs_of(n), window_flag());
        // Also what calls of other algorithms have left in the second segment.
        if (!spreads) refresh(packets_at(1, k, rank_), args_.shape.packet_bytes, 0, window_flag());
    }
}

// What a switch can reduce and multicast: sums of float and of 16-bit floats, minimum and maximum of 16-bit floats.
template <class Types>
inline constexpr bool may_multicast_v = [] {
    using op = typename Types::op_type;
    using wire = typename Types::wire_type;
    if (!Types::in_view::is_contiguous || !Types::out_view::is_contiguous || Types::wire_pack::bytes != 16)
        return false;
    if (!std::is_same_v<typename Types::in_type, wire> || !std::is_same_v<typename Types::out_type, wire>) return false;
    if (!Types::reduces) return true;
    if (std::is_same_v<wire, float>) return std::is_same_v<op, plus>;
    return is_half_v<wire> && (std::is_same_v<op, plus> || std::is_same_v<op, min> || std::is_same_v<op, max>);
}();

// Reduces in rank order the operands that ranks pushed for the pack at element i of a chunk, and my own, which begins
// at `in_at`.
template <class Kind>
template <class W>
COLLX_ALWAYS_INLINE COLLX_HD typename executor<Kind>::template acc_of<W>
executor<Kind>::fold_words(const sched::step& s, std::size_t in_at, unsigned i, unsigned m) {
    const bool has_own = s.own == place::in && s.peer_from <= rank_ && rank_ < s.peer_to;
    acc_of<W> own{}, acc{};
    if (has_own) own = access::through_wire(access::template read_in<W>(mine(), ranks(), in_at + i, m));
    COLLX_ROLLED
    for (int k = s.peer_from; k < s.peer_to; k += peers_at_once) {
        waiting_pack<wire_type, V> got[peers_at_once]{};
        receive_of_peers(k, s.peer_to, i / V, got);
        COLLX_UNROLL
        for (int b = 0; b < peers_at_once; ++b) {
            if (k + b >= s.peer_to) continue;
            const acc_of<W> next = has_own && k + b == rank_ ? own : access::from_wire(got[b].get());
            acc = k + b == s.peer_from ? next : access::template combine<W>(op(), acc, next, m);
        }
    }
    return acc;
}

// A pack that the switch reduces over all ranks' windows, `at` bytes behind the beginning of this lane.
template <class Kind>
COLLX_HD typename executor<Kind>::wire_pack executor<Kind>::reduced_by_switch(std::size_t at) const {
    return Env::template reduce_at<typename Types::op_type, wire_type, V>(
        args_.exchange, ranks(), args_.exchange_of_all, args_.lane_at(lane_) + at);
}

// Stores U accesses of finished elements to my window, or by a switch to all windows (unaligned: window by window).
template <class Kind>
template <class W, int U>
COLLX_ALWAYS_INLINE COLLX_HD void executor<Kind>::store_also(int segment, int chunk, unsigned i, unsigned step,
                                                             unsigned end,
                                                             const waiting_pack<wire_type, W::n> (&x)[U]) {
    const std::size_t offset = window_offset(segment, chunk);
    if constexpr (multicasts && W::is_aligned) {
        COLLX_UNROLL
        for (int u = 0; u < U; ++u)
            Env::store_at(args_.exchange, ranks(), args_.exchange_of_all,
                          args_.lane_at(lane_) + offset + (i + static_cast<unsigned>(u) * step) * sizeof(wire_type),
                          x[u].get());
    } else {
        const int first = multicasts ? 0 : rank_, last = multicasts ? ranks() : rank_ + 1;
        COLLX_ROLLED
        for (int k = first; k < last; ++k) {
            std::byte* window = args_.lane_of(k, lane_) + offset;
            COLLX_UNROLL
            for (int u = 0; u < U; ++u) {
                const unsigned nth = i + static_cast<unsigned>(u) * step;
                store_wire<W>(window, nth, count_at<W>(nth, end), x[u].get());
            }
        }
    }
}

// Goes through all ranks with U packs at once, so that U loads are under way together.
template <class Kind>
template <bool ToAll>
COLLX_HD void executor<Kind>::fold(const sched::step& s) {
    static_assert(!multicasts || may_multicast_v<Types>,
                  "collx: a switch reduces contiguous float (plus), f16 and bf16 (plus, min, max) without hooks, and "
                  "multicasts elements whose size divides 16. Use simple_protocol.");
    const bool from_window = sched::is_window(s.src.where);
    // The switch would miss a rank's own operand that is not in its window.
    const bool by_switch = multicasts && (!from_window || s.own == place::none) && s.peer_to - s.peer_from == ranks();
    COLLX_ROLLED
    for (int c = 0; c < s.dst.chunks.count; ++c) {
        const int chunk = s.src.chunks.at(c, args_.chunks), to_chunk = s.dst.chunks.at(c, args_.chunks);
        const std::size_t in_at = local(place::in, chunk).at;
        const part to = local(s.dst.where, to_chunk);
        const operand result = operand_at(mine(), s.dst.where, to.at);
        const bool reads_own = !from_window || s.own == place::in;
        // Windows and a switch's addresses begin with a pack; buffers may agree from a later element on.
        unsigned shift = 0;
        if constexpr (!multicasts && !flagged)
            if (!from_window && s.dst.where == place::out && s.also == place::none)
                shift = access::elems_before_pack(ToAll ? args().rank(0) : mine(), to.at);
        bool fast = is_aligned_at(result, shift) && (!reads_own || access::in_is_aligned(mine(), in_at + shift));
        COLLX_ROLLED
        for (int k = 0; k < ranks(); ++k) {
            if (!from_window) fast = fast && access::in_is_aligned(args().rank(k), in_at + shift);
            if (ToAll) fast = fast && access::out_is_aligned(args().rank(k), to.at + shift);
        }
        const std::size_t window_offset = from_window ? this->window_offset(sched::segment_of(s.src.where), chunk) : 0;
        // Operand k from element i on: as it lies in memory where that is the wire's type, else as it is reduced.
        const auto fetch = [&](auto w, int k, unsigned i, unsigned m) -> fold_pack<decltype(w)> {
            using W = decltype(w);
            const std::size_t first = in_at + i;
            if constexpr (access::is_wire_in) {
                return access::template read_raw<W>(this->args().rank(k).in.data() + first, m); // words: see fold_words
            } else {
                if (!from_window) return access::template read_in<W>(this->args().rank(k), this->ranks(), first, m);
                if (k == this->rank_ && s.own == place::in)
                    return access::through_wire(access::template read_in<W>(this->mine(), this->ranks(), first, m));
                return access::from_wire(
                    this->template load_wire<W>(this->args_.lane_of(k, this->lane_) + window_offset, i, m));
            }
        };
        // U accesses of this width, `step` elements apart. The next rank's loads are under way while this rank's
        // elements are added.
        const auto accesses = [&](auto w, auto count, unsigned i, unsigned step, unsigned end) {
            using W = decltype(w);
            constexpr int U = count.value;
            const auto nth = [=](int u) { return i + static_cast<unsigned>(u) * step; };
            const auto m = [=](int u) { return count_at<W>(nth(u), end); };
            acc_of<W> acc[U]{};
            bool is_reduced = false;
            if constexpr (multicasts && Types::reduces && W::is_aligned) {
                is_reduced = by_switch;
                if (by_switch) {
                    COLLX_UNROLL
                    for (int u = 0; u < U; ++u)
                        acc[u] = access::from_wire(
                            from_window ? this->reduced_by_switch(window_offset + nth(u) * sizeof(wire_type))
                                        : Env::template reduce_all<Types>(this->args(), this->op(), in_at + nth(u)));
                }
            }
            const auto add = [&](const waiting_operand<W>(&x)[U], bool is_first) {
                acc_of<W> next[U];
                COLLX_UNROLL
                for (int u = 0; u < U; ++u) next[u] = opened<W>(x[u]);
                COLLX_UNROLL
                for (int u = 0; u < U; ++u)
                    acc[u] = is_first ? next[u] : access::template combine<W>(this->op(), acc[u], next[u], m(u));
            };
            const auto ask = [&](waiting_operand<W>(&x)[U], int k) {
                if constexpr (access::is_wire_in && !flagged) {
                    // Both places hold one type: one kind of access.
                    const wire_type* from = this->args().rank(k).in.data() + in_at;
                    if (from_window && !(k == this->rank_ && s.own == place::in))
                        from = reinterpret_cast<const wire_type*>(this->args_.lane_of(k, this->lane_) + window_offset);
                    COLLX_UNROLL
                    for (int u = 0; u < U; ++u) x[u].keep(access::template read_raw<W>(from + nth(u), m(u)));
                } else {
                    COLLX_UNROLL
                    for (int u = 0; u < U; ++u) x[u].keep(fetch(w, k, nth(u), m(u)));
                }
            };
            const bool is_received = words && from_window;
            if constexpr (words)
                if (from_window) acc[0] = fold_words<W>(s, in_at, nth(0), m(0));
            // Even and odd operands have separate registers: a copy would wait for the loads just made. Words are
            // waited for at once, and where packs have several elements accesses one by one are long enough.
            constexpr bool is_narrow = !W::is_aligned && (V > 1 || sizeof(acc_type) > 16);
            constexpr int ahead = flagged || is_narrow ? 1 : 2;
            waiting_operand<W> odd[U]{};
            COLLX_ROLLED
            for (int k = s.peer_from; k <= s.peer_to && !is_reduced && !is_received; k += ahead) {
                waiting_operand<W> even[U]{};
                if (k < s.peer_to) ask(even, k);
                if constexpr (ahead == 2) {
                    if (k > s.peer_from) add(odd, false);
                    if (k + 1 < s.peer_to) ask(odd, k + 1);
                }
                if (k < s.peer_to) add(even, k == s.peer_from);
            }
            // Elements that are stored as they travel are rounded once.
            const bool finishes = s.dst.where == place::out;
            waiting_pack<wire_type, W::n> as_is[U];
            COLLX_UNROLL
            for (int u = 0; u < U; ++u) {
                if (access::has_post && finishes)
                    access::template finish<W>(this->op(), this->ranks(), to.at + nth(u), m(u), acc[u]);
                as_is[u].keep(access::to_wire(acc[u]));
                if constexpr (access::rounds && !moves_as_is)
                    if (finishes) acc[u] = access::from_wire(as_is[u].get());
            }
            if constexpr (ToAll && multicasts && W::is_aligned) {
                COLLX_UNROLL
                for (int u = 0; u < U; ++u)
                    Env::template store_all<Types>(this->args(), to.at + nth(u), as_is[u].get());
            } else if constexpr (ToAll) {
                COLLX_ROLLED
                for (int k = 0; k < this->ranks(); ++k) {
                    // Without a reduction the data may be in place already.
                    if (!Types::reduces &&
                        access::is_in_place(this->args().rank(s.peer_from), this->args().rank(k), in_at, to.at))
                        continue;
                    if constexpr (moves_as_is) {
                        typename Types::out_type* out = this->args().rank(k).out.data() + to.at;
                        COLLX_UNROLL
                        for (int u = 0; u < U; ++u) access::template write_raw<W>(out + nth(u), m(u), as_is[u].get());
                    } else {
                        COLLX_UNROLL
                        for (int u = 0; u < U; ++u)
                            access::template write_out<W>(this->args().rank(k), to.at + nth(u), m(u), acc[u]);
                    }
                }
            } else {
                COLLX_UNROLL
                for (int u = 0; u < U; ++u) {
                    if constexpr (moves_as_is) access::template write_raw<W>(result.p + nth(u), m(u), as_is[u].get());
                    else this->template write<W>(result, nth(u), m(u), acc[u]);
                }
                if (words && s.also != place::none) {
                    if constexpr (W::n == V)
                        if (!failed_) // a peer must not take a wrong value for the sum
                            this->push_pack(sched::segment_of(s.also), 0, this->ranks(), nth(0), as_is[0].get());
                } else if (s.also != place::none) {
                    this->template store_also<W, U>(sched::segment_of(s.also), to_chunk, i, step, end, as_is);
                }
            }
        };
        each_pack<unroll>(to.count, fast ? shift : no_packs, accesses);
        if (words && s.also != place::none) refresh_pushed(sched::segment_of(s.also), 0, ranks(), to.count);
    }
}

} // namespace device
COLLX_END_NAMESPACE
