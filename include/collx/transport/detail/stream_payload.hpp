// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The payload that a stream reads at present: where its bytes go, how many are missing, and what happens once all of it
// has come. Only for stream_receiver.hpp, which reads the bytes.
#pragma once

#include <collx/transport/detail/stream_lanes.hpp>
#include <collx/transport/detail/stream_parts.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class stream_payload {
public:
    static constexpr std::size_t least_posted_bytes = stream_frame::least_large_bytes;

    explicit stream_payload(stream_parts& of) : of_(of) {}

    std::byte* at() const { return at_; }
    std::size_t left() const { return left_; } // bytes that are missing
    // `bytes` lie in their place.
    void advance(std::size_t bytes) {
        at_ += bytes;
        left_ -= bytes;
        if (left_ == 0) deliver();
    }
    // Copies what was read elsewhere.
    void copy(const std::byte* from, std::size_t bytes) {
        if (at_ != from) copy_bytes(at_, from, bytes);
        advance(bytes);
    }

    // The payload of this message is next. False for what no end of this version sends, and where there is no memory.
    bool begin(const stream_frame& f) {
        if (!of_.ports.map()) return of_.leading.note_no_memory();
        if (f.what == kind::striped && (!of_.lanes || f.bytes < stream_lanes::least_bytes)) return false;
        slot_header* const slot = of_.ports.begin_slot(f);
        if (slot == nullptr) return false;
        at_ = slot->payload;
        if (f.bytes > slot_header::inline_bytes) at_ = of_.ports.take_place(f.at_port, static_cast<bool>(of_.verbs));
        std::byte* const place = at_;
        std::byte* const wanted = f.bytes >= least_posted_bytes ? wanted_at(f) : nullptr;
        is_posted_ = wanted != nullptr;
        if (f.bytes >= least_posted_bytes) of_.ports.note_posted(f.at_port, is_posted_);
        if (is_posted_) {
            slot->bytes |= slot_header::posted_bit;
            at_ = wanted;
        }
        port_ = f.at_port;
        left_ = f.bytes;
        striped_ = 0;
        wants_answer_ = f.what == kind::answered;
        const std::uint64_t number = of_.ports.count_received(f.at_port);
        if (f.what == kind::striped) {
            left_ = of_.lanes->begin_of(1, f.bytes);
            striped_ = of_.lanes->receive_later(at_, is_posted_ ? place : nullptr, f.bytes);
            of_.lanes->expect(f.at_port, number, striped_);
        }
        if (left_ == 0) deliver();
        return true;
    }
    [[gnu::cold]] bool begin_queue_pair(const stream_frame& f) {
        if (f.bytes != sizeof pair_) return false;
        is_pair_ = true;
        at_ = reinterpret_cast<std::byte*>(&pair_);
        left_ = f.bytes;
        is_posted_ = false;
        return true;
    }

    // Whether users' memory may still be written.
    bool goes_to_users() const { return !of_.is_settled && of_.words.failure == 0 && !of_.words.owes_bye; }
    // Where the receiver wants this message; null: nowhere, it goes to a slot.
    std::byte* wanted_at(const stream_frame& f) const { return goes_to_users() ? of_.ports.wanted_at(f) : nullptr; }
    // Nothing goes to users' memory any more.
    [[gnu::cold]] void settle() {
        if (left_ != 0 && is_posted_) at_ = of_.ports.last_place(port_);
        is_posted_ = false;
        if (of_.lanes) of_.lanes->receive_elsewhere();
    }
    // Hands over the messages whose parts have all come by the lanes.
    void deliver_striped() {
        of_.lanes->deliver([this](int p, std::uint64_t number) { of_.ports.deliver(p, number); });
    }

private:
    using kind = stream_frame::kind;

    // Hands the message to the receiving end, once all of it has come.
    void deliver() {
        if (is_pair_) {
            is_pair_ = false;
            if (of_.verbs) of_.verbs->hear_queue_pair(pair_);
            return;
        }
        if (striped_ != 0) {
            of_.lanes->note_led(striped_);
            return deliver_striped();
        }
        if (wants_answer_) {
            // The sender has reset the connection and may have changed its memory, so the bytes may be wrong. The end
            // of the connection is read next.
            if (of_.leading.wire.is_reset(of_.leading.fd())) return;
            ++of_.words.received;
        }
        of_.ports.deliver_last(port_);
    }

    stream_parts& of_;
    std::byte* at_ = nullptr;
    std::size_t left_ = 0;
    int port_ = 0;
    std::uint64_t striped_ = 0; // its number among the striped; 0: all of it comes by the leading lane
    bool is_posted_ = false;    // it goes to the user's memory
    bool wants_answer_ = false; // the sender's system may still read it
    bool is_pair_ = false;      // it is a word: pair_
    queue_pair_address pair_;
};

} // namespace detail

COLLX_END_NAMESPACE
