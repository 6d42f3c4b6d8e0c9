// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the two directions of a stream share: its channels, its connections, what lies in line and what was heard. Only
// for stream.hpp, which says how it is used.
#pragma once

#include <bit>

#include <collx/core/atomic.hpp>
#include <collx/transport/channel.hpp>
#include <collx/transport/detail/copy_or_reference.hpp>
#include <collx/transport/detail/page_pipe.hpp>
#include <collx/transport/detail/sealed_socket.hpp>
#include <collx/transport/detail/socket_calls.hpp>
#include <collx/transport/detail/stream_frame.hpp>
#include <collx/transport/detail/stream_lanes.hpp>
#include <collx/transport/detail/stream_queue.hpp>
#include <collx/transport/detail/stream_words.hpp>
#include <collx/transport/detail/verbs_path.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class stream_core {
public:
    static constexpr int most_ports = stream_frame::most_ports;
    // Frames go out together up to about this size: larger writes measured slower again (docs/design/sockets.md).
    static constexpr std::size_t write_bytes = 1024 * 1024;
    static constexpr std::size_t least_landed_bytes = 16 * 1024;
    static constexpr int most_looks = 8; // for which such a message waits for a receiver that says where it wants it

    enum class phase : unsigned char {
        closed,  // no connection
        waiting, // of a lower rank: the peer has not said welcome yet
        open,
        left, // the peer said goodbye; all it had to say has arrived
        lost  // ended without a goodbye, or by nonsense (see is_nonsense)
    };

    stream_core(const stream_core&) = delete;
    int lanes() const { return lanes_ ? lanes_->count() : 1; }
    bool is_live() const { return phase_ == phase::open || phase_ == phase::waiting; }

protected:
    using kind = stream_frame::kind;
    // With room for a message of 16 KiB and what may be around it: a second look costs more than copying that much.
    static constexpr std::size_t stage_bytes = 16 * 1024 + 512;
    // The most that is read where a message is only expected to go.
    static constexpr std::size_t most_guessed_bytes = 64 * 1024;
    struct unfinished {
        int at_port = 0;
        std::uint64_t number = 0, awaited = 0; // in its channel; see stream_entry::awaited
        std::size_t bytes = 0;                 // of one that wants an answer
        std::int64_t began_ns = 0;
        bool is_referenced = false;
    };

    stream_core(const socket_calls& calls, channel_shape shape, int ports)
        : wire_(calls), pages_(calls), memory_(shape, ports), ports_(ports),
          unsent_(static_cast<std::size_t>(ports * shape.depth)) {}

    static int first_of(unsigned ports) { return std::countr_zero(ports); }
    bool has_message(int p) const {
        const std::uint64_t i = out_[p].queued;
        return memory_.tx(p).slot(i).number.load(memory_order::acquire) == i + 1;
    }
    bool has_messages() const {
        for (unsigned rest = used_; rest != 0; rest &= rest - 1)
            if (has_message(first_of(rest))) return true;
        return false;
    }
    // Whether the system may still read memory that was lent to it.
    bool is_exposed() const {
        return !lanes_ && socket_.is_open() && (!unsent_.is_empty() || queue_.is_within_awaited());
    }
    bool has_unsent() const { return !queue_.is_empty() || wire_.has_pending() || (lanes_ && lanes_->has_unsent()); }
    bool has_under_way() const { return has_unsent() || (verbs_ && !verbs_->is_idle()); }
    // Where message i of a port comes to. taken: how many were taken.
    void take_place(const channel_memory& rx, std::uint64_t i, std::uint64_t taken) const {
        verbs_ ? rx.take_fixed_place(i) : rx.take_place(i, taken);
    }

    stream_wire wire_;
    page_pipe pages_;
    copy_or_reference choice_;
    stream_memory memory_;
    int ports_;
    unsigned used_ = 0, heard_ = 0; // ports that this end sends on; that messages came on
    descriptor socket_;
    phase phase_ = phase::closed;
    bool cannot_send_ = false, is_nonsense_ = false, is_insecure_ = false, has_said_bye_ = false;
    bool is_ending_ = false; // the leading lane has ended well, others bring the rest
    bool has_more_ = false;  // maybe, on the leading lane
    stream_words words_;
    stream_outgoing out_[most_ports];
    stream_incoming in_[most_ports];
    stream_hello hello_;
    stream_queue queue_;
    int error_ = 0;
    std::byte* payload_at_ = nullptr;
    std::size_t payload_left_ = 0;
    int payload_port_ = 0;
    int large_port_ = -1; // of the last message, if it was large and may be followed by one like it
    std::size_t large_bytes_ = 0;
    int medium_port_ = -1; // of the last message, if it went to a place in one piece and may be followed by one like it
    std::uint64_t payload_striped_ = 0, led_ = 0; // numbers among the striped: this one; the last one led entirely
    bool is_landing_ = false;                     // the payload goes to the user's memory
    bool may_hold_ = true;
    bool is_held_ = false; // the frame in front waits for the receiver to look
    int looks_held_ = 0;   // for which it has waited
    bool is_settled_ = false;
    short_line<unfinished> unsent_; // messages whose slots are not free yet, though the system has them
    std::uint64_t last_asked_ = 0;  // number of the last message that wants an answer
    std::int64_t answered_at_ns_ = 0;
    bool payload_is_lent_ = false; // by a sender whose system may still read it
    // Of more lanes: null with one.
    sole_ptr<stream_lanes> lanes_;
    sole_ptr<short_line<unfinished>> unreceived_; // some parts of these are on their way
    bool wants_lanes_ = false;
    unsigned lane_looks_ = 0;
    sole_ptr<verbs_path> verbs_; // null: all goes over sockets
    queue_pair_address heard_pair_;
    bool payload_is_pair_ = false; // of the word that is being read
    unsigned looks_ = 0;
    std::size_t staged_ = 0;
    std::size_t accepted_ = 0; // of what lies in line, not counted yet: the system may not have all of it
    std::byte stage_[stage_bytes];
};

} // namespace detail

COLLX_END_NAMESPACE
