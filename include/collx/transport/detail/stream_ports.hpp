// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The channels of this end of a stream, and the credit between both ends: per port and direction how many messages were
// committed, sent, received and taken. A message is sent when the other end has a free slot for it. Only for
// stream.hpp, which says how it is used.
#pragma once

#include <bit>
#include <cstring>
#include <utility>

#include <collx/core/atomic.hpp>
#include <collx/transport/channel.hpp>
#include <collx/transport/detail/stream_frame.hpp>
#include <collx/transport/detail/stream_queue.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class stream_ports {
public:
    stream_ports(channel_shape shape, int ports) : memory_(shape, ports), count_(ports) {}
    int count() const { return count_; }
    const channel_shape& shape() const { return memory_.shape(); }
    const stream_memory& memory() const { return memory_; }
    bool is_mapped() const { return memory_.is_mapped(); }
    bool map() { return memory_.map(); }
    void require() { memory_.require(); }
    // Bit p: this end sends on port p; messages came on it.
    unsigned used() const { return used_; }
    unsigned heard() const { return heard_; }
    static int first_of(unsigned ports) { return std::countr_zero(ports); }

    // ------------------------------------------------------------------ ends
    sending_end tx(int p) {
        memory_.require();
        used_ |= 1u << p;
        return {memory_.tx(p).base, memory_.shape(), true};
    }
    receiving_end rx(int p) {
        memory_.require();
        return {memory_.rx(p).base, memory_.shape(), true};
    }

    // ------------------------------------------------------------------ sending
    bool has_message(int p) const {
        const std::uint64_t i = out_[p].queued;
        return memory_.tx(p).slot(i).number.load(memory_order::acquire) == i + 1;
    }
    bool has_messages() const {
        for (unsigned rest = used_; rest != 0; rest &= rest - 1)
            if (has_message(first_of(rest))) return true;
        return false;
    }
    // Whether the other end has a free slot.
    bool has_room(int p) const { return out_[p].queued - out_[p].taken < depth(); }
    // The next message of a port, which has one: its number in the channel.
    std::uint64_t next_number(int p) const { return out_[p].queued; }
    const slot_header& next_slot(int p) const { return memory_.tx(p).slot(out_[p].queued); }
    std::byte* next_place(int p) const { return memory_.tx(p).own_place(out_[p].queued); }
    void pass_next(int p) { ++out_[p].queued; }
    // Where its payload lies, and its length.
    std::pair<const std::byte*, std::uint32_t> next_payload(int p) const {
        const slot_header& slot = next_slot(p);
        const std::uint32_t bytes = slot.bytes & ~slot_header::single_copy_bit;
        const std::byte* at = bytes <= slot_header::inline_bytes ? slot.payload : next_place(p);
        if (slot.bytes != bytes) std::memcpy(&at, slot.payload, sizeof at);
        return {at, bytes};
    }
    bool has_under_way(int p) const { return out_[p].queued != out_[p].sent; }
    // The system has the message in front: its slot is free.
    void count_sent(int p) { memory_.tx(p).taken().store(++out_[p].sent, memory_order::release); }
    // The other end counts in 32 bits. Its count must lie between its last one and the number of queued messages.
    bool hear_taken(const stream_frame& f) { return hear_taken(f.at_port, f.taken); }
    bool hear_taken(int p, std::uint32_t taken) {
        if (p >= count_) return false;
        stream_outgoing& o = out_[p];
        const std::uint64_t now = o.taken + static_cast<std::uint32_t>(taken - static_cast<std::uint32_t>(o.taken));
        if (now > o.queued) return false;
        o.taken = now;
        return true;
    }

    // ------------------------------------------------------------------ receiving
    // Credit for half of the slots at a time: it is seldom sent, and a sender that waits for a slot always gets one.
    bool owes_credit(int p) const { return (memory_.taken(p) - in_[p].told) * 2 >= depth(); }
    bool owes_credits() const {
        for (unsigned rest = heard_; rest != 0; rest &= rest - 1)
            if (owes_credit(first_of(rest))) return true;
        return false;
    }
    // How many messages of a port were taken here (low bits); the caller sends this to the other end.
    std::uint32_t tell_taken(int p) { return static_cast<std::uint32_t>(in_[p].told = memory_.taken(p)); }
    // The same where the caller may find no room: note_told() once it has said so.
    std::uint64_t taken_here(int p) const { return memory_.taken(p); }
    void note_told(int p, std::uint64_t taken) { in_[p].told = taken; }

    bool is_full(int p) const { return in_[p].put - memory_.taken(p) >= depth(); }
    // Where the next message of a port arrives unless its receiver wants it elsewhere. Requires a free slot. is_fixed:
    // a device writes it, so the place is message % depth.
    std::byte* take_place(int p, bool is_fixed) const {
        const channel_memory rx = memory_.rx(p);
        is_fixed ? rx.take_fixed_place(in_[p].put) : rx.take_place(in_[p].put, memory_.taken(p));
        return rx.own_place(in_[p].put);
    }
    // The slot of the next message, filled from its head; null if the other end must not send it.
    slot_header* begin_slot(const stream_frame& f) { return begin_slot(f.at_port, f.bytes, f.tag); }
    slot_header* begin_slot(int p, std::uint32_t bytes, std::uint32_t tag) {
        heard_ |= 1u << p;
        if (bytes > shape().slot_bytes || is_full(p)) return nullptr;
        slot_header& slot = slot_in(p);
        slot.bytes = bytes;
        slot.tag = tag;
        return &slot;
    }
    slot_header& slot_in(int p) const { return memory_.rx(p).slot(in_[p].put); }
    std::byte* place_in(int p) const { return memory_.rx(p).own_place(in_[p].put); }
    std::uint64_t count_received(int p) { return in_[p].put++; }
    // Where the last message of a port arrived, or arrives.
    std::byte* last_place(int p) const { return memory_.rx(p).own_place(in_[p].put - 1); }
    // Hands a message to the receiving end.
    void deliver(int p, std::uint64_t number) {
        memory_.rx(p).slot(number).number.store(number + 1, memory_order::release);
    }
    void deliver_last(int p) { deliver(p, in_[p].put - 1); }
    // Puts a whole message that came by a device. False for what no end of this version sends.
    bool put(const stream_frame& f, const std::byte* payload, std::size_t bytes) {
        const bool is_short = f.bytes <= slot_header::inline_bytes;
        if (bytes != (is_short ? f.bytes : 0)) return false;
        slot_header* const slot = begin_slot(f);
        if (slot == nullptr) return false;
        if (is_short) std::memcpy(slot->payload, payload, bytes);
        else (void)take_place(f.at_port, true);
        deliver(f.at_port, count_received(f.at_port));
        return true;
    }

    // ------------------------------------------------------------------ pre-posted receives
    // Where the receiver wants the next message of a port; null: it has not said.
    const posted_line* wish(int p) const {
        const auto& w = memory_.rx(p).posted();
        return w.number.load(memory_order::acquire) == in_[p].put + 1 ? &w : nullptr;
    }
    // Where it wants this message; null: nowhere.
    std::byte* wanted_at(const stream_frame& f) const {
        const posted_line* const w = wish(f.at_port);
        return w != nullptr && w->bytes == f.bytes && w->tag == f.tag ? w->at : nullptr;
    }
    // Whether large messages of this port are mostly wanted somewhere, as the last one was.
    bool is_mostly_posted(int p) const { return in_[p].is_mostly_posted; }
    void note_posted(int p, bool is_posted) { in_[p].is_mostly_posted = is_posted; }

private:
    std::uint64_t depth() const { return static_cast<std::uint64_t>(shape().depth); }

    stream_memory memory_;
    int count_;
    unsigned used_ = 0, heard_ = 0;
    stream_outgoing out_[stream_frame::most_ports];
    stream_incoming in_[stream_frame::most_ports];
};

} // namespace detail

COLLX_END_NAMESPACE
