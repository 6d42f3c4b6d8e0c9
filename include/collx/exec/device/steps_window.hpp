// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Steps over windows and over peers' own buffers: put, get, and the reduction of all ranks' operands in rank order.
// Where words carry flags a put is pushed into the memory of whoever reads it, so that reading is local and needs no
// signal: docs/design/device.md says for which texts that is right.
#pragma once

#include <collx/exec/device/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// Who has left iteration i - 1 may push iteration i + 1 over it only if it has heard of every reader in between: so the
// texts that every rank reads every other rank in, once per iteration.
template <class Algorithm>
inline constexpr bool may_push_v = [] {
    if constexpr (requires { Algorithm::signals; })
        return Algorithm::signals == 1 && Algorithm::window_depth == 2 &&
               (Algorithm::op == collective::all_reduce || Algorithm::op == collective::all_gather ||
                Algorithm::op == collective::reduce_scatter || Algorithm::op == collective::all_to_all);
    else return false;
}();

template <class Env, class Algorithm, class Types, class Protocol, int Groups>
COLLX_HD void executor<Env, Algorithm, Types, Protocol, Groups>::copy(const sched::step& s) {
    COLLX_ROLLED
    for (int c = 0; c < s.src.chunks.count; ++c) {
        const int to_chunk = s.dst.chunks.at(c, args_.chunks);
        const part from = local(s.src.where, s.src.chunks.at(c, args_.chunks));
        if constexpr (words && has_windows) {
            if (sched::is_window(s.dst.where)) {
                push(s, to_chunk, from);
                continue;
            }
        }
        const bool puts = has_windows && sched::is_window(s.dst.where),
                   ends = s.src.where == place::in && s.dst.where == place::out;
        std::byte* window = puts ? window_at(rank_, sched::segment_of(s.dst.where), to_chunk) : nullptr;
        const std::size_t to = puts ? 0 : local(s.dst.where, to_chunk).at;
        if (ends && access::is_in_place(mine(), from.at, to)) continue;
        const bool fast = is_aligned_at(s.src.where, from.at) && (puts || is_aligned_at(s.dst.where, to));
        each_pack<unroll>(
            from.count, fast,
            [&](auto w, unsigned p, unsigned m) {
                return this->template read<decltype(w)>(s.src.where, from.at, p, m);
            },
            [&](auto w, unsigned p, unsigned m, auto acc) {
                using W = decltype(w);
                if (puts) return this->template store_wire<W>(window, p, acc);
                // All of a single rank's collective, so the operator's hook applies.
                if (ends) access::template finish<W>(this->op(), this->ranks(), to + p * W::n, m, acc);
                this->template write<W>(s.dst.where, to, p, m, acc);
            });
    }
}

template <class Env, class Algorithm, class Types, class Protocol, int Groups>
COLLX_HD void executor<Env, Algorithm, Types, Protocol, Groups>::push(const sched::step& s, int chunk, part from) {
    static_assert(!flagged || !has_windows || may_push_v<Algorithm>,
                  "collx: words with flags replace signals only where every rank reads every rank in each iteration: "
                  "the one-shot algorithms. Use simple_protocol.");
    constexpr bool to_one = Algorithm::op == collective::reduce_scatter || Algorithm::op == collective::all_to_all;
    const int first = to_one ? chunk : 0, last = to_one ? chunk + 1 : ranks();
    each_pack<1>(
        from.count, is_aligned_at(s.src.where, from.at),
        [&](auto w, unsigned p, unsigned m) { return this->template read<decltype(w)>(s.src.where, from.at, p, m); },
        [&](auto, unsigned p, unsigned, const acc_pack& acc) {
            const wire_pack w = access::to_wire(acc);
            COLLX_ROLLED
            for (int k = first; k < last; ++k)
                if (k != rank_) store_packet<Env>(packets_at(k, rank_) + p * stride, w, window_flag());
        });
    COLLX_ROLLED
    for (int k = first; k < last; ++k)
        if (k != rank_) refresh(packets_at(k, rank_), args_.shape.packet_bytes, packs_of(from.count), window_flag());
}

template <class Env, class Algorithm, class Types, class Protocol, int Groups>
COLLX_HD void executor<Env, Algorithm, Types, Protocol, Groups>::get(const sched::step& s) {
    COLLX_ROLLED
    for (int c = 0; c < s.dst.chunks.count; ++c) {
        const int peer = s.peer_from, chunk = s.src.chunks.at(c, args_.chunks);
        const part to = local(s.dst.where, s.dst.chunks.at(c, args_.chunks));
        const bool from_window = sched::is_window(s.src.where), from_in = s.src.where == place::in;
        const std::byte* rx = nullptr;
        if (from_window)
            rx = flagged ? packets_at(rank_, peer) : window_at(peer, sched::segment_of(s.src.where), chunk);
        const std::size_t at = from_window ? 0 : of(s.src.where, peer, chunk).at;
        bool fast = is_aligned_at(s.dst.where, to.at);
        if (!from_window)
            fast = fast && (from_in ? access::in_is_aligned(args_.rank(peer), at)
                                    : access::out_is_aligned(args_.rank(peer), at));
        each_pack<unroll>(
            to.count, fast,
            [&](auto w, unsigned p, unsigned m) {
                using W = decltype(w);
                if constexpr (flagged) return access::from_wire(receive_words(rx + p * stride, window_flag(), peer));
                else if (from_window) return access::from_wire(this->template load_wire<W>(rx, p));
                else if (from_in)
                    return access::template read_in<W>(this->args_.rank(peer), this->ranks(), at + p * W::n, m);
                else return access::template read_out<W>(this->args_.rank(peer), at + p * W::n, m);
            },
            [&](auto w, unsigned p, unsigned m, const auto& acc) {
                this->template write<decltype(w)>(s.dst.where, to.at, p, m, acc);
            });
    }
}

// What a switch can reduce and multicast: sums of float and of 16-bit floats, and the least and the greatest of those.
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

// U packs at once through all ranks, so that U loads are under way together.
template <class Env, class Algorithm, class Types, class Protocol, int Groups>
template <bool ToAll>
COLLX_HD void executor<Env, Algorithm, Types, Protocol, Groups>::fold(const sched::step& s) {
    static_assert(!multicasts || may_multicast_v<Types>,
                  "collx: a switch reduces contiguous float (plus), f16 and bf16 (plus, min, max) without hooks, and "
                  "multicasts elements whose size divides 16. Use simple_protocol.");
    const bool from_window = sched::is_window(s.src.where);
    const bool by_switch = multicasts && !from_window && s.peer_to - s.peer_from == ranks();
    COLLX_ROLLED
    for (int c = 0; c < s.dst.chunks.count; ++c) {
        const int chunk = s.src.chunks.at(c, args_.chunks), to_chunk = s.dst.chunks.at(c, args_.chunks);
        const std::size_t in_at = local(place::in, chunk).at;
        const part to = local(s.dst.where, to_chunk);
        bool fast = is_aligned_at(s.dst.where, to.at) && is_aligned_at(place::in, in_at);
        COLLX_ROLLED
        for (int k = 0; k < ranks(); ++k) {
            if (!from_window) fast = fast && access::in_is_aligned(args_.rank(k), in_at);
            if (ToAll) fast = fast && access::out_is_aligned(args_.rank(k), to.at);
        }
        const auto operand = [&](auto w, int k, unsigned p, unsigned m) {
            using W = decltype(w);
            const std::size_t first = in_at + p * W::n;
            if (!from_window) return access::template read_in<W>(this->args_.rank(k), this->ranks(), first, m);
            if (k == this->rank_ && s.own == place::in)
                return access::through_wire(this->template read<W>(place::in, in_at, p, m));
            if constexpr (flagged)
                return access::from_wire(receive_words(packets_at(this->rank_, k) + p * stride, window_flag(), k));
            else
                return access::from_wire(
                    this->template load_wire<W>(this->window_at(k, sched::segment_of(s.src.where), chunk), p));
        };
        const auto deliver = [&](auto w, unsigned p, unsigned m, auto acc) {
            using W = decltype(w);
            const std::size_t first = to.at + p * W::n;
            if (s.dst.where == place::out) access::template finish<W>(this->op(), this->ranks(), first, m, acc);
            if constexpr (ToAll && multicasts && W::is_aligned) {
                Env::template store_all<Types>(this->args_, first, access::to_wire(acc));
            } else if constexpr (ToAll) {
                COLLX_ROLLED
                for (int k = 0; k < this->ranks(); ++k)
                    access::template write_out<W>(this->args_.rank(k), first, m, acc);
            } else {
                this->template write<W>(s.dst.where, to.at, p, m, acc);
                if (s.also != place::none)
                    this->template store_wire<W>(this->window_at(this->rank_, sched::segment_of(s.also), to_chunk), p,
                                                 acc);
            }
        };
        // U accesses of this width, `step` apart.
        const auto accesses = [&](auto w, auto count, unsigned i, unsigned step, unsigned m) {
            using W = decltype(w);
            constexpr int U = count.value;
            acc_of<W> acc[U];
            bool is_reduced = false;
            if constexpr (multicasts && Types::reduces && W::is_aligned) is_reduced = by_switch;
            COLLX_UNROLL
            for (int u = 0; u < U; ++u) {
                const unsigned p = i + static_cast<unsigned>(u) * step;
                if constexpr (multicasts && Types::reduces && W::is_aligned) {
                    if (is_reduced) {
                        acc[u] = access::from_wire(
                            Env::template reduce_all<Types>(this->args_, this->op(), in_at + p * W::n));
                        continue;
                    }
                }
                acc[u] = operand(w, s.peer_from, p, m);
            }
            COLLX_ROLLED
            for (int k = s.peer_from + 1; k < s.peer_to && !is_reduced; ++k) {
                acc_of<W> next[U];
                COLLX_UNROLL
                for (int u = 0; u < U; ++u) next[u] = operand(w, k, i + static_cast<unsigned>(u) * step, m);
                COLLX_UNROLL
                for (int u = 0; u < U; ++u) acc[u] = access::template combine<W>(this->op(), acc[u], next[u], m);
            }
            COLLX_UNROLL
            for (int u = 0; u < U; ++u) deliver(w, i + static_cast<unsigned>(u) * step, m, acc[u]);
        };
        using one = std::integral_constant<int, 1>;
        const unsigned elems = static_cast<unsigned>(to.count), step = env_.threads();
        const unsigned all = packs_of(to.count), whole = fast ? elems / V : 0;
        unsigned i = env_.index();
        if constexpr (V > 1 || flagged) {
            if constexpr (unroll > 1) {
                COLLX_ROLLED
                for (; i + (unroll - 1) * step < whole; i += unroll * step)
                    accesses(packed(), std::integral_constant<int, unroll>{}, i, step, V);
            }
            COLLX_ROLLED
            for (; i < whole; i += step) accesses(packed(), one{}, i, step, V);
        }
        if constexpr (flagged) {
            COLLX_ROLLED
            for (; i < all; i += step) {
                const unsigned first = i * V, m = first + V <= elems ? V : first < elems ? elems - first : 0;
                accesses(partial(), one{}, i, step, m);
            }
        } else {
            COLLX_ROLLED
            for (i = (V > 1 ? whole * V : 0) + env_.index(); i < elems; i += step)
                accesses(single(), one{}, i, step, 1);
        }
    }
}

} // namespace device
COLLX_END_NAMESPACE
