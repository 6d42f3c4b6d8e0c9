// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The short form of a schedule, for calls that take as long as moving a few cache lines: one strand, one iteration,
// plain arrays, run to its end by the calling thread. It puts the same bytes and signals in the same places as a task,
// which a peer may be running. run_short_steps() runs schedules over windows. is_short_exchange() says which schedules
// of messages have a short form; call/short_calls.hpp runs these.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/atomic.hpp>
#include <collx/core/copy_bytes.hpp>
#include <collx/exec/bound_schedule.hpp>
#include <collx/exec/element_ops.hpp>
#include <collx/exec/layout.hpp>
#include <collx/transport/links.hpp>
#include <collx/transport/write_for_others.hpp>

COLLX_BEGIN_NAMESPACE

// The most bytes of one chunk; longer chunks travel in pieces.
inline constexpr std::size_t most_short_bytes = 16 * 1024;

// The data of one call: two arrays and how they are cut. Requires: plain elements.
struct short_call {
    const element_ops& elements;
    const chunk_layout &in_layout, &out_layout;
    std::size_t chunk_elems; // of the largest chunk, at least 1
    std::uint64_t agreed;    // see call_state

    std::size_t bytes_of(std::size_t elems) const { return elems * elements.is.bytes; }
    const std::byte* input(int chunk) const { return elements.is.in + bytes_of(in_layout.offset(chunk)); }
    std::byte* output(int chunk) const { return elements.is.out + bytes_of(out_layout.offset(chunk)); }
};

// Whether run_short_steps() can run a program. Requires: own_orders() has settled single chunks.
inline bool is_short_form(const sched::program& p) {
    using sched::place;
    if (p.strands.size() != 1) return false;
    for (const auto& s : p.strands[0]) {
        if (s.what == sched::signal || s.what == sched::wait) continue;
        if (s.src.chunks.count != 1 || s.dst.chunks.count != 1 || s.also != place::none) return false;
        const bool to_out = s.dst.where == place::out, from_window = s.src.where == place::window0;
        if (s.what == sched::copy ? s.src.where != place::in || (!to_out && s.dst.where != place::window0)
            : s.what == (sched::get | sched::copy)  ? !to_out || !from_window
            : s.what == (sched::fold | sched::copy) ? !to_out || !from_window || s.own != place::in
                                                    : true)
            return false;
    }
    return true;
}

// Whether a program of messages has a short form: each rank first sends parts of its input, then receives parts of its
// output, with one message each way between two ranks. Then strands may run one after the other: a message has room
// once the peer is in this call, and no peer waits for more than this call's messages before its next call.
inline bool is_short_exchange(const sched::program& p) {
    using sched::place;
    bool has_received = false;
    detail::growing_array<int> sent_to;
    for (const auto& strand : p.strands)
        for (const auto& s : strand) {
            const bool sends = s.what == sched::send, receives = s.what == (sched::recv | sched::copy);
            if ((!sends && !receives && s.what != sched::copy) || s.also != place::none) return false;
            if (!receives && (s.src.where != place::in || s.src.chunks.count != 1)) return false;
            if (!sends && (s.dst.where != place::out || s.dst.chunks.count != 1)) return false;
            if (sends && has_received) return false;
            if (sends)
                for (const int peer : sent_to)
                    if (peer == s.peer_to) return false;
            if (sends) sent_to.push_back(s.peer_to);
            has_received = has_received || receives;
        }
    return !p.strands.empty();
}

// await(word, least, peer) returns the word once it has reached `least`, or throws; await.disagree(peer) throws.
template <class Await>
void run_short_steps(int me, int ranks, bound_schedule& plan, const short_call& c, Await&& await) {
    const window_memory& memory = plan.window->memory;
    const std::size_t stride_bytes = c.bytes_of(c.chunk_elems);
    const bound_window::share share = plan.window->take(1, stride_bytes, c.elements.is.align <= 8, c.agreed);
    const std::uint64_t now = share.first;
    const auto staged = [&](int rank, int chunk) {
        return share.is_inline ? memory.line(rank, 0, now).payload + static_cast<std::size_t>(chunk) * stride_bytes
                               : memory.at(rank, 0, chunk, share.position);
    };
    // From three lines on a string copy is faster for readers that copy, not for readers that add. (2 ranks, all_gather
    // of 384 bytes, memcpy and string copy: 0.59 and 0.40 us with caches apart, 0.13 and 0.11 with a shared one.)
    const std::size_t least_string_copy = c.elements.is.reduces ? 1280 : 192;
    const auto move = [](std::byte* to, const std::byte* from, std::size_t bytes) {
        if (bytes != 0 && to != from) copy_bytes(to, from, bytes);
    };
    for (const sched::step& s : plan.steps.strands[0]) {
        if (s.what == sched::signal) {
            memory.line(me, s.index, now).word.store(signal_word::of(now + 1, share.tag), memory_order::release);
        } else if (s.what == sched::wait) {
            if (now < s.lag) continue;
            const std::uint64_t then = now - s.lag;
            const auto hear = [&](int peer) {
                const std::uint64_t word = await(memory.line(peer, s.index, then).word, then + 1, peer);
                if (!plan.window->agrees(share, word, then)) await.disagree(peer);
            };
            if (s.peer_from != sched::all_ranks) hear(s.peer_from);
            else
                for (int r = 0; r < ranks; ++r)
                    if (r != me) hear(r);
        } else {
            const int from = s.src.chunks.first, to = s.dst.chunks.first;
            if (s.what == sched::copy) {
                const std::size_t bytes = c.bytes_of(c.in_layout.size(from));
                const bool is_own = s.dst.where == sched::place::out;
                plan.window->bytes_written += is_own ? 0 : bytes;
                if (is_own) move(c.output(to), c.input(from), bytes);
                else if (bytes != 0) write_for_others(staged(me, to), c.input(from), bytes, least_string_copy);
            } else if (s.what == (sched::get | sched::copy)) {
                const std::size_t bytes = c.bytes_of(c.out_layout.size(to));
                plan.window->bytes_read += bytes;
                move(c.output(to), staged(s.peer_from, from), bytes);
            } else {
                const auto** const sources = reinterpret_cast<const std::byte**>(plan.sources.data());
                for (int r = s.peer_from; r < s.peer_to; ++r)
                    sources[r - s.peer_from] = r == me ? c.input(from) : staged(r, from);
                const int reads = s.peer_to - s.peer_from - (me >= s.peer_from && me < s.peer_to ? 1 : 0);
                plan.window->bytes_read += static_cast<std::size_t>(reads) * c.bytes_of(c.out_layout.size(to));
                c.elements.sum(c.output(to), sources, s.peer_to - s.peer_from, c.out_layout.size(to));
            }
        }
    }
}

COLLX_END_NAMESPACE
