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
        if (moved || !unsent_.is_empty()) count_sent_awaited();
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
        // A read that gave nothing or little does not say that nothing is there: the system may be short of memory.
        if (!is_ending_ && (wire_.has_unread() || wire_.is_readable(socket_.get()))) return moved;
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
            const expectation next = expected();
            stream_frame head;
            iovec parts[3];
            int count = 0;
            std::size_t room = 0;
            const auto add = [&](void* at, std::size_t bytes) {
                if (bytes != 0) parts[count++] = {at, bytes}, room += bytes;
            };
            add(&head, next.is_guess && !next.is_joined ? sizeof head : 0);
            add(next.at, next.bytes);
            add(stage_ + staged_, next.staged_bytes);
            msghdr m{};
            m.msg_iov = parts;
            m.msg_iovlen = static_cast<std::size_t>(count);
            const ssize_t got = wire_.receive(socket_.get(), m);
            if (got < 0 && would_block(errno)) return has_more_ = false, moved;
            if (got < 0 && errno == EBADMSG) return is_nonsense_ = is_insecure_ = true; // it shall hear of it
            if (got < 0 && error_ == 0) error_ = errno;
            if (got < 0 && errno == EPROTO) is_nonsense_ = true;
            if (got <= 0) return end(), true;
            moved = true;
            const auto bytes = static_cast<std::size_t>(got);
            if (!(next.is_guess    ? take_guessed(head, next, bytes)
                  : next.is_joined ? take_medium(next.at, bytes)
                                   : take(bytes)))
                return is_nonsense_ = true, end(), true;
            has_more_ = bytes == room;
            // A large message that is here is worked on before the next is read, which may be wanted elsewhere.
            if (!has_more_ || is_held_ ||
                (payload_left_ == 0 && next.bytes != 0 && next.staged_bytes == 0 && (next.is_guess || !next.is_joined)))
                return true;
        }
        return moved;
    }
    // What the next bytes are read into: the rest of a message, or where a large one lands whose head has not come yet,
    // if it is like the last; and the stage behind that.
    struct expectation {
        std::byte* at;
        std::size_t bytes, staged_bytes;
        bool is_guess;          // a large message, whose head comes first
        bool is_joined = false; // the head comes to `at`, too
    };
    expectation expected() {
        if (payload_left_ != 0) return {payload_at_, payload_left_, large_port_ < 0 ? stage_bytes - staged_ : 0, false};
        // Where a device may write, nothing is read that does not belong there.
        if (staged_ != 0 || is_settled_ || words_.failure != 0 || (verbs_ && verbs_->has_offered()))
            return {nullptr, 0, stage_bytes - staged_, false};
        // Word of what was received may come first, and what is behind it shall not lie where it does not belong.
        if (is_exposed()) return {nullptr, 0, sizeof(stream_frame), false};
        if (large_port_ < 0) return expected_medium();
        const stream_incoming& i = in_[large_port_];
        const auto memory = memory_.rx(large_port_);
        const auto& wish = memory.landing();
        const auto at_most = [](std::size_t bytes) { return bytes < most_guessed_bytes ? bytes : most_guessed_bytes; };
        if (wish.number.load(memory_order::acquire) == i.put + 1) return {wish.at, at_most(wish.bytes), 0, true};
        if (i.lands) return {nullptr, 0, sizeof(stream_frame), false}; // the receiver will say where the rest goes
        const std::uint64_t taken = memory_.taken(large_port_);
        if (i.put - taken >= static_cast<std::uint64_t>(memory_.shape().depth)) return {nullptr, 0, stage_bytes, false};
        take_place(memory, i.put, taken);
        return {memory.own_place(i.put) - sizeof(stream_frame), sizeof(stream_frame) + at_most(large_bytes_), 0, true,
                true};
    }
    // A message that is not large is read with its head in front, by one call and in one part, into the place where it
    // goes if it is on the same port as the last. What comes behind it finds its way over the stage.
    expectation expected_medium() {
        if (medium_port_ < 0) return {nullptr, 0, stage_bytes, false};
        const std::uint64_t put = in_[medium_port_].put, taken = memory_.taken(medium_port_);
        if (put - taken >= static_cast<std::uint64_t>(memory_.shape().depth)) return {nullptr, 0, stage_bytes, false};
        const auto memory = memory_.rx(medium_port_);
        take_place(memory, put, taken);
        const std::size_t most = sizeof(stream_frame) + memory_.shape().slot_bytes;
        return {memory.own_place(put) - sizeof(stream_frame), most < stage_bytes ? most : stage_bytes, 0, false, true};
    }
    bool take_medium(const std::byte* at, std::size_t bytes) {
        stream_frame f;
        std::memcpy(&f, at, bytes < sizeof f ? bytes : sizeof f);
        const bool is_like = bytes >= sizeof f && f.what == kind::message && f.at_port == medium_port_ &&
                             f.bytes > slot_header::inline_bytes && f.bytes < least_landed_bytes;
        std::size_t done = 0;
        if (is_like) {
            if (!read_frame(f)) return false;
            at += sizeof f, bytes -= sizeof f;
            done = bytes < payload_left_ ? bytes : payload_left_;
            if (payload_at_ != at) std::memcpy(payload_at_, at, done);
            advance_payload(done);
        }
        if (done == bytes) return true;
        std::memcpy(stage_, at + done, staged_ = bytes - done);
        return read_frames();
    }
    bool take(std::size_t bytes) {
        const std::size_t direct = bytes < payload_left_ ? bytes : payload_left_;
        if (direct != 0) advance_payload(direct);
        staged_ += bytes - direct;
        return read_frames();
    }
    // A head and what follows it: mostly where it belongs.
    bool take_guessed(stream_frame head, const expectation& next, std::size_t bytes) {
        const std::byte* at = next.at;
        if (next.is_joined) std::memcpy(&head, at, bytes < sizeof head ? bytes : sizeof head), at += sizeof head;
        if (bytes < sizeof head) {
            std::memcpy(stage_, &head, staged_ = bytes);
            return true;
        }
        bytes -= sizeof head;
        const bool is_one = bytes == 0 || (is_whole(head.what) && head.bytes >= bytes);
        if (!is_one) return take_misplaced(head, at, bytes);
        if (!read_frame(head)) return false;
        if (bytes == 0) return true;
        if (payload_at_ != at) std::memcpy(payload_at_, at, bytes);
        advance_payload(bytes);
        return true;
    }
    // Something else came first.
    [[gnu::cold, gnu::noinline]] bool take_misplaced(const stream_frame& head, const std::byte* at, std::size_t bytes) {
        std::byte copy[most_guessed_bytes]; // a payload in there may belong where it lies now
        std::memcpy(copy, at, bytes);
        std::memcpy(stage_, &head, staged_ = sizeof head);
        may_hold_ = false;
        bool is_sound = read_frames();
        for (std::size_t done = 0; is_sound && done != bytes;) {
            const std::size_t here = bytes - done < stage_bytes - staged_ ? bytes - done : stage_bytes - staged_;
            std::memcpy(stage_ + staged_, copy + done, here);
            staged_ += here, done += here;
            is_sound = read_frames();
        }
        may_hold_ = true;
        large_port_ = -1; // until the next large one
        return is_sound;
    }
    void advance_payload(std::size_t bytes) {
        payload_at_ += bytes;
        payload_left_ -= bytes;
        if (payload_left_ == 0) deliver();
    }
    // Hands the message over to the receiving end, once all of it has come.
    void deliver() {
        if (payload_is_pair_) {
            payload_is_pair_ = false;
            if (verbs_) verbs_->hear_queue_pair(heard_pair_);
            return;
        }
        if (payload_striped_ != 0) return led_ = payload_striped_, deliver_parts();
        if (payload_is_lent_) {
            // Its sender has hung up without a word and its memory is its own again: who knows what came of that. Its
            // end is read next.
            if (wire_.is_reset(socket_.get())) return;
            ++words_.received;
        }
        deliver(payload_port_, in_[payload_port_].put - 1);
    }
    static bool is_whole(kind k) { return k == kind::message || k == kind::lent; }
    void deliver(int p, std::uint64_t number) {
        memory_.rx(p).slot(number).number.store(number + 1, memory_order::release);
    }
    void deliver_parts() {
        for (; !unreceived_->is_empty(); unreceived_->pop()) {
            const unfinished& u = unreceived_->front();
            if (u.awaited > led_ || !lanes_->has_come(u.awaited)) return;
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
            if (is_held_ = looks_held_ < most_looks && is_early(f); is_held_) {
                ++looks_held_;
                break;
            }
            looks_held_ = 0;
            at += sizeof f;
            if (!read_frame(f)) return false;
        }
        std::memmove(stage_, stage_ + at, staged_ - at);
        staged_ -= at;
        return true;
    }
    // Whether to wait with a large message for the receiver, who has had others land and will say where it wants this
    // one: a few looks, for between two of its looks this stream may be moved for others, too. They cost no system
    // call.
    bool is_early(const stream_frame& f) {
        if ((!is_whole(f.what) && f.what != kind::striped) || f.bytes < least_landed_bytes || f.at_port >= ports_)
            return false;
        return may_hold_ && in_[f.at_port].lands && !is_wanted(f);
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
            case kind::lent:
            case kind::striped: return !has_switched(f) && read_taken(f) && begin_message(f);
            case kind::credit: return !has_switched(f) && read_taken(f);
            case kind::received: return words_.hear_received(f, last_asked_) && (count_sent_awaited(), true);
            case kind::failure: return words_.hear_failure(f);
            case kind::waiting: return words_.hear_waiting(f);
            case kind::lane: return words_.hear_lane(f, lanes());
            case kind::welcome:
                if (phase_ != phase::waiting) return false;
                phase_ = phase::open;
                return true;
            case kind::bye: return words_.hear_bye(f);
            case kind::queue_pair: return begin_queue_pair(f);
            case kind::slots: return !verbs_ || verbs_->hear_slots(f);
            case kind::switched: return verbs_ && verbs_->hear_switched(f);
            default: return is_insecure_ = f.what == kind::refused, false;
        }
    }
    // Of this port the other end has said its last word over the socket.
    bool has_switched(const stream_frame& f) const { return verbs_ && verbs_->has_switched(f.at_port); }
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
        heard_ |= 1u << f.at_port;
        if (f.bytes > memory_.shape().slot_bytes ||
            i.put - memory_.taken(f.at_port) >= static_cast<std::uint64_t>(memory_.shape().depth))
            return false;
        const auto memory = memory_.rx(f.at_port);
        slot_header& slot = memory.slot(i.put);
        slot.bytes = f.bytes;
        slot.tag = f.tag;
        payload_at_ = slot.payload;
        if (f.bytes > slot_header::inline_bytes) take_place(memory, i.put, memory_.taken(f.at_port));
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
        large_port_ = f.bytes >= least_landed_bytes && !lanes_ ? f.at_port : -1;
        large_bytes_ = f.bytes;
        medium_port_ = f.bytes > slot_header::inline_bytes && f.bytes < least_landed_bytes ? f.at_port : -1;
        payload_striped_ = 0;
        payload_is_lent_ = f.what == kind::lent;
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
    [[gnu::cold]] bool begin_queue_pair(const stream_frame& f) {
        if (f.bytes != sizeof heard_pair_) return false;
        payload_is_pair_ = true;
        payload_at_ = reinterpret_cast<std::byte*>(&heard_pair_);
        payload_left_ = f.bytes;
        is_landing_ = false;
        return true;
    }
    // Of what the other end had sent by verbs when it said goodbye.
    bool lacks_messages() const {
        return verbs_ && words_.failure == 0 && words_.heard_failure == 0 &&
               !verbs_->is_complete(words_.heard_messages);
    }
    void end() {
        is_ending_ = words_.has_heard_bye && !is_nonsense_ &&
                     ((lanes_ && lanes_->is_waiting()) || (lacks_messages() && !verbs_->has_failed()));
        if (is_ending_) return; // what other lanes or a device still bring was sent before
        phase_ = words_.has_heard_bye && !is_nonsense_ && !lacks_messages() ? phase::left : phase::lost;
        close_all();
    }
    void close_all() {
        if (is_exposed())
            page_pipe::take_back(socket_.get()); // what the system still has is not to be received any more
        socket_.close();
        if (phase_ == phase::left || phase_ == phase::lost) wire_.end();
        pages_.drop();
        if (lanes_) lanes_->close();
    }
};

} // namespace detail

COLLX_END_NAMESPACE
