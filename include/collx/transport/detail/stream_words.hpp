// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The small words of a stream, beside its messages: what this end has to say and has said, and what it has heard.
#pragma once

#include <cstdint>

#include <collx/core/clock.hpp>
#include <collx/transport/detail/stream_frame.hpp>
#include <collx/transport/detail/stream_lanes.hpp>
#include <collx/transport/detail/stream_queue.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

struct stream_words {
    using kind = stream_frame::kind;

    // To say.
    bool owes_welcome = false, owes_waiting = false, owes_bye = false, has_queued_bye = false;
    std::uint64_t failure = 0, said_failure = 0;
    int waiting = 0;
    // One for each lane that came here: which attempt to make it that was; the first asks the other end to make them.
    std::uint32_t received = 0, said_received = 0; // messages by reference
    std::uint32_t owed_lanes = 0, attempts[stream_lanes::most] = {};

    // Heard.
    std::uint64_t heard_failure = 0;
    int heard_waiting = -1;
    std::int64_t heard_waiting_at_ns = 0;
    bool has_heard_bye = false;
    std::uint32_t heard_messages = 0; // that the other end had sent by verbs until then
    std::uint64_t heard_received = 0;
    std::uint32_t heard_lanes = 0, heard_attempts[stream_lanes::most] = {};

    bool owes_any() const {
        return owes_welcome || owes_waiting || owes_bye || failure != said_failure || received != said_received ||
               owed_lanes != 0;
    }
    void add_welcome(stream_queue& to) {
        if (owes_welcome) owes_welcome = false, to.add_word({.what = kind::welcome});
    }
    void add_failure(stream_queue& to) {
        if (failure == said_failure) return;
        said_failure = failure;
        to.add_word({.what = kind::failure,
                     .bytes = static_cast<std::uint32_t>(failure),
                     .tag = static_cast<std::uint32_t>(failure >> 32)});
    }
    void add_received(stream_queue& to) {
        if (received == said_received || to.is_full()) return;
        said_received = received;
        to.add_word({.what = kind::received, .bytes = received});
    }
    void add_waiting(stream_queue& to) {
        if (!owes_waiting || to.is_full()) return;
        owes_waiting = false;
        to.add_word({.what = kind::waiting, .bytes = static_cast<std::uint32_t>(waiting)});
    }
    void add_lanes(stream_queue& to) {
        for (std::uint32_t k = 0; owed_lanes >> k != 0 && !to.is_full(); ++k) {
            if ((owed_lanes >> k & 1) == 0) continue;
            owed_lanes &= ~(1u << k);
            to.add_word({.what = kind::lane, .bytes = k, .tag = attempts[k]});
        }
    }
    // messages: that went by verbs.
    void add_bye(stream_queue& to, std::uint32_t messages) {
        if (owes_bye && !to.is_full()) has_queued_bye = true, to.add_word({.what = kind::bye, .bytes = messages});
    }
    bool hear_bye(const stream_frame& f) { return heard_messages = f.bytes, has_heard_bye = true; }
    bool hear_failure(const stream_frame& f) {
        heard_failure = static_cast<std::uint64_t>(f.tag) << 32 | f.bytes;
        return heard_failure != 0;
    }
    // last: number of the last of them that was sent.
    bool hear_received(const stream_frame& f, std::uint64_t last) {
        heard_received += f.bytes - static_cast<std::uint32_t>(heard_received);
        return heard_received <= last;
    }
    void hear_waiting(const stream_frame& f) {
        heard_waiting = static_cast<int>(f.bytes - 1u);
        heard_waiting_at_ns = now_ns();
    }
    bool hear_lane(const stream_frame& f, int lanes) {
        if (lanes == 1 || f.bytes >= static_cast<std::uint32_t>(lanes)) return false;
        heard_lanes |= 1u << f.bytes;
        heard_attempts[f.bytes] = f.tag;
        return true;
    }
};

} // namespace detail

COLLX_END_NAMESPACE
