// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One connection between two ranks of one communicator that share no memory. Each end has the channels of channel.hpp
// in its own memory, for every port and both directions. move() carries what one end has committed to the other end's
// slots. So a task over sockets runs the same code as over shared memory, and large messages are sent from and received
// into the slots themselves.
//
//   slot of the sender → sendmsg, many frames at once → recvmsg into the slot of the receiver → taken → credit back
//
// Large messages need no slots: the system may read the sender's memory until the message has arrived, and a receiver
// may say where it wants the next message, which then arrives there.
//
// There may be several lanes: connections that carry parts of large messages. One leads: all frames go over it. Where
// both ends have a device for RDMA, messages go by verbs, and the connection carries the words beside them.
//
// A frame is sent only when the receiver has a free slot for it (the receiver says how many it has taken). So no end
// ever has to stop reading and no port waits for another, except for the slots behind a message that the other end must
// answer. The stream knows no communicator: its owner asks what it received.
#pragma once

#include <collx/transport/detail/stream_receiver.hpp>

COLLX_BEGIN_NAMESPACE

class stream {
public:
    using phase = detail::stream_phase;
    static constexpr int most_ports = detail::stream_frame::most_ports;
    static constexpr std::size_t write_bytes = detail::stream_sender::write_bytes;
    static constexpr std::size_t least_posted_bytes = detail::stream_receiver::least_posted_bytes;
    static constexpr int most_looks = detail::stream_receiver::most_looks;

    stream(const socket_calls& calls, channel_shape shape, int ports)
        : parts_(calls, shape, ports), sender_(parts_, calls), receiver_(parts_, sender_) {}

    // The ends that tasks use. They may be used by another thread than the one that calls move().
    sending_end tx(int port) {
        sending_end end = parts_.ports.tx(port);
        if (parts_.verbs) end.keep_to_slots();
        return end;
    }
    receiving_end rx(int port) { return parts_.ports.rx(port); }

    // Takes over a connected socket. A lower rank's end sends nothing before the welcome. sealed: the layer that bytes
    // go through. Requires: no connection so far.
    void open(descriptor socket, bool wait_for_welcome, sole_ptr<detail::wire_layer> sealed = {}) {
        if (sealed) parts_.verbs = nullptr; // nothing would seal what a device sends
        leading().open(static_cast<descriptor&&>(socket), wait_for_welcome,
                       static_cast<sole_ptr<detail::wire_layer>&&>(sealed));
        receiver_.begin();
        sender_.begin();
    }
    // Takes over a line of a shared connection.
    [[gnu::cold]] void open(sole_ptr<detail::wire_layer> part) {
        leading().open(static_cast<sole_ptr<detail::wire_layer>&&>(part));
    }
    bool is_shared() const { return leading().is_shared; } // then it has no descriptor
    // Gives up a connection over which nothing was sent.
    void close() {
        leading().socket.close();
        leading().phase = phase::closed;
    }
    phase state() const { return leading().phase; }
    bool is_live() const { return leading().is_live(); }
    bool is_nonsense() const { return leading().is_nonsense; }
    bool is_insecure() const { return leading().is_insecure; }   // nonsense: another protection, or a broken seal
    bool lacks_memory() const { return leading().lacks_memory; } // for its slots: it reads no more, and still sends
    detail::shortage no_memory() const { return leading().no_memory; }
    int error() const { return leading().error; }              // of the system, 0: none
    bool cannot_send() const { return leading().cannot_send; } // receiving shows why
    int fd() const { return leading().fd(); }

    // What the caller knows of the socket.
    enum class socket_has : unsigned char { nothing, unknown, something };
    // Sends and receives what can be without waiting. True if anything moved.
    bool move(socket_has there = socket_has::unknown) {
        bool moved = sender_.send();
        const bool reads =
            there == socket_has::something || (there == socket_has::unknown && receiver_.is_time_for_socket());
        if (reads || receiver_.has_more_here()) moved = receiver_.receive() || moved;
        if (parts_.lanes) moved = receiver_.move_lanes() || moved;
        if (parts_.verbs) moved = receiver_.move_verbs() || moved;
        if (moved) sender_.send(); // returns credits at once
        return moved;
    }

    void push() { (void)sender_.send(); } // only move() notices the end of the connection

    // Whether messages of 128 KiB and more from the user's memory go by reference. Set it before the first.
    void set_copy_mode(single_copy_mode when) { sender_.set_copy_mode(when); }
    // Whether the system may still read the user's memory.
    bool is_exposed() const { return sender_.is_exposed(); }

    // Lets messages go by this device if the other end has one, too. Requires: no channel was used so far. The device
    // outlives the stream.
    [[gnu::cold]] void use_verbs(verbs_device& d) {
        const channel_shape& shape = parts_.ports.shape();
        if (detail::verbs_path::fits(d, shape))
            parts_.verbs = make_sole<detail::verbs_path>(d, shape, parts_.ports.count());
    }
    bool sends_by_verbs(int port) const { return parts_.verbs && parts_.verbs->sends(port); }
    // Transfers with memory of the other end: see remote_memory.hpp.
    bool reaches_memory(int port) const { return sends_by_verbs(port) && !parts_.verbs->has_failed() && is_live(); }
    bool transfer(const verbs_transfer& what, const counted_ptr<transfer_room>& room) {
        if (!parts_.verbs || !parts_.verbs->has_room_for_transfer()) return false;
        parts_.verbs->transfer(what, room);
        return true;
    }
    std::uint64_t transfers() const { return parts_.verbs ? parts_.verbs->transfers() : 0; }
    std::uint64_t transfers_done() const { return parts_.verbs ? parts_.verbs->transfers_done() : 0; }
    // Whether it is enough to look at the socket now and then.
    bool receives_by_verbs() const { return receiver_.goes_by_verbs(); }
    // In a child of fork(): the device belongs to the parent.
    void forget() { (void)parts_.verbs.release(); }

    // ------------------------------------------------------------------ more lanes
    // Lets large messages go over this many connections. Requires: none was used so far.
    [[gnu::cold]] void allow_lanes(int lanes) {
        const std::size_t messages = static_cast<std::size_t>(parts_.ports.count() * parts_.ports.shape().depth);
        if (lanes >= 2) parts_.lanes = make_sole<detail::stream_lanes>(leading().wire.calls(), lanes, messages);
    }
    int lanes() const { return parts_.lanes ? parts_.lanes->count() : 1; }
    // Whether either end has had a message for more lanes, which are not open.
    bool wants_lanes() const {
        return parts_.lanes && (parts_.lanes->are_wanted() || (words().heard_lanes & 1) != 0) && is_live() &&
               !parts_.lanes->are_open();
    }
    int opened_lanes() const { return parts_.lanes ? 1 + parts_.lanes->opened() : 1; }
    bool has_lane(int k) const { return !parts_.lanes || parts_.lanes->is_open(k); }
    // Takes a lane that the other end made, at that attempt. It may be used at once.
    [[gnu::cold]] void adopt_lane(int k, std::uint32_t attempt, descriptor socket, sole_ptr<detail::wire_layer> by) {
        use_lane(k, std::move(socket), std::move(by));
        words().attempts[k] = attempt;
        words().owed_lanes |= 1u << k;
    }
    // Whether the other end has confirmed a lane that was made here; only then it may be used.
    bool has_arrived(int k, std::uint32_t attempt) const {
        return (words().heard_lanes >> k & 1) != 0 && words().heard_attempts[k] == attempt;
    }
    [[gnu::cold]] void use_lane(int k, descriptor socket, sole_ptr<detail::wire_layer> by) {
        parts_.lanes->open(k, std::move(socket), std::move(by));
    }
    descriptor release_lane(int k) { return parts_.lanes ? parts_.lanes->release(k) : descriptor(); }

    // ------------------------------------------------------------------ words
    // Small words for the other end. They are sent before any message that has not begun.
    void say_welcome() { words().owes_welcome = true; }
    void say_failure(std::uint64_t word) { words().failure = word; }
    // For whom rank `first`, this end, waits, and who is known to wait from there on.
    void say_waiting(int first) { words().waiting.begin(words().waits, first); }
    void set_waiting_words(waiting_words w) { words().waits = w; } // where they are read, and received words are stored
    // What still arrives is no longer stored in the user's memory, which may be in use for something else.
    // The stream may outlive its communicator, whose memory the waiting words are in.
    [[gnu::cold]] void say_bye() {
        words().owes_bye = true;
        words().waits = {};
        words().waiting = {};
        receiver_.settle();
    }
    bool has_said_bye() const { return sender_.has_said_bye(); }
    bool has_said_failure() const { return !is_live() || sender_.has_said_failure(); }
    // The word that ended the communicator, as the other end sent it; 0: nothing.
    std::uint64_t heard_failure() const { return words().heard_failure; }

    // ------------------------------------------------------------------ its end
    // After a failure the user's memory is the user's again: what the system still reads is copied, what arrives goes
    // elsewhere. A connection whose other end has not received all that went by reference is reset: see is_exposed().
    [[gnu::cold]] void settle() {
        parts_.is_settled = true;
        receiver_.settle();
        if (is_exposed()) {
            leading().cannot_send = true;
            receiver_.lose();
            return sender_.forget();
        }
        if (sender_.settle()) return;
        // better send nothing more than use memory that is the user's again
        leading().cannot_send = true;
        leading().error = ENOMEM;
    }
    // Whether the system has everything that was committed. Messages owed to a rank that has left are no loss.
    bool is_flushed() const {
        return state() == phase::left || state() == phase::lost ||
               (!sender_.has_under_way() && !parts_.ports.has_messages());
    }
    descriptor release_socket() { return static_cast<descriptor&&>(leading().socket); }

private:
    detail::stream_connection& leading() { return parts_.leading; }
    const detail::stream_connection& leading() const { return parts_.leading; }
    detail::stream_words& words() { return parts_.words; }
    const detail::stream_words& words() const { return parts_.words; }

    detail::stream_parts parts_;
    detail::stream_sender sender_;
    detail::stream_receiver receiver_;
};

COLLX_END_NAMESPACE
