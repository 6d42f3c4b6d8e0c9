// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A channel over shared memory: an ordered FIFO of slots from one rank to one other, with credit. Each slot has a
// header line with its number and room for a short message, so that a short message is one cache-line transfer. Long
// messages lie in a ring of memory that is reused as late as possible (window.hpp tells why). Both ends find the place
// of a message by the same rule, from the sizes in their own schedules and restart_bit.
//
//   sender: try_acquire → fill → commit          receiver: has_message → is_expected → peek, use in place → release
//   slot i % depth is full when header.number == i + 1; free again when the receiver's `taken` > i - depth
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <collx/core/atomic.hpp>
#include <collx/core/single_copy_mode.hpp>
#include <collx/transport/arena.hpp>
#include <collx/transport/channel_concept.hpp>
#include <collx/transport/copy_cost.hpp>
#include <collx/transport/window.hpp>

COLLX_BEGIN_NAMESPACE

// The header line of a slot, and the short message in it.
struct slot_header {
    static constexpr std::size_t inline_bytes = 112;
    atomic<std::uint64_t> number; // written by the sender (release) after the payload; read by the receiver (acquire)
    std::uint32_t bytes;          // compared with the receiver's own schedule, never trusted; plus the bits below
    std::uint32_t tag;            // compared, too: low bits of the whole transfer's element count
    std::byte payload[inline_bytes];
    static constexpr std::uint32_t single_copy_bit = 1u << 31; // the payload is an address in the sender's process
    static constexpr std::uint32_t posted_bit = 1u << 30;      // the payload is where the receiver wanted it
    static constexpr std::uint32_t restart_bit = 1u << 29;     // the payload lies at the beginning of the ring
    static constexpr std::uint32_t size_mask = restart_bit - 1;
};
static_assert(sizeof(slot_header) == 2 * cache_line_bytes); // a pair that processors fetch together

// The sizes of a channel, the same at both ends.
struct channel_shape {
    int depth = 16; // messages under way, as long as they are short
    std::size_t slot_bytes = 128 * 1024;
    int ring_slots = depth; // messages under way if one of them has more than small_bytes()
    // One slot more: laying long messages one behind the other may waste almost a slot where the ring ends.
    constexpr std::size_t ring_bytes() const { return static_cast<std::size_t>(ring_slots + 1) * slot_bytes; }
    // The longest message of which `depth` consecutive ones fit in the ring without overlap, with the gaps between
    // them.
    constexpr std::size_t small_bytes() const {
        if (ring_slots == depth) return slot_bytes;
        const std::size_t each =
            ring_bytes() / static_cast<std::size_t>(depth + 1) / cache_line_bytes * cache_line_bytes;
        return each > gap_bytes ? each - gap_bytes : 0;
    }
    // For a schedule whose ranks send up to `ahead` messages that are not received yet: the number of messages that
    // fit, and the most bytes of each.
    constexpr int room_for(int ahead) const { return ahead <= ring_slots ? ring_slots : depth; }
    constexpr std::size_t most_bytes(int ahead) const { return ahead <= ring_slots ? slot_bytes : small_bytes(); }
    constexpr std::size_t bytes() const {
        return page_bytes + round_up(static_cast<std::size_t>(depth) * sizeof(slot_header), page_bytes) + ring_bytes();
    }
    constexpr bool operator==(const channel_shape&) const = default;
};

namespace detail {
// Written by the receiver, read by the sender, which keeps the last value that it saw: the line moves between their
// caches only when it has changed.
struct receiver_line {
    atomic<std::uint64_t> taken;                   // messages since the channel was made
    atomic<std::uint32_t> from_ring, from_peer;    // piece_cost of the two; from_peer 0: the receiver cannot read
    static constexpr std::uint32_t unmeasured = 1; // it can, but has not yet
};
// Written once by the sender before its first message, read by the receiver.
struct sender_line {
    atomic<std::uint64_t> proof_at; // address of proof_of_reading in the sender's own memory
};
inline constexpr std::uint64_t proof_of_reading = 0x636f'6c6c'782d'6f6b;
// For a channel between hosts: where the next message is wanted. Written by the receiver, `number` last; read by the
// stream, which is in the same process.
struct posted_line {
    atomic<std::uint64_t> number; // of the message, + 1
    std::byte* at;
    std::uint32_t bytes, tag;
};

struct channel_memory {
    std::byte* base = nullptr;
    channel_shape shape{};
    receiver_line& receiver() const { return *reinterpret_cast<receiver_line*>(base); }
    sender_line& sender() const { return *reinterpret_cast<sender_line*>(base + 2 * cache_line_bytes); }
    posted_line& posted() const { return *reinterpret_cast<posted_line*>(base + 4 * cache_line_bytes); }
    atomic<std::uint64_t>& taken() const { return receiver().taken; }
    slot_header& slot(std::uint64_t i) const {
        const auto depth = static_cast<std::uint64_t>(shape.depth);
        const std::uint64_t at = (depth & (depth - 1)) == 0 ? i & (depth - 1) : i % depth;
        return reinterpret_cast<slot_header*>(base + page_bytes)[at];
    }
    std::byte* ring() const {
        return base + page_bytes + round_up(static_cast<std::size_t>(shape.depth) * sizeof(slot_header), page_bytes);
    }
    // Where a message of `bytes` lies if the one before ended at `position`. Any ring_slots consecutive messages of at
    // most slot_bytes do not overlap: together with the waste at one end of the ring they are shorter than the ring.
    std::size_t place(std::size_t position, std::size_t bytes) const {
        return position + bytes > shape.ring_bytes() ? 0 : position;
    }
    // Between hosts both ends of the memory are in one process, where reusing it as soon as possible is best. A message
    // that is neither short nor a single copy takes the first place that no message from `oldest` on has. Where each
    // message is taken before the next comes, its place is still in the cache. The slot keeps the number of the place.
    void take_place(std::uint64_t i, std::uint64_t oldest) const {
        std::uint32_t at = 0;
        while (is_taken(at, i, oldest)) ++at;
        std::memcpy(slot(i).payload, &at, sizeof at);
    }
    // The same where the sender must know the place (verbs). The place is free if message i - depth has been taken.
    void take_fixed_place(std::uint64_t i) const {
        const auto at = static_cast<std::uint32_t>(i % static_cast<std::uint64_t>(shape.depth));
        std::memcpy(slot(i).payload, &at, sizeof at);
    }
    std::byte* first_place() const { return ring() + page_bytes; }
    std::byte* own_place(std::uint64_t i) const {
        return first_place() + std::size_t{place_of(i)} * (shape.slot_bytes + page_bytes);
    }
    // A page in front of each such place: the header of a message goes right before it, and both are sent as one part.
    static constexpr std::size_t spare_bytes(const channel_shape& s) {
        return static_cast<std::size_t>(s.depth) * page_bytes;
    }
    std::uint32_t place_of(std::uint64_t i) const {
        std::uint32_t at;
        std::memcpy(&at, slot(i).payload, sizeof at);
        return at;
    }
    bool is_taken(std::uint32_t place, std::uint64_t i, std::uint64_t oldest) const {
        for (; oldest != i; ++oldest) {
            const std::uint32_t bytes = slot(oldest).bytes;
            const bool has_place = (bytes & slot_header::single_copy_bit) == 0 &&
                                   (bytes & ~slot_header::posted_bit) > slot_header::inline_bytes;
            if (has_place && place_of(oldest) == place) return true;
        }
        return false;
    }
    std::size_t end_of(std::size_t place, std::size_t bytes) const {
        return place + spaced_bytes(bytes, shape.slot_bytes);
    }
};
} // namespace detail

// The sender's end: a model of SendingEnd.
class sending_end {
public:
    sending_end() = default;
    // is_remote: a stream of this process sends what is committed.
    sending_end(std::byte* base, channel_shape shape, bool is_remote = false)
        : memory_{base, shape}, is_remote_(is_remote) {
        next_ = taken_ = memory_.taken().load(memory_order::relaxed);
        bytes_left_ = shape.ring_bytes() + sampled_bytes;
        small_bytes_ = shape.small_bytes();
    }

    bool is_open() const { return memory_.base != nullptr; }
    bool is_remote() const { return is_remote_; }
    // To another host: whether messages may stay in the user's memory until they are sent. Not where a device must know
    // the memory.
    bool may_send_in_place() const { return is_remote_ && !is_slots_only_; }
    void keep_to_slots() { is_slots_only_ = true; }
    bool has_room(std::size_t bytes) {
        if (next_ - taken_ < most_under_way(bytes)) return true;
        taken_ = memory_.taken().load(memory_order::acquire);
        return next_ - taken_ < most_under_way(bytes);
    }
    // has_room(bytes) will be true once this word has reached least_taken(bytes).
    const atomic<std::uint64_t>& taken() const { return memory_.taken(); }
    std::uint64_t least_taken(std::size_t bytes) const { return next_ + 1 - most_under_way(bytes); }
    // Where to put the next message of `bytes` (at most slot_bytes), or nullptr while there is no room for it.
    std::byte* try_acquire(std::size_t bytes) {
        if (!has_room(bytes)) return nullptr;
        if (bytes <= slot_header::inline_bytes) return memory_.slot(next_).payload;
        if (is_remote_) {
            memory_.take_place(next_, memory_.taken().load(memory_order::acquire));
            return memory_.own_place(next_);
        }
        return memory_.ring() + memory_.place(position_, bytes);
    }
    // Puts the next message that is longer than inline_bytes at the beginning of the ring, if all messages before it
    // have been taken. A rank that sends to many peers so uses less memory, which its caches still hold. For one peer
    // it is faster to go on along the ring, because those lines have left the receiver's cache when they are written
    // again.
    void restart_if_empty() {
        if (!is_remote_ && position_ != 0 && is_drained()) {
            position_ = 0;
            restart_ = slot_header::restart_bit;
        }
    }
    void commit(std::size_t bytes, std::uint32_t tag = 0) {
        auto& slot = memory_.slot(next_);
        slot.bytes = static_cast<std::uint32_t>(bytes);
        if (bytes > slot_header::inline_bytes) slot.bytes |= std::exchange(restart_, 0u);
        slot.tag = tag;
        slot.number.store(++next_, memory_order::release);
        if (bytes > slot_header::inline_bytes) position_ = memory_.end_of(memory_.place(position_, bytes), bytes);
        if (bytes > small_bytes_) long_until_ = next_;
        ++messages;
        payload_bytes += bytes;
    }

    // ------------------------------------------------------------------ single copy
    // Lets the receiver find out whether it can read the memory of this process.
    void offer_single_copy(single_copy_mode when = single_copy_mode::automatic) {
        always_ = when == single_copy_mode::always;
        memory_.sender().proof_at.store(reinterpret_cast<std::uint64_t>(&detail::proof_of_reading),
                                        memory_order::release);
    }
    // Whether a single copy is expected to be faster for the next large message. From time to time the other way is
    // tried, long enough to measure its cost in steady use: a ring that has not been used lies in no cache. The next
    // message is `bytes` long, or `single_copy_bytes` if it is a single copy.
    bool prefers_single_copy(std::size_t bytes, std::size_t single_copy_bytes) {
        if (is_single_copy_) bytes = single_copy_bytes;
        const std::uint32_t reading = memory_.receiver().from_peer.load(memory_order::relaxed);
        if (reading == 0 || always_) return reading != 0;
        if (bytes_left_ > bytes) {
            bytes_left_ -= bytes;
        } else if (is_trying_ && !(reading == unmeasured && !is_single_copy_)) {
            const std::uint64_t taken = memory_.receiver().from_ring.load(memory_order::relaxed);
            const bool is_cheaper = std::uint64_t{reading} * 9 / 8 < to_ring_.ns_per_mib + taken;
            settled_bytes_ = is_cheaper != was_single_copy_        ? least_settled_bytes
                             : settled_bytes_ < most_settled_bytes ? settled_bytes_ * 2
                                                                   : most_settled_bytes;
            is_single_copy_ = was_single_copy_ = is_cheaper;
            is_trying_ = false;
            bytes_left_ = settled_bytes_;
        } else {
            is_single_copy_ = !is_single_copy_;
            is_trying_ = true;
            bytes_left_ = is_single_copy_ ? sampled_bytes : memory_.shape.ring_bytes() + sampled_bytes;
        }
        return is_single_copy_;
    }
    // Sends the address instead of the bytes. They must stay as they are until is_drained(). Requires room for a short
    // message.
    void commit_single_copy(const void* from, std::size_t bytes, std::uint32_t tag) {
        auto& slot = memory_.slot(next_);
        const auto address = reinterpret_cast<std::uint64_t>(from);
        std::memcpy(slot.payload, &address, sizeof address);
        slot.bytes = static_cast<std::uint32_t>(bytes) | slot_header::single_copy_bit;
        slot.tag = tag;
        slot.number.store(++next_, memory_order::release);
        ++messages;
        ++single_copy_messages;
        payload_bytes += bytes;
        single_copy_until_ = next_;
    }
    // Whether all single copies have been taken.
    bool has_all_back() {
        if (taken_ < single_copy_until_) taken_ = memory_.taken().load(memory_order::acquire);
        return taken_ >= single_copy_until_;
    }
    // Whether everything sent has been taken.
    bool is_drained() {
        taken_ = memory_.taken().load(memory_order::acquire);
        return taken_ == next_;
    }
    // Whether to measure the copy of this message: in a trial, each one once the ring is warm; otherwise one in four.
    bool is_sampled() const { return is_trying_ ? bytes_left_ <= sampled_bytes : messages % 4 == 0; }
    void add_cost(std::int64_t ns, std::size_t bytes) { to_ring_.add(ns, bytes); }
    std::uint64_t single_copy_messages = 0;
    std::uint64_t messages = 0, payload_bytes = 0; // facts are checked against these

private:
    static constexpr std::size_t sampled_bytes = std::size_t{1} << 20, least_settled_bytes = std::size_t{8} << 20,
                                 most_settled_bytes = std::size_t{256} << 20;
    static constexpr std::uint32_t unmeasured = detail::receiver_line::unmeasured;

    // The most messages under way, with the next one of `bytes`. A message in its slot's header needs no ring space.
    std::uint64_t most_under_way(std::size_t bytes) const {
        const bool is_long = bytes > slot_header::inline_bytes && (bytes > small_bytes_ || long_until_ > taken_);
        return static_cast<std::uint64_t>(is_long ? memory_.shape.ring_slots : memory_.shape.depth);
    }

    detail::channel_memory memory_;
    std::uint64_t next_ = 0, taken_ = 0, single_copy_until_ = 0;
    std::uint64_t long_until_ = 0; // no message from here on is longer than small_bytes_
    std::size_t small_bytes_ = 0;  // of the shape, where it takes a division
    std::size_t position_ = 0;
    piece_cost to_ring_;
    bool is_remote_ = false, is_slots_only_ = false;
    std::uint32_t restart_ = 0; // restart_bit: the next message in the ring lies at its beginning
    bool is_single_copy_ = false, was_single_copy_ = false; // now; when last settled
    bool always_ = false;
    bool is_trying_ = true;      // at first the ring, whose pages do not exist yet
    std::size_t bytes_left_ = 0; // until the next choice
    std::size_t settled_bytes_ = least_settled_bytes;
};

// The receiver's end: a model of ReceivingEnd.
class receiving_end {
public:
    receiving_end() = default;
    receiving_end(std::byte* base, channel_shape shape, bool is_remote = false)
        : memory_{base, shape}, is_remote_(is_remote) {
        next_ = memory_.taken().load(memory_order::relaxed);
    }

    bool is_open() const { return memory_.base != nullptr; }
    bool has_message() const { return memory_.slot(next_).number.load(memory_order::acquire) == next_ + 1; }
    // has_message() will be true once this word has reached next_number().
    const atomic<std::uint64_t>& number() const { return memory_.slot(next_).number; }
    std::uint64_t next_number() const { return next_ + 1; }
    // Whether the message is the one that this end's schedule expects. Requires has_message().
    bool is_expected(std::size_t bytes, std::uint32_t tag = 0) const {
        return message_bytes() == bytes && memory_.slot(next_).tag == tag;
    }
    // The length of the message, as its sender states it. Requires has_message().
    std::size_t message_bytes() const { return memory_.slot(next_).bytes & slot_header::size_mask; }
    // Where the expected message lies.
    const std::byte* peek(std::size_t bytes) const {
        if (bytes <= slot_header::inline_bytes) return memory_.slot(next_).payload;
        if (is_remote_) return memory_.own_place(next_);
        return memory_.ring() + place(bytes);
    }
    void release(std::size_t bytes) {
        if (bytes > slot_header::inline_bytes) position_ = memory_.end_of(place(bytes), bytes);
        was_lent_ = false;
        memory_.taken().store(++next_, memory_order::release);
    }

    // ------------------------------------------------------------------ single copy
    // Requires has_message().
    bool is_single_copy() const { return (memory_.slot(next_).bytes & slot_header::single_copy_bit) != 0; }
    // Where the message lies in the sender's process. Requires is_single_copy().
    std::uint64_t sender_address() const {
        std::uint64_t address;
        std::memcpy(&address, memory_.slot(next_).payload, sizeof address);
        return address;
    }
    void release_single_copy() {
        was_lent_ = true;
        memory_.taken().store(++next_, memory_order::release);
    }
    // ------------------------------------------------------------------ pre-posted receives, between hosts only
    bool is_remote() const { return is_remote_; }
    // Asks for the next message at `at`, if it has not arrived yet. It arrives there or in a slot. False: already
    // asked.
    bool want_at(void* at, std::size_t bytes, std::uint32_t tag) {
        auto& line = memory_.posted();
        if (line.number.load(memory_order::relaxed) == next_ + 1) return false;
        line.at = static_cast<std::byte*>(at);
        line.bytes = static_cast<std::uint32_t>(bytes);
        line.tag = tag;
        line.number.store(next_ + 1, memory_order::release);
        return true;
    }
    // Requires has_message().
    bool is_posted() const { return (memory_.slot(next_).bytes & slot_header::posted_bit) != 0; }
    void release_posted() { memory_.taken().store(++next_, memory_order::release); }

    // The address to read once, to find out whether this process may read the sender's memory; 0: it makes no single
    // copies.
    std::uint64_t proof_at() const { return memory_.sender().proof_at.load(memory_order::acquire); }
    // Tells the sender that single copies can be read here.
    void say_can_read() {
        memory_.receiver().from_peer.store(detail::receiver_line::unmeasured, memory_order::relaxed);
    }
    // Whether to measure the taking of this message, which is no single copy: one in four, and each after a single
    // copy. Single copies are all measured.
    bool is_sampled() const { return next_ % 4 == 0 || was_lent_; }
    // Tells the sender what taking a message costs here.
    void say_cost(bool is_single_copy, std::int64_t ns, std::size_t bytes) {
        piece_cost& cost = is_single_copy ? from_peer_ : from_ring_;
        cost.add(ns, bytes);
        (is_single_copy ? memory_.receiver().from_peer : memory_.receiver().from_ring)
            .store(cost.ns_per_mib, memory_order::relaxed);
    }
    bool knows_reading = false; // whether proof_at() was tried

private:
    // Where the expected message lies in the ring.
    std::size_t place(std::size_t bytes) const {
        return (memory_.slot(next_).bytes & slot_header::restart_bit) != 0 ? 0 : memory_.place(position_, bytes);
    }

    detail::channel_memory memory_;
    std::uint64_t next_ = 0;
    std::size_t position_ = 0;
    bool was_lent_ = false, is_remote_ = false;
    piece_cost from_ring_, from_peer_;
};

static_assert(SingleCopySendingEnd<sending_end> && SingleCopyReceivingEnd<receiving_end> &&
              PrePostingEnd<receiving_end>);

COLLX_END_NAMESPACE
