// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The small words of a stream, beside its messages: what this end has to send and has sent, and what it has received.
#pragma once

#include <cstdint>

#include <collx/core/clock.hpp>
#include <collx/transport/detail/stream_frame.hpp>
#include <collx/transport/detail/stream_lanes.hpp>
#include <collx/transport/detail/stream_queue.hpp>
#include <collx/transport/failure.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

struct stream_words {
    using kind = stream_frame::kind;

    // To send.
    bool owes_welcome = false, owes_bye = false, has_queued_bye = false;
    std::uint64_t failure = 0, said_failure = 0;
    waiting_words waits; // of all ranks, also those received
    waiting_chain waiting;
    std::uint32_t received = 0, said_received = 0; // messages by reference
    // Bit k: lane k came here, at that attempt to make it. Bit 0 asks the other end to make the lanes.
    std::uint32_t owed_lanes = 0, attempts[stream_lanes::most] = {};

    // Received.
    std::uint64_t heard_failure = 0;
    bool has_heard_bye = false;
    std::uint32_t heard_messages = 0; // sent by the other end by verbs before its goodbye
    std::uint64_t heard_received = 0;
    std::uint32_t heard_lanes = 0, heard_attempts[stream_lanes::most] = {};

    bool owes_any() const {
        return owes_welcome || waiting.next >= 0 || owes_bye || failure != said_failure || received != said_received ||
               owed_lanes != 0;
    }
    void add_welcome(stream_queue& to) {
        if (owes_welcome) {
            owes_welcome = false;
            to.add_word({.what = kind::welcome});
        }
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
        waiting.send(waits, [&](std::uint32_t rank, std::uint32_t low, std::uint32_t age) {
            if (to.is_full()) return false;
            to.add_word({.what = kind::waiting, .bytes = low, .tag = rank, .taken = age});
            return true;
        });
    }
    void add_lanes(stream_queue& to) {
        for (std::uint32_t k = 0; owed_lanes >> k != 0 && !to.is_full(); ++k) {
            if ((owed_lanes >> k & 1) == 0) continue;
            owed_lanes &= ~(1u << k);
            to.add_word({.what = kind::lane, .bytes = k, .tag = attempts[k]});
        }
    }
    // messages: the number sent by verbs.
    void add_bye(stream_queue& to, std::uint32_t messages) {
        if (owes_bye && !to.is_full()) {
            has_queued_bye = true;
            to.add_word({.what = kind::bye, .bytes = messages});
        }
    }
    bool hear_bye(const stream_frame& f) {
        heard_messages = f.bytes;
        return has_heard_bye = true;
    }
    bool hear_failure(const stream_frame& f) {
        heard_failure = static_cast<std::uint64_t>(f.tag) << 32 | f.bytes;
        return heard_failure != 0;
    }
    // last: the number of the last message that was sent and wants an answer.
    bool hear_received(const stream_frame& f, std::uint64_t last) {
        heard_received += f.bytes - static_cast<std::uint32_t>(heard_received);
        return heard_received <= last;
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
