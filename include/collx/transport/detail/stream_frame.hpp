// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What two ranks send each other over a connection: a hello of fixed size first, then frames with a fixed head. Only
// messages have a payload, and its length is compared with the size of a slot before a byte of it is taken.
// Little-endian; a big-endian peer fails at the first word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <collx/core/authentication.hpp>
#include <collx/transport/channel.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// The first bytes of a connection. `token` is the name of the job, which the store made up and gave only to its ranks.
// A connection without it is a stranger's and is closed. It crosses the network in the clear, so by itself it keeps
// strangers and port scans away, but not an eavesdropper. In a job with a key the nonce begins a proof
// (core/authentication.hpp).
struct stream_hello {
    static constexpr std::uint64_t magic_value = 0x3672'6565'7058'4c43; // "CLXpeer6"
    static constexpr std::size_t token_bytes = 32;
    // higher: from the rank with the higher number; frames follow at once. lower: frames follow after a welcome.
    enum class side : std::uint32_t { higher = 1, lower = 2 };
    std::uint64_t magic = magic_value;
    side from_side = side::higher;
    std::uint32_t depth = 0;
    std::uint64_t slot_bytes = 0;
    std::uint64_t communicator = 0;
    std::int32_t from = 0, to = 0; // ranks of the communicator
    // The lane of this pair, and for a lane that does not lead, how often the sender has tried to make it.
    std::uint32_t lane = 0, attempt = 0;
    char token[token_bytes] = {};
    std::uint64_t protected_by = 0; // a protection; the same on both sides
    unsigned char nonce[32] = {};   // none: zero

    void set_token(const char* text, std::size_t bytes) {
        std::memcpy(token, text, bytes < token_bytes ? bytes : token_bytes);
    }
    // Whether it comes from a rank of this job, if its token can be trusted.
    bool is_sound(const char (&expected)[token_bytes]) const {
        unsigned different = 0; // compares all of it, so that the time reveals nothing
        for (std::size_t i = 0; i < token_bytes; ++i)
            different |= static_cast<unsigned char>(token[i]) ^ static_cast<unsigned char>(expected[i]);
        return different == 0 && magic == magic_value && (from_side == side::higher || from_side == side::lower);
    }
    // Whether another rank sends it to `me`, and says rightly which of the two is higher.
    bool is_to(int me) const {
        return from >= 0 && from != me && to == me && (from_side == side::higher) == (from > me);
    }
    // The same, and that both have channels of the same shape.
    bool is_for(int me, const channel_shape& shape) const {
        return is_to(me) && depth == static_cast<std::uint32_t>(shape.depth) && slot_bytes == shape.slot_bytes;
    }
};
static_assert(sizeof(stream_hello) == 120);

struct stream_frame {
    enum class kind : std::uint8_t {
        message = 1, // bytes, tag: of the payload that follows
        credit,      // nothing but `taken`
        failure,     // tag, bytes: upper and lower half of the word that ended the communicator
        waiting,     // tag: a rank; bytes: lower 16 bits of its waiting_word; taken: the age of that, in its units
        welcome,     // answer to the hello of a lower rank
        bye,         // the sender has left and sends nothing more; bytes: how many messages went by verbs (low bits)
        striped,     // a message of which a part follows here and one on every other lane (stream_lanes.hpp)
        lane,        // bytes, tag: this lane has come here at that attempt; lane 0: make the other lanes
        // Sent by the listener and never on a stream:
        answer, // an auth_answer follows
        accepted,
        refused, // tag: the protection that the accepting side asks for; the connection ends
        // For messages that the sender's system may still read where they are:
        answered, // as message, and an answer is wanted
        received, // bytes: how many of these the sender has received (low bits)
        // Before messages go by verbs (verbs_path.hpp):
        queue_pair, // a queue_pair_address follows
        slots,      // of this port: tag, bytes: upper and lower half of their address; taken: its remote key
        switched    // the sender sends nothing more of this port over the socket
    };
    static constexpr std::uint16_t magic_value = 0x4c43;
    static constexpr int most_ports = 8; // of a stream
    // Large messages may have up to three units of zeros between head and payload. The system copies what is sent to
    // its own pages, far more slowly where source and destination have different offsets in their cache lines. So the
    // sender fills up to the offset that its payload has.
    static constexpr std::size_t least_large_bytes = 16 * 1024, filler_unit_bytes = 16, most_filler_bytes = 48;
    kind what = kind::message;
    std::uint8_t at_port : 4 = 0;
    std::uint8_t filler_units : 4 = 0;
    std::uint16_t magic = magic_value;
    std::uint32_t bytes = 0, tag = 0;
    std::uint32_t taken = 0; // message, credit: how many messages of this port the sender has taken (low bits)

    // The same frame of port p; the same with zeros behind its head.
    constexpr stream_frame on(int p) const {
        stream_frame f = *this;
        f.at_port = p & 15;
        return f;
    }
    constexpr stream_frame filled(std::size_t filler_bytes) const {
        stream_frame f = *this;
        f.filler_units = filler_bytes / filler_unit_bytes & 15;
        return f;
    }
};
static_assert(sizeof(stream_frame) == 16);
// The bytes between a head and its payload.
inline std::size_t filler_of(const stream_frame& f) { return f.filler_units * stream_frame::filler_unit_bytes; }

// An entry of the send queue: a frame, with the payload of a message.
struct stream_entry {
    stream_frame head;
    const std::byte* payload;
    std::size_t payload_bytes;
    std::size_t head_bytes; // with the filler
    bool is_message;
    bool is_users_memory = false; // the payload is the user's memory
    bool is_referenced = false;   // and goes by reference
    // The number of the message among those whose parts go over all lanes, or among those that want an answer; 0:
    // neither.
    std::uint64_t awaited = 0;
    std::int64_t began_ns = 0; // of one that wants an answer: when it was queued
    bool has_room = false; // the payload lies in a place of a slot, and the head goes right before it: one part to send
    std::size_t bytes() const { return head_bytes + payload_bytes; }
    std::byte* room() const { return const_cast<std::byte*>(payload) - head_bytes; }
};
// One port, outgoing and incoming.
struct stream_outgoing {
    std::uint64_t queued = 0, sent = 0, taken = 0; // taken: by the other end, as it said
};
struct stream_incoming {
    std::uint64_t put = 0, told = 0; // told: the number taken that the other end knows
    bool is_mostly_posted = false;   // the receiver says where it wants most messages of this port
};

} // namespace detail

COLLX_END_NAMESPACE
