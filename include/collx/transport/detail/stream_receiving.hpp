// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The receiving half of a stream: reads frames off the leading lane and lets the payloads of messages go where they are
// wanted, or to slots; and what ends a stream. Only for stream.hpp, which says how it is used.
#pragma once

#include <cerrno>
#include <cstring>

#include <collx/transport/detail/stream_sending.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class stream_receiving : public stream_sending {
protected:
    using stream_sending::stream_sending;

    bool move_lanes() {
        if (!is_live()) return false;
        bool moved = lanes_->send();
        if (moved || !unsent_->is_empty()) count_sent_parts();
        if (lanes_->receive()) moved = true, deliver_parts();
        if ((++lane_looks_ & 127) == 0) lanes_->look();
        if (lanes_->has_ended() && is_live()) moved = end_by_lane() || moved;
        if (is_ending_ && !lanes_->is_waiting()) end();
        return moved;
    }
    // The other end closes the leading lane first, with a goodbye: without one, and with nothing more to read there,
    // the connection has broken.
    [[gnu::cold]] bool end_by_lane() {
        if (is_insecure_) return false;
        is_insecure_ = is_nonsense_ = lanes_->is_insecure(); // it shall hear of it
        if (is_insecure_) return true;
        has_more_ = !is_ending_;
        const bool moved = receive();
        if (!is_live() || is_held_ || has_more_ || (words_.has_heard_bye && !lanes_->is_waiting())) return moved;
        if (error_ == 0) error_ = lanes_->error();
        is_ending_ = false;
        phase_ = phase::lost;
        close_all();
        return true;
    }
    bool receive() {
        bool moved = false;
        if (is_ending_) return false;
        if (is_held_ && !read_frames()) return is_nonsense_ = true, end(), true;
        if (is_held_) return true;
        for (int turn = 0; is_live() && !is_insecure_ && turn < 32; ++turn) {
            iovec parts[2];
            int count = 0;
            if (payload_left_ != 0) parts[count++] = {payload_at_, payload_left_};
            parts[count++] = {stage_ + staged_, stage_bytes - staged_};
            const std::size_t room = payload_left_ + stage_bytes - staged_;
            msghdr m{};
            m.msg_iov = parts;
            m.msg_iovlen = static_cast<std::size_t>(count);
            const ssize_t got = wire_.receive(socket_.get(), m);
            if (got < 0 && would_block(errno)) return has_more_ = false, moved;
            if (got < 0 && errno == EBADMSG) return is_nonsense_ = is_insecure_ = true; // it shall hear of it
            if (got < 0 && error_ == 0) error_ = errno;
            if (got <= 0) return end(), true;
            moved = true;
            std::size_t bytes = static_cast<std::size_t>(got);
            const std::size_t direct = bytes < payload_left_ ? bytes : payload_left_;
            if (direct != 0) advance_payload(direct);
            staged_ += bytes - direct;
            if (!read_frames()) return is_nonsense_ = true, end(), true;
            has_more_ = bytes == room;
            if (!has_more_ || is_held_) return true;
        }
        return moved;
    }
    void advance_payload(std::size_t bytes) {
        payload_at_ += bytes;
        payload_left_ -= bytes;
        if (payload_left_ == 0) deliver();
    }
    // Hands the message over to the receiving end, once all of it has come.
    void deliver() {
        if (payload_striped_ != 0) return led_ = payload_striped_, deliver_parts();
        deliver(payload_port_, in_[payload_port_].put - 1);
    }
    void deliver(int p, std::uint64_t number) {
        memory_.rx(p).slot(number).number.store(number + 1, memory_order::release);
    }
    void deliver_parts() {
        for (; !unreceived_->is_empty(); unreceived_->pop()) {
            const unfinished& u = unreceived_->front();
            if (u.striped > led_ || !lanes_->has_come(u.striped)) return;
            deliver(u.at_port, u.number);
        }
    }
    bool read_frames() {
        std::size_t at = 0;
        for (;;) {
            if (payload_left_ != 0) {
                const std::size_t here = staged_ - at < payload_left_ ? staged_ - at : payload_left_;
                if (here == 0) break;
                std::memcpy(payload_at_, stage_ + at, here);
                at += here;
                advance_payload(here);
                continue;
            }
            if (staged_ - at < sizeof(stream_frame)) break;
            stream_frame f;
            std::memcpy(&f, stage_ + at, sizeof f);
            if (is_held_ = !is_held_ && is_early(f); is_held_) break;
            at += sizeof f;
            if (!read_frame(f)) return false;
        }
        std::memmove(stage_, stage_ + at, staged_ - at);
        staged_ -= at;
        return true;
    }
    // Whether to wait with a large message for one look of the receiver, who has had others land and will say where it
    // wants this one.
    bool is_early(const stream_frame& f) {
        if ((f.what != kind::message && f.what != kind::striped) || f.bytes < least_landed_bytes || f.at_port >= ports_)
            return false;
        return in_[f.at_port].lands && !is_wanted(f);
    }
    bool is_wanted(const stream_frame& f) const {
        if (is_settled_ || words_.failure != 0) return false;
        const auto& wish = memory_.rx(f.at_port).landing();
        return wish.number.load(memory_order::acquire) == in_[f.at_port].put + 1 && wish.bytes == f.bytes &&
               wish.tag == f.tag;
    }
    // False for what no end of this version says.
    bool read_frame(const stream_frame& f) {
        if (f.magic != stream_frame::magic_value || words_.has_heard_bye) return false;
        switch (f.what) {
            case kind::message:
            case kind::striped: return read_taken(f) && begin_message(f);
            case kind::credit: return read_taken(f);
            case kind::failure: return words_.hear_failure(f);
            case kind::waiting: return words_.hear_waiting(f), true;
            case kind::lane: return words_.hear_lane(f, lanes());
            case kind::welcome:
                if (phase_ != phase::waiting) return false;
                phase_ = phase::open;
                return true;
            case kind::bye: return words_.has_heard_bye = true;
            default: return is_insecure_ = f.what == kind::refused, false;
        }
    }
    // The other end counts in 32 bits; what it says must lie between what it said before and what it was sent.
    bool read_taken(const stream_frame& f) {
        if (f.at_port >= ports_) return false;
        stream_outgoing& o = out_[f.at_port];
        const std::uint64_t now = o.taken + static_cast<std::uint32_t>(f.taken - static_cast<std::uint32_t>(o.taken));
        if (now > o.queued) return false;
        o.taken = now;
        return true;
    }
    bool begin_message(const stream_frame& f) {
        if (!memory_.map()) return false;
        if (f.what == kind::striped && (!lanes_ || f.bytes < stream_lanes::least_bytes)) return false;
        stream_incoming& i = in_[f.at_port];
        if (f.bytes > memory_.shape().slot_bytes ||
            i.put - memory_.taken(f.at_port) >= static_cast<std::uint64_t>(memory_.shape().depth))
            return false;
        const auto memory = memory_.rx(f.at_port);
        slot_header& slot = memory.slot(i.put);
        slot.bytes = f.bytes;
        slot.tag = f.tag;
        payload_at_ = slot.payload;
        if (f.bytes > slot_header::inline_bytes) memory.take_place(i.put, memory_.taken(f.at_port));
        is_landing_ = f.bytes >= least_landed_bytes && is_wanted(f);
        if (f.bytes >= least_landed_bytes) i.lands = is_landing_;
        if (is_landing_) {
            slot.bytes |= slot_header::landed_bit;
            payload_at_ = memory.landing().at;
        } else if (f.bytes > slot_header::inline_bytes) {
            payload_at_ = memory.own_place(i.put);
        }
        payload_port_ = f.at_port;
        payload_left_ = f.bytes;
        payload_striped_ = 0;
        const std::uint64_t number = i.put++;
        if (f.what == kind::striped) {
            payload_left_ = lanes_->begin_of(1, f.bytes);
            payload_striped_ =
                lanes_->receive_later(payload_at_, is_landing_ ? memory.own_place(number) : nullptr, f.bytes);
            unreceived_->push({f.at_port, number, payload_striped_});
        }
        if (payload_left_ == 0) deliver();
        return true;
    }
    void end() {
        is_ending_ = words_.has_heard_bye && !is_nonsense_ && lanes_ && lanes_->is_waiting();
        if (is_ending_) return; // what other lanes still bring was sent before
        phase_ = words_.has_heard_bye && !is_nonsense_ ? phase::left : phase::lost;
        close_all();
    }
    void close_all() {
        socket_.close();
        if (lanes_) lanes_->close();
    }
};

} // namespace detail

COLLX_END_NAMESPACE
