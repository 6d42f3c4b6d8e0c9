// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of channel_steps.hpp, independent of element types: compiled once (docs/design/compile-once.md).
#pragma once

#include <cerrno>
#include <cstring>

#include <collx/core/clock.hpp>
#include <collx/exec/channel_steps.hpp>
#include <collx/transport/write_for_others.hpp>

COLLX_BEGIN_NAMESPACE

COLLX_ONCE bool channel_steps::run(const sched::step& s, strand_cursor& st) {
    if (st.awaited != nullptr) { // most polls of a wait end here
        if (!st.awaited->has_message()) return call_.blocked_on(s.peer_from);
        st.awaited = nullptr;
    }
    if (st.covered != nullptr && st.piece < st.covered[st.step_index(s)]) return true; // went with an earlier piece
    const bool receives = (s.what & sched::recv) != 0, sends = (s.what & sched::send) != 0;
    const sched::ref& shape =
        (s.what & sched::copy) != 0 || !sends ? s.dst : (s.src.where != sched::place::none ? s.src : s.dst);
    const std::size_t n = call_.cuts.message_elems(shape.where, shape.chunks, st.piece);
    if (n == 0 && (st.piece > 0 || skips_empty_)) return true; // both ends know that this chunk has ended
    channel_message m{.bytes = framed(call_.bytes_of(n)), .tag = tag_of(shape)};
    const bool measures = call_.plan.allows_single_copy && m.bytes >= least_measured_bytes;
    if (receives) {
        m.rx = &call_.net.rx(call_.plan.at_port, s.peer_from);
        if (!m.rx->has_message()) {
            if (is_remote(m.bytes, m.rx, nullptr)) detail::by_channels->want(*this, s, st, *m.rx, m.bytes, m.tag);
            st.awaited = m.rx;
            return call_.blocked_on(s.peer_from);
        }
        if (m.rx->is_single_copy()) return receive_single_copy(s, st, *m.rx, m.tag);
        if (!m.rx->is_expected(m.bytes, m.tag)) return refused(*m.rx, s.peer_from, n, shape);
        if (measures) call_.net.find_out_reading(*m.rx, s.peer_from);
        m.in = m.rx->peek(m.bytes);
    }
    if (sends) {
        m.tx = &call_.net.tx(call_.plan.at_port, s.peer_to);
        if (!m.tx->has_room(m.bytes)) return call_.blocked_on(s.peer_to, awaited::why::room);
    }
    return move_message(s, st, shape, m, measures);
}

// How long a short message of elements with a large alignment is cannot be seen: see framed().
[[gnu::cold]] COLLX_ONCE bool channel_steps::refused(const receiving_end& rx, int peer, std::size_t expected_elems,
                                                     const sched::ref& shape) const {
    const std::size_t came = rx.message_bytes(), expected = call_.bytes_of(expected_elems);
    return call_.refused({peer, came == slot_header::inline_bytes + 1 ? odd_message::unknown : came, expected,
                          call_.bytes_of(call_.cuts.transfer_elems(shape))});
}

// Requires: a message and room, as far as the step needs them.
COLLX_ONCE bool channel_steps::move_message(const sched::step& s, strand_cursor& st, const sched::ref& shape,
                                            channel_message& m, bool measures) {
    if (is_remote(m.bytes, m.rx, m.tx) && detail::by_channels->run(*this, s, st, m)) {
        push(s, st, m.tx);
        return true;
    }
    if (m.tx != nullptr) {
        if (may_send_single_copy(s)) {
            const std::size_t elems_by_single_copy =
                single_copy_elems(call_.cuts.in, call_.cuts.chunk(s.src.chunks, 0), st);
            if (m.tx->prefers_single_copy(m.bytes, call_.bytes_of(elems_by_single_copy)))
                return send_single_copy(s, st, *m.tx, m.tag);
        }
        if (m.bytes >= call_.plan.least_restarted_bytes) m.tx->restart_if_empty();
        m.out = m.tx->try_acquire(m.bytes);
    }
    const bool samples = measures && (m.tx != nullptr ? m.tx->is_sampled() : m.rx->is_sampled());
    const std::int64_t began = samples ? now_ns() : 0;
    for (int i = 0; i < shape.chunks.count; ++i) {
        const std::size_t done = call_.bytes_of(touch(s, st, i, m.in, m.out));
        if (m.in != nullptr) m.in += done;
        if (m.out != nullptr) m.out += done;
    }
    if (samples && m.tx != nullptr) m.tx->add_cost(now_ns() - began, m.bytes);
    if (samples && m.tx == nullptr) m.rx->say_cost(false, now_ns() - began, m.bytes);
    if (m.tx != nullptr) m.tx->commit(m.bytes, m.tag);
    if (m.rx != nullptr) m.rx->release(m.bytes);
    push(s, st, m.tx);
    return true;
}

// Does one chunk of a channel step; returns its number of elements.
COLLX_ONCE std::size_t channel_steps::touch(const sched::step& s, const strand_cursor& st, int i, const std::byte* in,
                                            std::byte* out) {
    const pieces& cuts = call_.cuts;
    element_ops& elements = call_.elements;
    const int dst_chunk = cuts.chunk(s.dst.chunks, i);
    if (in == nullptr) {
        if (out == nullptr) __builtin_unreachable(); // from a message, into one, or both
        const pieces::part p = cuts.local(s.src.where, cuts.chunk(s.src.chunks, i), st.piece);
        elements.load(out, s.src.where, p.at, p.count);
        return p.count;
    }
    const pieces::part to = cuts.local(s.dst.where, dst_chunk, st.piece);
    if ((s.what & (sched::reduce | sched::reduce_after)) != 0) {
        const pieces::part own = cuts.local(s.src.where, cuts.chunk(s.src.chunks, i), st.piece);
        elements.combine(in, (s.what & sched::reduce) != 0, s.src.where, own.at, s.dst.where, to.at, out, own.count);
        return own.count;
    }
    if ((s.what & sched::copy) != 0) elements.store(s.dst.where, to.at, in, to.count);
    if (out != nullptr && to.count != 0) write_for_others(out, in, call_.bytes_of(to.count));
    return to.count;
}

// ------------------------------------------------------------------ between hosts
// A message after which nothing is received need not wait for the next look at what arrives. Pieces go together.
COLLX_ONCE void channel_steps::push(const sched::step& s, const strand_cursor& st, const sending_end* tx) {
    if (tx == nullptr || !tx->is_remote() || call_.cuts.count != 1) return;
    if ((may(s, st) & bound_schedule::last) != 0) call_.net.push(s.peer_to);
}

// ------------------------------------------------------------------ single copy
// The cold functions are compiled for size, away from the other steps: messages of this size have time for a call. Only
// plain memory is read in place: hooks or a wire type would change what travels.
COLLX_ONCE bool channel_steps::may_send_single_copy(const sched::step& s) const {
    const element_ops::facts& is = call_.elements.is;
    return is.plain && is.align <= 16 && call_.plan.allows_single_copy && s.what == sched::send &&
           s.src.where == sched::place::in && s.src.chunks.count == 1 &&
           call_.bytes_of(call_.cuts.in.size(call_.cuts.chunk(s.src.chunks, 0))) >= least_single_copy_bytes &&
           call_.net.may_single_copy() &&
           stays_as_it_is(call_.plan.steps, call_.cuts, call_.elements, call_.cuts.chunk(s.src.chunks, 0));
}

[[gnu::cold]] COLLX_ONCE void channel_steps::cover(const sched::step& s, strand_cursor& st, std::size_t elems) {
    const auto& strands = call_.plan.steps.strands;
    if (covered_.empty()) {
        std::size_t steps = 0;
        for (const auto& strand : strands) steps += strand.size();
        covered_ = std::move(call_.plan.spare_covered); // a repeated call takes no memory
        covered_.assign(steps, 0);
    }
    if (st.covered == nullptr) {
        st.covered = covered_.data();
        for (int before = 0; before < st.index; ++before) st.covered += strands[before].size();
    }
    st.covered[st.step_index(s)] = st.piece + (elems + call_.cuts.elems - 1) / call_.cuts.elems;
}

// Requires: may_send_single_copy(s).
[[gnu::cold]] COLLX_ONCE bool channel_steps::send_single_copy(const sched::step& s, strand_cursor& st, sending_end& tx,
                                                              std::uint32_t tag) {
    const int chunk = call_.cuts.chunk(s.src.chunks, 0);
    const std::size_t n = single_copy_elems(call_.cuts.in, chunk, st);
    tx.commit_single_copy(call_.elements.is.in + call_.bytes_of(call_.cuts.cut(call_.cuts.in, chunk, st.piece).at),
                          call_.bytes_of(n), tag);
    cover(s, st, n);
    must_return_ = true;
    return true;
}

[[gnu::cold]] COLLX_ONCE bool channel_steps::receive_single_copy(const sched::step& s, strand_cursor& st,
                                                                 receiving_end& rx, std::uint32_t tag) {
    const int chunk = call_.cuts.chunk(s.dst.chunks, 0), peer = s.peer_from;
    const std::size_t n = single_copy_elems(call_.cuts.out, chunk, st);
    if (!call_.plan.allows_single_copy || !rx.is_expected(call_.bytes_of(n), tag)) return refused(rx, peer, n, s.dst);
    const std::int64_t began = now_ns();
    if (!read_from_peer(s, st, rx.sender_address(), chunk, n))
        return call_.broken(errno == ESRCH ? errc::peer_failed : errc::unsupported, peer);
    rx.say_cost(true, now_ns() - began, call_.bytes_of(n));
    // A sender that gives up announces that before its memory is reused.
    if (const failure f = call_.net.failed()) {
        call_.op.error = f;
        return false;
    }
    cover(s, st, n);
    rx.release_single_copy();
    return true;
}

// Reads all at once where it only has to be stored in plain memory, else piece by piece through the cache.
[[gnu::cold]] COLLX_ONCE bool channel_steps::read_from_peer(const sched::step& s, const strand_cursor& st,
                                                            std::uint64_t address, int chunk, std::size_t n) {
    const pieces& cuts = call_.cuts;
    if (call_.elements.is.plain && s.what == (sched::recv | sched::copy))
        return call_.net.read_private(s.peer_from,
                                      call_.elements.is.out + call_.bytes_of(cuts.cut(cuts.out, chunk, st.piece).at),
                                      address, call_.bytes_of(n));
    const std::size_t most = n < cuts.elems ? n : cuts.elems;
    detail::growing_array<std::byte>& part = call_.plan.spare_piece;
    part.resize(call_.bytes_of(most));
    strand_cursor at = st;
    for (std::size_t done = 0; done < n; done += most, ++at.piece) {
        const std::size_t m = n - done < most ? n - done : most;
        if (!call_.net.read_private(s.peer_from, part.data(), address + call_.bytes_of(done), call_.bytes_of(m)))
            return false;
        touch(s, at, 0, part.data(), nullptr);
    }
    return true;
}

[[gnu::cold]] COLLX_ONCE void channel_steps::keep_memory() { call_.plan.spare_covered = std::move(covered_); }

COLLX_ONCE bool channel_steps::is_returned() {
    for (const auto& strand : call_.plan.steps.strands)
        for (const auto& s : strand)
            if ((s.what & sched::send) != 0 && !is_back(call_.net.tx(call_.plan.at_port, s.peer_to)))
                return call_.blocked_on(s.peer_to, awaited::why::room);
    return true;
}

COLLX_END_NAMESPACE
