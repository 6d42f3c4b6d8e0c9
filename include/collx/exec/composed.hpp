// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The composed form of an algorithm: its function runs directly over a window, with the mover of one call, so that the
// compiler sees the loads, stores and waits of this algorithm on this type. There are no recorded steps, no cursors and
// no lookups. It puts the same bytes and signals in the same places as a task, which a peer may be running.
//
// For algorithms of one strand over windows (is_composable), on one host, whose chunks travel in one piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <collx/core/atomic.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/exec/bound_schedule.hpp>
#include <collx/exec/pieces.hpp>
#include <collx/sched/executor.hpp>
#include <collx/transport/links.hpp>

COLLX_BEGIN_NAMESPACE

// Whether the steps of a bound algorithm can run in the order in which its function names them, over windows alone.
inline bool is_composable(const bound_schedule& plan) {
    if (plan.window == nullptr || plan.steps.strands.size() != 1) return false;
    for (const sched::step& s : plan.steps.strands[0])
        if ((s.what & (sched::recv | sched::send)) != 0) return false;
    return true;
}

// The state that all runs of one call have in common.
template <class Mover>
struct composed_call {
    links& net;
    bound_schedule& plan;
    Mover& mover;
    const pieces cuts;
    const std::size_t stride_bytes; // of a piece
    const bound_window::cut cut;
    const user_buffers own; // in a zero-copy schedule
    // By chunk; a layout would compute them each time.
    detail::growing_array<pieces::part> in_parts, out_parts;

    composed_call(links& l, bound_schedule& b, Mover& m, const chunk_layout& in, const chunk_layout& out,
                  std::size_t piece_elems)
        : net(l), plan(b), mover(m), cuts(in, out, b.chunks, piece_elems),
          stride_bytes(round_up(cuts.elems * sizeof(wire), alignof(wire))),
          cut(b.window->cut_for(b.zero_copy ? 0 : stride_bytes, alignof(wire) <= 8)), own(places_of(l, b, m)) {
        for (int c = 0; c < b.chunks; ++c) {
            in_parts.push_back({in.offset(c), in.size(c)});
            out_parts.push_back({out.offset(c), out.size(c)});
        }
    }

private:
    using wire = typename Mover::wire_type;
    static user_buffers places_of(const links& l, const bound_schedule& b, const Mover& m) {
        if constexpr (Mover::plain)
            if (b.zero_copy) return {l.memory().offset_of(m.input().data()), l.memory().offset_of(m.output().data())};
        return {};
    }
};

// await(word, least, peer) returns the word once it has reached `least`, or throws; await.disagree(peer) and
// await.give_up(failure) throw.
template <class Mover, class Await>
class composed_run : public sched::verbs<composed_run<Mover, Await>> {
    using wire = typename Mover::wire_type;

public:
    // agreed: see call_state.
    composed_run(const composed_call<Mover>& call, Await& await, std::uint64_t agreed)
        : call_(call), await_(await), window_(*call.plan.window), me_(call.net.rank()), ranks_(call.net.size()),
          share_(window_.take(1, call.cut, agreed)), stage_(window_.memory.stage(share_.first)) {
        call.mover.set_tmp(call.plan.scratch, call.plan.scratch_travels);
    }

    template <sched::action What>
    COLLX_ALWAYS_INLINE void emit(const sched::step& s) {
        if constexpr (What == sched::signal) give_signal(s);
        else if constexpr (What == sched::wait) wait_for(s);
        else if constexpr ((What & (sched::recv | sched::send)) != 0) __builtin_unreachable(); // see is_composable
        else if constexpr ((What & (sched::fold | sched::get)) != 0) {
            const links::in_buffers here(sched::is_window(s.src.where) ? nullptr : &call_.net);
            if (here.refused) [[unlikely]]
                await_.give_up(here.refused);
            move<What>(s);
        } else {
            move<What>(s);
        }
    }

private:
    template <sched::action What>
    COLLX_ALWAYS_INLINE void move(const sched::step& s) {
        for (int i = 0; i < s.dst.chunks.count; ++i) {
            const int from = chunk(s.src.chunks, i), to = chunk(s.dst.chunks, i);
            if constexpr (What == (sched::fold | sched::to_all)) fold_to_all(s, from, to);
            else if constexpr ((What & sched::fold) != 0) fold(s, from, to);
            else if constexpr ((What & sched::get) != 0) get(s, from, to);
            else copy(s, from, to);
        }
    }
    COLLX_ALWAYS_INLINE void give_signal(const sched::step& s) {
        signal_line& line = window_.memory.line_at(me_, s.index, stage_);
        if (call_.plan.zero_copy) std::memcpy(line.payload, &call_.own, sizeof call_.own);
        line.word.store(signal_word::of(share_.first + 1, share_.tag), memory_order::release);
    }
    COLLX_ALWAYS_INLINE void wait_for(const sched::step& s) {
        if (share_.first < s.lag) return;
        if (s.peer_from != sched::all_ranks) return hear(s, s.peer_from);
        if (ranks_ == 2) return hear(s, 1 - me_);
        for (int r = 0; r < ranks_; ++r)
            if (r != me_) hear(s, r);
    }
    COLLX_ALWAYS_INLINE void hear(const sched::step& s, int peer) {
        const std::uint64_t then = share_.first - s.lag;
        const std::uint64_t word =
            await_(window_.memory.line_at(peer, s.index, s.lag == 0 ? stage_ : window_.memory.stage(then)).word,
                   then + 1, peer);
        if (!window_.agrees(share_, word, then)) [[unlikely]]
            await_.disagree(peer);
    }
    COLLX_ALWAYS_INLINE void copy(const sched::step& s, int from, int to) {
        const std::size_t at = place_of(s.src.where, from), n = elems_of(s.src.where, from);
        if (!sched::is_window(s.dst.where))
            return call_.mover.move(s.src.where, at, s.dst.where, place_of(s.dst.where, to), n);
        window_.bytes_written += n * sizeof(wire);
        call_.mover.load(window_at(me_, sched::segment_of(s.dst.where), to), s.src.where, at, n);
    }
    COLLX_ALWAYS_INLINE void get(const sched::step& s, int from, int to) {
        const std::size_t n = elems_of(s.dst.where, to);
        window_.bytes_read += n * sizeof(wire);
        call_.mover.store(s.dst.where, place_of(s.dst.where, to), at(s.src.where, s.peer_from, from), n);
    }
    COLLX_ALWAYS_INLINE void fold(const sched::step& s, int from, int to) {
        if constexpr (Mover::reduces) {
            const int count = s.peer_to - s.peer_from;
            const bool is_own_private = s.own != sched::place::none && !sched::is_window(s.own);
            const bool has_own = is_own_private && me_ >= s.peer_from && me_ < s.peer_to;
            const std::size_t n = elems_of(s.dst.where, to);
            wire* const also = s.also != sched::place::none ? window_at(me_, sched::segment_of(s.also), to) : nullptr;
            window_.bytes_written += also != nullptr ? n * sizeof(wire) : 0;
            window_.bytes_read += static_cast<std::size_t>(count - has_own) * n * sizeof(wire);
            const wire** const sources = gather_sources(s, from, has_own ? me_ : -1);
            int own_index = has_own ? me_ - s.peer_from : -1;
            std::size_t own_at = is_own_private ? place_of(s.own, from) : 0;
            if constexpr (Mover::plain) {
                if (has_own) sources[own_index] = call_.mover.local(s.own) + own_at;
                own_index = -1;
                own_at = 0;
            }
            call_.mover.fold_ranks(sources, count, own_index, s.own, own_at, s.dst.where, place_of(s.dst.where, to),
                                   also, n);
        }
    }
    COLLX_ALWAYS_INLINE void fold_to_all(const sched::step& s, int from, int to) {
        if constexpr (Mover::reduces && Mover::plain) {
            const int count = ranks_; // see sched::problem::bad_to_all
            const std::size_t n = elems_of(s.dst.where, to);
            wire* outs[64]; // see task::max_zero_copy_ranks
            for (int r = 0; r < count; ++r) outs[r] = const_cast<wire*>(at(sched::place::out, r, to));
            std::swap(outs[0], outs[me_]);
            window_.bytes_written += static_cast<std::size_t>(count) * n * sizeof(wire);
            window_.bytes_read += static_cast<std::size_t>(count) * n * sizeof(wire);
            call_.mover.fold_everywhere(gather_sources(s, from, -1), outs, count, n);
        }
    }
    // Collects the operands of a fold. except: a rank whose operand is taken from elsewhere; -1: none.
    COLLX_ALWAYS_INLINE const wire** gather_sources(const sched::step& s, int from, int except) {
        const auto** const sources = reinterpret_cast<const wire**>(call_.plan.sources.data());
        for (int r = s.peer_from; r < s.peer_to; ++r)
            if (r != except) sources[r - s.peer_from] = at(s.src.where, r, from);
        return sources;
    }

    COLLX_ALWAYS_INLINE int chunk(const sched::chunk_set& c, int i) const {
        // Avoids the divisions of at() where there is nothing to divide.
        if (c.order == nullptr && c.size == 0 && c.base == 0 && c.count == 1 && c.first < call_.plan.chunks)
            return c.first;
        return c.at(i, call_.plan.chunks);
    }
    // Where a chunk of a buffer of this rank begins, and its length. Scratch has room for a piece of each chunk.
    COLLX_ALWAYS_INLINE std::size_t place_of(sched::place where, int chunk) const {
        if (where == sched::place::tmp) return static_cast<std::size_t>(chunk) * call_.cuts.elems;
        return part(where, chunk).at;
    }
    COLLX_ALWAYS_INLINE std::size_t elems_of(sched::place where, int chunk) const {
        return where == sched::place::tmp ? call_.cuts.size(where, chunk) : part(where, chunk).count;
    }
    COLLX_ALWAYS_INLINE const pieces::part& part(sched::place where, int chunk) const {
        return (where == sched::place::out ? call_.out_parts : call_.in_parts)[chunk];
    }
    COLLX_ALWAYS_INLINE wire* window_at(int rank, int segment, int chunk) const {
        return reinterpret_cast<wire*>(share_.is_inline ? window_.memory.line_at(rank, segment, stage_).payload +
                                                              static_cast<std::size_t>(chunk) * call_.stride_bytes
                                                        : window_.memory.at(rank, segment, chunk, share_.position));
    }
    // A chunk of a place of any rank: in its window, or in its own buffer.
    COLLX_ALWAYS_INLINE const wire* at(sched::place where, int rank, int chunk) const {
        if (sched::is_window(where)) return window_at(rank, sched::segment_of(where), chunk);
        user_buffers b = call_.own;
        if (rank != me_) std::memcpy(&b, window_.memory.line_at(rank, 0, stage_).payload, sizeof b);
        const bool is_in = where == sched::place::in;
        return reinterpret_cast<const wire*>(call_.net.memory().at(is_in ? b.in : b.out)) + part(where, chunk).at;
    }

    const composed_call<Mover>& call_;
    Await& await_;
    bound_window& window_;
    const int me_, ranks_;
    const bound_window::share share_;
    const int stage_; // of this iteration
};

COLLX_END_NAMESPACE
