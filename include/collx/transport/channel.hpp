// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A channel over shared memory: an ordered, credited FIFO of slots from one rank to one other. Each slot has a header
// line with its number and room for a short message, so that a short message is one cache-line transfer; long ones lie
// in a ring of memory, reused as late as possible (see window.hpp for why). Both ends follow the same rule for where a
// message lies, from the sizes in their own schedules.
//
//   sender: try_acquire → fill → commit          receiver: has_message → is_expected → peek, use in place → release
//   slot i % depth is full when header.number == i + 1; free again when the receiver's `taken` > i - depth
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <collx/transport/arena.hpp>

COLLX_BEGIN_NAMESPACE

struct slot_header {
    static constexpr std::size_t inline_bytes = 112;
    std::atomic<std::uint64_t>
        number;          // written by the sender (release) after the payload; read by the receiver (acquire)
    std::uint32_t bytes; // compared with the receiver's own schedule, never obeyed
    std::uint32_t tag;   // likewise: low bits of the whole transfer's element count
    std::byte payload[inline_bytes];
};
static_assert(sizeof(slot_header) == 2 * cache_line_bytes); // a pair that processors fetch together

// Counts never reset; both sides keep the other's last seen value, so a line moves only when it has news.
struct channel_shape {
    int depth = 16;
    std::size_t slot_bytes = 128 * 1024;
    // One slot more than depth: laying long messages one behind the other may waste almost a slot where the ring ends.
    constexpr std::size_t ring_bytes() const { return static_cast<std::size_t>(depth + 1) * slot_bytes; }
    constexpr std::size_t bytes() const {
        return page_bytes + round_up(static_cast<std::size_t>(depth) * sizeof(slot_header), page_bytes) + ring_bytes();
    }
    constexpr bool operator==(const channel_shape&) const = default;
};

namespace detail {
struct channel_memory {
    std::byte* base = nullptr;
    channel_shape shape{};
    std::atomic<std::uint64_t>& taken() const {
        return *reinterpret_cast<std::atomic<std::uint64_t>*>(base);
    } // written by the receiver
    slot_header& slot(std::uint64_t i) const {
        return reinterpret_cast<slot_header*>(base + page_bytes)[i % static_cast<std::uint64_t>(shape.depth)];
    }
    std::byte* ring() const {
        return base + page_bytes + round_up(static_cast<std::size_t>(shape.depth) * sizeof(slot_header), page_bytes);
    }
    // Where a message of `bytes` lies if the one before ended at `position`. Any depth messages of at most slot_bytes
    // in a row lie apart: together with the waste at one end of the ring they are shorter than the ring.
    std::size_t place(std::size_t position, std::size_t bytes) const {
        return position + bytes > shape.ring_bytes() ? 0 : position;
    }
    static std::size_t end_of(std::size_t place, std::size_t bytes) {
        return place + round_up(bytes, cache_line_bytes);
    }
};
} // namespace detail

class sending_end {
public:
    sending_end() = default;
    sending_end(std::byte* base, channel_shape shape) : memory_{base, shape} {
        next_ = taken_ = memory_.taken().load(std::memory_order_relaxed);
    }

    bool is_open() const { return memory_.base != nullptr; }
    // Where to put the next message of `bytes` (at most slot_bytes), or nullptr while all slots are full.
    std::byte* try_acquire(std::size_t bytes) {
        const auto depth = static_cast<std::uint64_t>(memory_.shape.depth);
        if (next_ - taken_ >= depth) {
            taken_ = memory_.taken().load(std::memory_order_acquire);
            if (next_ - taken_ >= depth) return nullptr;
        }
        if (bytes <= slot_header::inline_bytes) return memory_.slot(next_).payload;
        return memory_.ring() + memory_.place(position_, bytes);
    }
    void commit(std::size_t bytes, std::uint32_t tag = 0) {
        auto& slot = memory_.slot(next_);
        slot.bytes = static_cast<std::uint32_t>(bytes);
        slot.tag = tag;
        slot.number.store(++next_, std::memory_order_release);
        if (bytes > slot_header::inline_bytes) position_ = memory_.end_of(memory_.place(position_, bytes), bytes);
        ++messages;
        payload_bytes += bytes;
    }
    std::uint64_t messages = 0, payload_bytes = 0; // facts are checked against these

private:
    detail::channel_memory memory_;
    std::uint64_t next_ = 0, taken_ = 0;
    std::size_t position_ = 0;
};

class receiving_end {
public:
    receiving_end() = default;
    receiving_end(std::byte* base, channel_shape shape) : memory_{base, shape} {
        next_ = memory_.taken().load(std::memory_order_relaxed);
    }

    bool is_open() const { return memory_.base != nullptr; }
    // Whether there is a message.
    bool has_message() const { return memory_.slot(next_).number.load(std::memory_order_acquire) == next_ + 1; }
    // Whether it is the one that this end's schedule expects. Requires has_message().
    bool is_expected(std::size_t bytes, std::uint32_t tag = 0) const {
        const auto& slot = memory_.slot(next_);
        return slot.bytes == bytes && slot.tag == tag;
    }
    // Where the expected message lies.
    const std::byte* peek(std::size_t bytes) const {
        if (bytes <= slot_header::inline_bytes) return memory_.slot(next_).payload;
        return memory_.ring() + memory_.place(position_, bytes);
    }
    void release(std::size_t bytes) {
        if (bytes > slot_header::inline_bytes) position_ = memory_.end_of(memory_.place(position_, bytes), bytes);
        memory_.taken().store(++next_, std::memory_order_release);
    }

private:
    detail::channel_memory memory_;
    std::uint64_t next_ = 0;
    std::size_t position_ = 0;
};

COLLX_END_NAMESPACE
