// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A channel over shared memory: an ordered, credited FIFO of slots from one rank to one other. Each slot has a header line with its number and room
// for a short message, so that a short message is one cache-line transfer; long ones lie in the slot's body.
//
//   sender: try_acquire → fill → commit          receiver: try_peek → use in place → release
//   slot i % depth is full when header.number == i + 1; free again when the receiver's `taken` > i - depth
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <collx/transport/arena.hpp>

COLLX_BEGIN_NAMESPACE

// Counts that never reset; both sides keep the other's last seen value, so a line moves only when it has news.
struct channel_shape {
    int depth = 8;
    std::size_t slot_bytes = 64 * 1024;
    constexpr std::size_t bytes() const {
        return page_bytes + round_up(static_cast<std::size_t>(depth) * cache_line_bytes, page_bytes) + static_cast<std::size_t>(depth) * slot_bytes;
    }
    constexpr bool operator==(const channel_shape&) const = default;
};

struct slot_header {
    static constexpr std::size_t inline_bytes = 48;
    std::atomic<std::uint64_t> number;  // written by the sender (release) after the payload; read by the receiver (acquire)
    std::uint32_t bytes;                // compared with the receiver's own schedule, never obeyed
    std::uint32_t tag;                  // likewise: low bits of the whole transfer's element count
    std::byte payload[inline_bytes];
};
static_assert(sizeof(slot_header) == cache_line_bytes);

namespace detail {
struct channel_memory {
    std::byte* base = nullptr;
    channel_shape shape{};
    std::atomic<std::uint64_t>& taken() const { return *reinterpret_cast<std::atomic<std::uint64_t>*>(base); }  // written by the receiver
    slot_header& slot(std::uint64_t i) const {
        return reinterpret_cast<slot_header*>(base + page_bytes)[i % static_cast<std::uint64_t>(shape.depth)];
    }
    std::byte* body(std::uint64_t i) const {
        return base + page_bytes + round_up(static_cast<std::size_t>(shape.depth) * cache_line_bytes, page_bytes) +
               (i % static_cast<std::uint64_t>(shape.depth)) * shape.slot_bytes;
    }
};
}  // namespace detail

class sending_end {
public:
    sending_end() = default;
    sending_end(std::byte* base, channel_shape shape) : memory_{base, shape} { next_ = taken_ = memory_.taken().load(std::memory_order_relaxed); }

    bool is_open() const { return memory_.base != nullptr; }
    // Where to put the next message of `bytes` (at most slot_bytes), or nullptr while all slots are full.
    std::byte* try_acquire(std::size_t bytes) {
        const auto depth = static_cast<std::uint64_t>(memory_.shape.depth);
        if (next_ - taken_ >= depth) {
            taken_ = memory_.taken().load(std::memory_order_acquire);
            if (next_ - taken_ >= depth) return nullptr;
        }
        return bytes <= slot_header::inline_bytes ? memory_.slot(next_).payload : memory_.body(next_);
    }
    void commit(std::size_t bytes, std::uint32_t tag = 0) {
        auto& slot = memory_.slot(next_);
        slot.bytes = static_cast<std::uint32_t>(bytes);
        slot.tag = tag;
        slot.number.store(++next_, std::memory_order_release);
        ++messages;
        payload_bytes += bytes;
    }
    std::uint64_t messages = 0, payload_bytes = 0;  // facts are checked against these

private:
    detail::channel_memory memory_;
    std::uint64_t next_ = 0, taken_ = 0;
};

class receiving_end {
public:
    receiving_end() = default;
    receiving_end(std::byte* base, channel_shape shape) : memory_{base, shape} { next_ = memory_.taken().load(std::memory_order_relaxed); }

    bool is_open() const { return memory_.base != nullptr; }
    // The next message, or nullptr while there is none.
    const std::byte* try_peek() const {
        auto& slot = memory_.slot(next_);
        if (slot.number.load(std::memory_order_acquire) != next_ + 1) return nullptr;
        return slot.bytes <= slot_header::inline_bytes ? slot.payload : memory_.body(next_);
    }
    bool is_expected(std::size_t bytes, std::uint32_t tag = 0) const {
        const auto& slot = memory_.slot(next_);
        return slot.bytes == bytes && slot.tag == tag;
    }
    void release() { memory_.taken().store(++next_, std::memory_order_release); }

private:
    detail::channel_memory memory_;
    std::uint64_t next_ = 0;
};

COLLX_END_NAMESPACE
