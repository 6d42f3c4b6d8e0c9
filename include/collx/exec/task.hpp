// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The host reading of a schedule: one cursor per strand over the recorded steps, moved on by advance() as far as
// messages and signals allow. Nothing blocks in here, so many operations can be under way; nothing throws either,
// errors are kept for whoever waits. (What an operator of the program throws goes through.)
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <collx/core/atomic.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/exec/channel_steps.hpp>

COLLX_BEGIN_NAMESPACE

template <class Links, class Mover>
class task final : public channel_steps<Links, Mover> {
    using steps = channel_steps<Links, Mover>;
    using steps::blocked_on, steps::broken, steps::run_channel, steps::is_returned;
    using steps::cuts_, steps::links_, steps::mover_, steps::must_return_, steps::plan_;
    using typename steps::part, typename steps::strand;

public:
    using steps::error;
    using typename steps::wire;
    static constexpr int max_strands = 8;

    // piece_elems: elements of one chunk that travel at once; the same number on all ranks.
    // attached: a zero-copy schedule on private buffers, read through the kernel.
    // relayed: the chunks kept in scratch, where they are not of the input's sizes. whole: see pieces.
    task(Links& links, bound_schedule& plan, const Mover& mover, chunk_layout in, chunk_layout out,
         std::size_t piece_elems, bool attached = false, const chunk_layout* relayed = nullptr,
         const pieces* whole = nullptr)
        : steps(links, plan, mover, pieces(in, out, plan.chunks, piece_elems, relayed)), attached_(attached) {
        cuts_.whole = whole;
        stride_bytes_ = round_up(cuts_.elems * sizeof(wire), alignof(wire));
        this->at_port = plan.at_port;
        if (plan.window != nullptr) {
            window_ = plan.window->memory;
            share_ = plan.window->take(cuts_.count,
                                       plan.zero_copy ? 0 : stride_bytes_ * static_cast<std::size_t>(plan.chunks),
                                       alignof(wire) <= 8, call_tag(plan.parameters, in, out, kind_of<Mover>()));
        }
        mover_.set_tmp(plan.scratch);
        for (const auto& s : plan.steps.strands)
            strands_[count_] = {s.data(), s.data(), s.data() + s.size(), 0, count_for(s), share_.position, 0, count_,
                                nullptr,  nullptr},
            ++count_;
    }

    task_state advance() override {
        bool moved = false, again;
        do {
            again = false;
            int left = 0;
            for (int s = 0; s < count_; ++s) {
                strand& st = strands_[s + turn_ < count_ ? s + turn_ : s + turn_ - count_];
                if (st.piece == st.count) continue;
                if (run_iteration(st)) {
                    moved = true;
                    // A strand that stops within its steps is blocked, whatever it has done; others may not be any
                    // more.
                    again |= count_ > 1 || st.pc == st.begin;
                }
                if (error) return task_state::failed;
                left += st.piece != st.count;
            }
            if (left == 0)
                return (must_return_ || !links_.is_one_host()) && !is_returned() ? task_state::blocked
                                                                                 : task_state::done;
        } while (again);
        if (++turn_ >= count_) turn_ = 0;
        return moved ? task_state::moved : task_state::blocked;
    }

private:
    // Sizes that other ranks said may be anything: a strand that has nothing of them must not count up to them.
    std::size_t count_for(const detail::growing_array<sched::step>& steps) const {
        if (cuts_.relayed == nullptr) return cuts_.count;
        std::size_t most = 1;
        for (const sched::step& s : steps)
            if (const std::size_t n = cuts_.count_for(s); n > most) most = n;
        return most;
    }
    // Runs to the end of this iteration or until blocked. True if anything was done.
    bool run_iteration(strand& st) {
        const sched::step* const first = st.pc;
        const int seen = st.seen;
        while (st.pc != st.end) {
            if (!run(*st.pc, st)) return st.pc != first || st.seen != seen;
            ++st.pc;
            st.seen = 0;
        }
        st.pc = st.begin;
        ++st.piece;
        st.position = fitting(st.position + share_.iteration_bytes);
        return true;
    }

    bool run(const sched::step& s, strand& st) {
        if ((s.what & (sched::recv | sched::send)) != 0) return run_channel(s, st);
        if (s.what == sched::signal) return run_signal(s, st);
        if (s.what == sched::wait) return run_wait(s, st);
        if ((s.what & sched::fold) != 0) return run_fold(s, st);
        if ((s.what & sched::get) != 0) return run_get(s, st);
        return run_copy(s, st);
    }

    // -------------------------------------------------------------- the window's rings
    std::size_t fitting(std::size_t position) const {
        return position + share_.iteration_bytes > window_.ring_bytes() ? 0 : position;
    }

    wire* window_at(int rank, int segment, const strand& st, int chunk) const {
        std::byte* at = share_.is_inline ? window_.line(rank, segment, share_.first + st.piece).payload
                                         : window_.segment(rank, segment, st.position);
        return reinterpret_cast<wire*>(at + static_cast<std::size_t>(chunk) * stride_bytes_);
    }

    // -------------------------------------------------------------- windows
    bool run_signal(const sched::step& s, strand& st) {
        auto& line = window_.line(links_.rank(), s.index, share_.first + st.piece);
        if (plan_.zero_copy) publish_buffers(line);
        line.word.store((share_.first + st.piece + 1) | share_.tag, memory_order::release);
        return true;
    }
    bool run_wait(const sched::step& s, strand& st) {
        const std::uint64_t i = share_.first + st.piece;
        if (i < s.lag) return true;
        const std::uint64_t at = i - s.lag;
        if (s.peer_from != sched::all_ranks) return is_signalled(s, s.peer_from, at);
        for (const int n = links_.size(); st.seen < n; ++st.seen)
            if (!is_signalled(s, st.seen, at)) return false;
        return true;
    }
    bool is_signalled(const sched::step& s, int peer, std::uint64_t at) {
        const std::uint64_t word = window_.line(peer, s.index, at).word.load(memory_order::acquire);
        if (signal_word::number(word) <= at) return blocked_on(peer);
        // An earlier iteration may be another call's.
        return s.lag != 0 || signal_word::fits(word, at + 1, share_.tag) || broken(errc::mismatch, peer);
    }
    bool run_get(const sched::step& s, strand& st) {
        for (int i = 0; i < s.dst.chunks.count; ++i) {
            const int chunk = cuts_.chunk(s.src.chunks, i);
            const part to = cuts_.local(s.dst.where, cuts_.chunk(s.dst.chunks, i), st.piece);
            plan_.window->bytes_read += to.count * sizeof(wire);
            if (attached_) {
                if (!read_attached(s, chunk, to, st))
                    return broken(errno == ESRCH ? errc::peer_failed : errc::unsupported, s.peer_from);
                continue;
            }
            mover_.store(s.dst.where, to.at, remote_at(s.src.where, s.peer_from, chunk, st), to.count);
        }
        return true;
    }
    bool run_fold(const sched::step& s, strand& st) {
        const int me = links_.rank(), count = s.peer_to - s.peer_from;
        const auto** sources = reinterpret_cast<const wire**>(plan_.sources.data());
        for (int i = 0; i < s.dst.chunks.count; ++i) {
            const int src_chunk = cuts_.chunk(s.src.chunks, i), dst_chunk = cuts_.chunk(s.dst.chunks, i);
            for (int k = 0; k < count; ++k) sources[k] = remote_at(s.src.where, s.peer_from + k, src_chunk, st);
            const part own = cuts_.local(sched::is_window(s.own) ? sched::place::in : s.own, src_chunk, st.piece);
            const part to = cuts_.local(s.dst.where, dst_chunk, st.piece);
            if ((s.what & sched::to_all) != 0) {
                count_moved(count, count, to.count);
                fold_into_all(sources, count, dst_chunk, st, to);
                continue;
            }
            wire* also =
                s.also != sched::place::none ? window_at(me, sched::segment_of(s.also), st, dst_chunk) : nullptr;
            const int own_index = me >= s.peer_from && me < s.peer_to ? me - s.peer_from : -1;
            const bool own_is_private = own_index >= 0 && s.own != sched::place::none && !sched::is_window(s.own);
            count_moved(also != nullptr ? 1 : 0, count - (own_is_private ? 1 : 0), to.count);
            mover_.fold_ranks(sources, count, own_index, s.own, own.at, s.dst.where, to.at, also, to.count);
        }
        return true;
    }
    bool run_copy(const sched::step& s, strand& st) {
        for (int i = 0; i < s.src.chunks.count; ++i) {
            const int dst_chunk = cuts_.chunk(s.dst.chunks, i);
            const part p = cuts_.local(s.src.where, cuts_.chunk(s.src.chunks, i), st.piece);
            if (sched::is_window(s.dst.where)) {
                count_moved(1, 0, p.count);
                mover_.load(window_at(links_.rank(), sched::segment_of(s.dst.where), st, dst_chunk), s.src.where, p.at,
                            p.count);
            } else {
                mover_.move(s.src.where, p.at, s.dst.where, cuts_.local(s.dst.where, dst_chunk, st.piece).at, p.count);
            }
        }
        return true;
    }

    void count_moved(int writes, int reads, std::size_t elems) {
        plan_.window->bytes_written += static_cast<std::size_t>(writes) * elems * sizeof(wire);
        plan_.window->bytes_read += static_cast<std::size_t>(reads) * elems * sizeof(wire);
    }

    // -------------------------------------------------------------- zero copy: the operand is a peer's own buffer
    void publish_buffers(signal_line& line) const {
        if constexpr (Mover::plain) {
            const auto place_of = [&](const void* p) {
                return attached_ ? reinterpret_cast<std::uint64_t>(p) : links_.memory().offset_of(p);
            };
            const user_buffers b{place_of(mover_.input().data()), place_of(mover_.output().data())};
            std::memcpy(line.payload, &b, sizeof b);
        }
    }
    user_buffers buffers_of(int rank, const strand& st) const {
        user_buffers b;
        std::memcpy(&b, window_.line(rank, 0, share_.first + st.piece).payload, sizeof b);
        return b;
    }
    const wire* remote_at(sched::place where, int rank, int chunk, const strand& st) const {
        if (sched::is_window(where)) return window_at(rank, sched::segment_of(where), st, chunk);
        const user_buffers b = buffers_of(rank, st);
        const auto* base = reinterpret_cast<const wire*>(links_.memory().at(where == sched::place::in ? b.in : b.out));
        return base + cuts_.cut(where == sched::place::in ? cuts_.in : cuts_.out, chunk, st.piece).at;
    }
    bool read_attached(const sched::step& s, int chunk, part to, const strand& st) {
        if constexpr (Mover::plain) {
            const user_buffers b = buffers_of(s.peer_from, st);
            const bool is_in = s.src.where == sched::place::in;
            const std::uint64_t from =
                (is_in ? b.in : b.out) + cuts_.cut(is_in ? cuts_.in : cuts_.out, chunk, st.piece).at * sizeof(wire);
            return links_.read_private(s.peer_from, const_cast<wire*>(mover_.output().data()) + to.at, from,
                                       to.count * sizeof(wire));
        }
        return false;
    }
    void fold_into_all(const wire** sources, int count, int chunk, const strand& st, part to) {
        if constexpr (Mover::plain && Mover::reduces) {
            wire* outs[max_zero_copy_ranks];
            for (int k = 0; k < count; ++k) outs[k] = const_cast<wire*>(remote_at(sched::place::out, k, chunk, st));
            mover_.fold_everywhere(sources, outs, count, to.count);
        }
    }

public:
    static constexpr int max_zero_copy_ranks = 64;

private:
    std::size_t stride_bytes_;
    window_memory window_;
    bound_window::share share_;
    bool attached_ = false;
    int count_ = 0, turn_ = 0; // turn_: the strand that is asked first
    strand strands_[max_strands];
};

COLLX_END_NAMESPACE
