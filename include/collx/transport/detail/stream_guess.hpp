// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Guesses where the next message of a stream will go, before its head is read. Consecutive messages are mostly alike,
// and a message that is read straight to its place is copied once less. Part of the receiver, which checks the guess.
#pragma once

#include <cstddef>

#include <collx/transport/detail/stream_frame.hpp>
#include <collx/transport/detail/stream_ports.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class stream_guess {
public:
    // The most that is read to a guessed place.
    static constexpr std::size_t most_bytes = 64 * 1024;
    // What one call reads: in a guess, the head and its filler; `bytes` to `at`; `staged_bytes` behind that to the
    // stage.
    struct expectation {
        std::byte* at;
        std::size_t bytes, staged_bytes;
        bool is_guess;                // a large message, whose head comes first
        bool is_joined = false;       // the head comes to `at`, too
        std::size_t filler_bytes = 0; // between head and message; none where they are joined
    };

    // A message has begun.
    void note(const stream_frame& f, bool has_lanes) {
        const bool is_large = f.bytes >= stream_frame::least_large_bytes;
        large_port_ = is_large && !has_lanes ? f.at_port : -1;
        large_bytes_ = f.bytes;
        filler_bytes_ = filler_of(f);
        medium_port_ = f.bytes > slot_header::inline_bytes && !is_large ? f.at_port : -1;
    }
    // Makes no guess of a large message until the next one has begun.
    void forget_large() { large_port_ = -1; }
    bool is_large() const { return large_port_ >= 0; }
    bool is_medium_of(int port) const { return port == medium_port_; }
    // Of the next message, if it is like the last.
    std::size_t head_bytes() const { return sizeof(stream_frame) + (is_large() ? filler_bytes_ : 0); }

    expectation expected(const stream_ports& ports, bool by_device, std::size_t stage_bytes) const {
        if (!is_large()) return expected_medium(ports, by_device, stage_bytes);
        const auto at_most = [](std::size_t bytes) { return bytes < most_bytes ? bytes : most_bytes; };
        if (const posted_line* const wish = ports.wish(large_port_))
            return {wish->at, at_most(wish->bytes), 0, true, false, filler_bytes_};
        if (ports.is_mostly_posted(large_port_)) return {nullptr, 0, head_bytes(), false}; // its receiver says where
        if (ports.is_full(large_port_)) return {nullptr, 0, stage_bytes, false};
        std::byte* const place = ports.take_place(large_port_, by_device);
        if (filler_bytes_ != 0) return {place, at_most(large_bytes_), 0, true, false, filler_bytes_};
        return {place - sizeof(stream_frame), sizeof(stream_frame) + at_most(large_bytes_), 0, true, true};
    }

private:
    // A message that is not large is read with its head in front, by one call and in one part. It is read to its place
    // if it is on the same port as the last. What comes behind it goes through the stage.
    expectation expected_medium(const stream_ports& ports, bool by_device, std::size_t stage_bytes) const {
        if (medium_port_ < 0 || ports.is_full(medium_port_)) return {nullptr, 0, stage_bytes, false};
        std::byte* const place = ports.take_place(medium_port_, by_device);
        const std::size_t most = sizeof(stream_frame) + ports.shape().slot_bytes;
        return {place - sizeof(stream_frame), most < stage_bytes ? most : stage_bytes, 0, false, true};
    }

    int large_port_ = -1;  // of the last message, if it was large
    int medium_port_ = -1; // if it went to a place in one piece
    std::size_t large_bytes_ = 0, filler_bytes_ = 0;
};

} // namespace detail

COLLX_END_NAMESPACE
