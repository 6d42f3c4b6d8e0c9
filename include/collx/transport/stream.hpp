// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One connection between two ranks of one communicator that share no memory. Either end has the channels of channel.hpp
// in memory of its own, for every port and both directions; move() carries what one end has committed to the other
// end's slots. So a task over sockets runs the very code that it runs over shared memory, and sends large messages from
// and receives them into the slots themselves.
//
//   slot of the sender → sendmsg, many frames at once → recvmsg into the slot of the receiver → taken → credit back
//
// Large messages need no slots: a sender may lend its memory until the system has it, and a receiver may say where it
// wants the next message, which then lands there.
//
// There may be more lanes: connections that carry parts of large messages. One leads: all frames go over it. Where both
// ends have a device for RDMA, messages go by verbs, and the connection carries the words beside them.
//
// A frame goes out only when the receiver has a free slot for it (it said how many it has taken), so no end ever has to
// stop reading and no port waits for another, but for the slots behind a message that the other end must answer. Knows
// no communicator: its owner asks what it heard.
#pragma once

#include <collx/transport/detail/stream_by_verbs.hpp>

COLLX_BEGIN_NAMESPACE

class stream : detail::stream_by_verbs {
public:
    stream(const socket_calls& calls, channel_shape shape, int ports) : stream_by_verbs(calls, shape, ports) {}
    using stream_core::is_exposed;
    using stream_core::is_live;
    using stream_core::lanes;
    using stream_core::least_landed_bytes;
    using stream_core::most_looks;
    using stream_core::most_ports;
    using stream_core::phase;
    using stream_core::write_bytes;

    // The ends that tasks use. They may be used by another thread than the one that calls move().
    sending_end tx(int port) {
        memory_.require();
        used_ |= 1u << port;
        sending_end end(memory_.tx(port).base, memory_.shape(), true);
        if (verbs_) end.keep_to_slots();
        return end;
    }
    receiving_end rx(int port) {
        memory_.require();
        return receiving_end(memory_.rx(port).base, memory_.shape(), true);
    }

    // Takes over a socket, connected or on its way. `hello` goes out first if there is one; a lower rank's end sends
    // nothing else before the welcome. sealed: what bytes go through. Requires: no connection so far.
    void open(descriptor socket, const detail::stream_hello* hello, bool wait_for_welcome,
              sole_ptr<detail::wire_layer> sealed = {}) {
        if (sealed) verbs_ = nullptr; // nothing would seal what a device sends
        wire_.begin(static_cast<sole_ptr<detail::wire_layer>&&>(sealed));
        socket_ = static_cast<descriptor&&>(socket);
        phase_ = wait_for_welcome ? phase::waiting : phase::open;
        queue_.clear();
        staged_ = 0, accepted_ = 0, error_ = 0, cannot_send_ = false;
        words_.said_failure = 0; // said over a connection that was given up, it has reached no rank
        if (hello == nullptr) return;
        hello_ = *hello;
        queue_.add({{}, reinterpret_cast<const std::byte*>(&hello_), sizeof hello_, 0, false});
    }
    // Takes over a part of a connection that others share.
    [[gnu::cold]] void open(sole_ptr<detail::wire_layer> part) {
        wire_.begin(static_cast<sole_ptr<detail::wire_layer>&&>(part));
        phase_ = phase::open;
        is_shared_ = true;
    }
    bool is_shared() const { return is_shared_; } // then it has no descriptor
    // Gives up a connection over which nothing was said but hello.
    void close() { socket_.close(), phase_ = phase::closed; }
    phase state() const { return phase_; }
    bool is_nonsense() const { return is_nonsense_; }
    bool is_insecure() const { return is_insecure_; }          // nonsense: another protection, or a seal that is broken
    bool is_refused() const { return error_ == ECONNREFUSED; } // there is no listener any more
    int error() const { return error_; }                       // of the system, 0: none
    bool cannot_send() const { return cannot_send_; }          // why, receiving says
    int fd() const { return socket_.get(); }

    // Sends and receives what can be without waiting. True if anything moved.
    bool move(bool is_readable = true) {
        bool moved = send();
        if ((is_readable && is_time_for_socket()) || is_held_ || wire_.has_unread()) moved = receive() || moved;
        if (lanes_) moved = move_lanes() || moved;
        if (verbs_) moved = move_verbs() || moved;
        return moved && (send(), true); // credits for what has come, at once
    }

    void push() { (void)send(); } // for those who are not prepared for its end: only move() finds that

    // Whether messages of 64 KiB and more that are lent go by reference. Before the first.
    void set_copy_mode(single_copy_mode when) { choice_ = detail::copy_or_reference(when); }

    // Messages go by this device if the other end has one as well. Before the first channel is used. The device
    // outlives the stream.
    [[gnu::cold]] void use_verbs(verbs_device& d) {
        if (detail::verbs_path::fits(d, memory_.shape()))
            verbs_ = make_sole<detail::verbs_path>(d, memory_.shape(), ports_);
    }
    bool sends_by_verbs(int port) const { return verbs_ && verbs_->sends(port); }
    // Whether it is enough to look at the socket now and then.
    bool receives_by_verbs() const { return verbs_ && verbs_->receives(); }
    // In a child that fork() made: the device is its parent's.
    void forget() { (void)verbs_.release(); }

    // ------------------------------------------------------------------ more lanes
    // Large messages may go over so many connections. Before the first is used.
    [[gnu::cold]] void allow_lanes(int lanes) {
        const std::size_t messages = static_cast<std::size_t>(ports_ * memory_.shape().depth);
        if (lanes < 2) return;
        lanes_ = make_sole<detail::stream_lanes>(wire_.calls(), lanes, messages);
        unreceived_ = make_sole<detail::short_line<unfinished>>(messages);
    }
    // Whether either end has had a message for them and they are not there.
    bool wants_lanes() const {
        return lanes_ && (wants_lanes_ || (words_.heard_lanes & 1) != 0) && is_live() && !lanes_->are_open();
    }
    int opened_lanes() const { return lanes_ ? 1 + lanes_->opened() : 1; }
    bool has_lane(int k) const { return !lanes_ || lanes_->is_open(k); }
    // One that came here, at that attempt of the other end to make it. It may be used at once.
    [[gnu::cold]] void adopt_lane(int k, std::uint32_t attempt, descriptor socket, sole_ptr<detail::wire_layer> by) {
        lanes_->open(k, std::move(socket), std::move(by));
        words_.attempts[k] = attempt;
        words_.owed_lanes |= 1u << k;
    }
    // One that was made here. The other end must have said that it has come.
    bool has_arrived(int k, std::uint32_t attempt) const {
        return (words_.heard_lanes >> k & 1) != 0 && words_.heard_attempts[k] == attempt;
    }
    [[gnu::cold]] void use_lane(int k, descriptor socket, sole_ptr<detail::wire_layer> by) {
        lanes_->open(k, std::move(socket), std::move(by));
    }
    descriptor release_lane(int k) { return lanes_ ? lanes_->release(k) : descriptor(); }

    // Small words for the other end; they go out before any message that has not begun.
    void say_welcome() { words_.owes_welcome = true; }
    void say_failure(std::uint64_t word) { words_.failure = word; }
    // Whom rank `first`, this end, waits for, and who is known to wait from there on.
    void say_waiting(int first) { words_.say_waiting(first); }
    void set_waiting_words(waiting_words w) { words_.waits = w; } // where that stands and what is heard goes
    void say_bye() { words_.owes_bye = true; }
    bool has_said_bye() const { return has_said_bye_ && !has_under_way(); }
    // After a failure the user's memory is the user's again: what was lent is copied, what is landing goes elsewhere. A
    // connection whose other end has not received all that went by reference is given up with a reset: see
    // is_exposed().
    [[gnu::cold]] void settle() {
        is_settled_ = true;
        if (payload_left_ != 0 && is_landing_)
            payload_at_ = memory_.rx(payload_port_).own_place(in_[payload_port_].put - 1);
        is_landing_ = false;
        if (is_exposed()) return cannot_send_ = true, phase_ = phase::lost, close_all(), queue_.clear();
        if (queue_.own() && (!lanes_ || lanes_->settle())) return;
        cannot_send_ = true, error_ = ENOMEM; // better nothing more than what is no longer lent
        accepted_ = 0;
        queue_.clear();
    }
    bool has_said_failure() const {
        return !is_live() || (words_.said_failure == words_.failure && queue_.is_empty() && !wire_.has_pending());
    }
    // What the other end said: the word that ended the communicator; 0: nothing.
    std::uint64_t heard_failure() const { return words_.heard_failure; }

    // Whether the system has everything that was committed. What is owed to a rank that has left is no loss.
    bool is_flushed() const {
        return phase_ == phase::left || phase_ == phase::lost || (!has_under_way() && !has_messages());
    }
    descriptor release_socket() { return static_cast<descriptor&&>(socket_); }

private:
    bool is_shared_ = false;
};

COLLX_END_NAMESPACE
