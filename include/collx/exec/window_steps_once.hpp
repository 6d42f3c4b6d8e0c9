// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of window_steps.hpp, independent of element types: compiled once (docs/design/compile-once.md).
#pragma once

#include <cerrno>
#include <cstring>
#include <utility>

#include <collx/core/atomic.hpp>
#include <collx/exec/window_steps.hpp>

COLLX_BEGIN_NAMESPACE

COLLX_ONCE window_steps::window_steps(call_state& call, bool attached)
    : call_(call), stride_bytes_(round_up(call.bytes_of(call.cuts.elems), call.elements.is.align)),
      attached_(attached) {
    bound_schedule& plan = call.plan;
    if (plan.window == nullptr) return;
    window_ = plan.window->memory;
    share_ = plan.window->take(call.cuts.count, plan.zero_copy ? 0 : stride_bytes_, call.elements.is.align <= 8,
                               call.agreed);
}

COLLX_ONCE bool window_steps::run(const sched::step& s, strand_cursor& st) {
    if (s.what == sched::signal) return signal(s, st);
    if (s.what == sched::wait) return wait(s, st);
    if ((s.what & (sched::fold | sched::get)) == 0) return copy(s, st);
    const links::in_buffers here(call_.plan.zero_copy ? &call_.net : nullptr);
    if (here.refused) [[unlikely]] {
        call_.op.error = here.refused;
        return false;
    }
    return (s.what & sched::fold) != 0 ? fold(s, st) : get(s, st);
}

COLLX_ONCE bool window_steps::signal(const sched::step& s, const strand_cursor& st) {
    auto& line = window_.line(call_.net.rank(), s.index, share_.first + st.piece);
    if (call_.plan.zero_copy) publish_buffers(line);
    line.word.store(signal_word::of(share_.first + st.piece + 1, share_.tag), memory_order::release);
    return true;
}

COLLX_ONCE bool window_steps::wait(const sched::step& s, strand_cursor& st) {
    const std::uint64_t i = share_.first + st.piece;
    if (i < s.lag) return true;
    const std::uint64_t at = i - s.lag;
    if (s.peer_from != sched::all_ranks) return is_signalled(s, s.peer_from, at);
    for (const int n = call_.net.size(); st.seen < n; ++st.seen)
        if (!is_signalled(s, st.seen, at)) return false;
    return true;
}

COLLX_ONCE bool window_steps::is_signalled(const sched::step& s, int peer, std::uint64_t at) {
    const std::uint64_t word = window_.line(peer, s.index, at).word.load(memory_order::acquire);
    if (!signal_word::has_reached(word, at + 1)) return call_.blocked_on(peer);
    return call_.plan.window->agrees(share_, word, at) || call_.broken(errc::mismatch, peer);
}

COLLX_ONCE bool window_steps::get(const sched::step& s, const strand_cursor& st) {
    for (int i = 0; i < s.dst.chunks.count; ++i) {
        const int chunk = call_.cuts.chunk(s.src.chunks, i);
        const pieces::part to = call_.cuts.local(s.dst.where, call_.cuts.chunk(s.dst.chunks, i), st.piece);
        call_.plan.window->bytes_read += call_.bytes_of(to.count);
        if (attached_) {
            if (!read_attached(s, chunk, to, st))
                return call_.broken(errno == ESRCH ? errc::peer_failed : errc::unsupported, s.peer_from);
            continue;
        }
        call_.elements.store(s.dst.where, to.at, remote_at(s.src.where, s.peer_from, chunk, st), to.count);
    }
    return true;
}

COLLX_ONCE bool window_steps::fold(const sched::step& s, const strand_cursor& st) {
    for (int i = 0; i < s.dst.chunks.count; ++i) fold_chunk(s, st, i);
    return true;
}

COLLX_ONCE void window_steps::fold_chunk(const sched::step& s, const strand_cursor& st, int i) {
    const pieces& cuts = call_.cuts;
    const int me = call_.net.rank(), count = s.peer_to - s.peer_from;
    const auto** sources = reinterpret_cast<const std::byte**>(call_.plan.sources.data());
    const int src_chunk = cuts.chunk(s.src.chunks, i), dst_chunk = cuts.chunk(s.dst.chunks, i);
    for (int k = 0; k < count; ++k) sources[k] = remote_at(s.src.where, s.peer_from + k, src_chunk, st);
    const pieces::part own = cuts.local(sched::is_window(s.own) ? sched::place::in : s.own, src_chunk, st.piece);
    const pieces::part to = cuts.local(s.dst.where, dst_chunk, st.piece);
    if ((s.what & sched::to_all) != 0) {
        count_moved(count, count, to.count);
        return fold_into_all(sources, count, dst_chunk, st, to);
    }
    std::byte* also = s.also != sched::place::none ? window_at(me, sched::segment_of(s.also), st, dst_chunk) : nullptr;
    const int own_index = me >= s.peer_from && me < s.peer_to ? me - s.peer_from : -1;
    const bool own_is_private = own_index >= 0 && s.own != sched::place::none && !sched::is_window(s.own);
    count_moved(also != nullptr ? 1 : 0, count - (own_is_private ? 1 : 0), to.count);
    call_.elements.fold_ranks(sources, count, own_index, s.own, own.at, s.dst.where, to.at, also, to.count);
}

COLLX_ONCE bool window_steps::copy(const sched::step& s, const strand_cursor& st) {
    const pieces& cuts = call_.cuts;
    for (int i = 0; i < s.src.chunks.count; ++i) {
        const int dst_chunk = cuts.chunk(s.dst.chunks, i);
        const pieces::part p = cuts.local(s.src.where, cuts.chunk(s.src.chunks, i), st.piece);
        if (sched::is_window(s.dst.where)) {
            count_moved(1, 0, p.count);
            call_.elements.load(window_at(call_.net.rank(), sched::segment_of(s.dst.where), st, dst_chunk), s.src.where,
                                p.at, p.count);
        } else {
            call_.elements.move(s.src.where, p.at, s.dst.where, cuts.local(s.dst.where, dst_chunk, st.piece).at,
                                p.count);
        }
    }
    return true;
}

// ------------------------------------------------------------------ zero copy
COLLX_ONCE void window_steps::publish_buffers(signal_line& line) const {
    if (!call_.elements.is.plain) return;
    const auto place_of = [&](const void* p) {
        return attached_ ? reinterpret_cast<std::uint64_t>(p) : call_.net.memory().offset_of(p);
    };
    const user_buffers b{place_of(call_.elements.is.in), place_of(call_.elements.is.out)};
    std::memcpy(line.payload, &b, sizeof b);
}

COLLX_ONCE user_buffers window_steps::buffers_of(int rank, const strand_cursor& st) const {
    user_buffers b;
    std::memcpy(&b, window_.line(rank, 0, share_.first + st.piece).payload, sizeof b);
    return b;
}

COLLX_ONCE const std::byte* window_steps::remote_at(sched::place where, int rank, int chunk,
                                                    const strand_cursor& st) const {
    if (sched::is_window(where)) return window_at(rank, sched::segment_of(where), st, chunk);
    const user_buffers b = buffers_of(rank, st);
    const auto* base = static_cast<const std::byte*>(call_.net.memory().at(where == sched::place::in ? b.in : b.out));
    const chunk_layout& l = where == sched::place::in ? call_.cuts.in : call_.cuts.out;
    return base + call_.bytes_of(call_.cuts.cut(l, chunk, st.piece).at);
}

COLLX_ONCE bool window_steps::read_attached(const sched::step& s, int chunk, pieces::part to, const strand_cursor& st) {
    if (!call_.elements.is.plain) return false;
    const user_buffers b = buffers_of(s.peer_from, st);
    const bool is_in = s.src.where == sched::place::in;
    const chunk_layout& l = is_in ? call_.cuts.in : call_.cuts.out;
    const std::uint64_t from = (is_in ? b.in : b.out) + call_.bytes_of(call_.cuts.cut(l, chunk, st.piece).at);
    std::byte* const base = s.dst.where == sched::place::tmp ? call_.plan.scratch : call_.elements.is.out;
    return call_.net.read_private(s.peer_from, base + call_.bytes_of(to.at), from, call_.bytes_of(to.count));
}

COLLX_ONCE void window_steps::fold_into_all(const std::byte** sources, int count, int chunk, const strand_cursor& st,
                                            pieces::part to) {
    std::byte* outs[max_zero_copy_ranks];
    for (int k = 0; k < count; ++k) outs[k] = const_cast<std::byte*>(remote_at(sched::place::out, k, chunk, st));
    std::swap(outs[0], outs[call_.net.rank()]); // of all ranks: see sched::problem::bad_to_all
    call_.elements.fold_everywhere(sources, outs, count, to.count);
}

COLLX_END_NAMESPACE
