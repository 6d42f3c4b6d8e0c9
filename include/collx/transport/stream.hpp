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
// A frame goes out only when the receiver has a free slot for it (it said how many it has taken), so nobody ever has to
// stop reading and no port waits for another. Knows no communicator: whoever has it open asks what it heard.
#pragma once

#include <collx/core/atomic.hpp>
#include <collx/transport/channel.hpp>
#include <collx/transport/detail/sealed_socket.hpp>
#include <collx/transport/detail/socket_calls.hpp>
#include <collx/transport/detail/stream_frame.hpp>
#include <collx/transport/detail/stream_queue.hpp>

COLLX_BEGIN_NAMESPACE

class stream {
public:
    static constexpr int most_ports = 8;
    // Frames go out together up to about this size: larger writes measured slower again (docs/design/sockets.md).
    static constexpr std::size_t write_bytes = 1024 * 1024;
    static constexpr std::size_t least_landed_bytes = 16 * 1024;

    enum class phase : unsigned char {
        closed,  // no connection
        waiting, // of a lower rank: the peer has not said welcome yet
        open,
        left, // the peer said goodbye; all it had to say has arrived
        lost  // ended without a goodbye, or by nonsense (see is_nonsense)
    };

    stream(const socket_calls& calls, channel_shape shape, int ports)
        : wire_(calls), memory_(shape, ports), ports_(ports) {}
    stream(const stream&) = delete;

    // The ends that tasks use. They may be used by another thread than the one that calls move().
    sending_end tx(int port) {
        memory_.require();
        used_ |= 1u << port;
        return sending_end(memory_.tx(port).base, memory_.shape(), true);
    }
    receiving_end rx(int port) {
        memory_.require();
        return receiving_end(memory_.rx(port).base, memory_.shape(), true);
    }

    // Takes over a socket, connected or on its way. `hello` goes out first if there is one; a lower rank's end sends
    // nothing else before the welcome. sealed: what bytes go through. Requires: no connection so far.
    void open(descriptor socket, const detail::stream_hello* hello, bool wait_for_welcome,
              sole_ptr<detail::sealed_socket> sealed = {}) {
        wire_.begin(static_cast<sole_ptr<detail::sealed_socket>&&>(sealed));
        socket_ = static_cast<descriptor&&>(socket);
        phase_ = wait_for_welcome ? phase::waiting : phase::open;
        queue_.clear();
        staged_ = 0, error_ = 0, cannot_send_ = false;
        said_failure_ = 0; // said over a connection that was given up, it has reached nobody
        if (hello == nullptr) return;
        hello_ = *hello;
        queue_.add({{}, reinterpret_cast<const std::byte*>(&hello_), sizeof hello_, 0, false});
    }
    // Gives up a connection over which nothing was said but hello.
    void close() { socket_.close(), phase_ = phase::closed; }
    phase state() const { return phase_; }
    bool is_nonsense() const { return is_nonsense_; }
    bool is_insecure() const { return is_insecure_; }          // nonsense: another protection, or a seal that is broken
    bool is_refused() const { return error_ == ECONNREFUSED; } // nobody listens there any more
    int error() const { return error_; }                       // of the system, 0: none
    bool cannot_send() const { return cannot_send_; }          // why, receiving says
    int fd() const { return socket_.get(); }
    bool is_live() const { return phase_ == phase::open || phase_ == phase::waiting; }

    // Sends and receives what can be without waiting. True if anything moved.
    bool move(bool is_readable = true) {
        bool moved = send();
        if (is_readable || wire_.has_unread()) moved = receive() || moved;
        return moved && (send(), true); // credits for what has come, at once
    }

    void push() { (void)send(); } // for those who are not prepared for its end: only move() finds that

    // Small words for the other end; they go out before any message that has not begun.
    void say_welcome() { owes_welcome_ = true; }
    void say_failure(std::uint64_t word) { failure_ = word; }
    void say_waiting(int for_rank) { waiting_ = for_rank + 1, owes_waiting_ = true; }
    void say_bye() { owes_bye_ = true; }
    bool has_said_bye() const { return has_said_bye_ && !wire_.has_pending(); }
    // After a failure the user's memory is the user's again: what was lent is copied, what is landing goes elsewhere.
    [[gnu::cold]] void settle() {
        is_settled_ = true;
        if (payload_left_ != 0 && is_landing_)
            payload_at_ = memory_.rx(payload_port_).own_place(in_[payload_port_].put);
        is_landing_ = false;
        if (queue_.own()) return;
        cannot_send_ = true, error_ = ENOMEM; // better nothing more than what is no longer lent
        queue_.clear();
    }
    bool has_said_failure() const { return !is_live() || (said_failure_ == failure_ && !has_unsent()); }
    // What the other end said: the word that ended the communicator (0: nothing), whom it waits for and since when that
    // is known.
    std::uint64_t heard_failure() const { return heard_failure_; }
    int heard_waiting() const { return heard_waiting_; }
    std::int64_t heard_waiting_at_ns() const { return heard_waiting_at_ns_; }

    // Whether the system has everything that was committed on a port (-1: on any). What is owed to somebody who has
    // left is nobody's loss.
    bool is_flushed(int at_port = -1) const {
        if (phase_ == phase::left || phase_ == phase::lost) return true;
        return !has_unsent() && (at_port < 0 ? !has_messages() : (used_ >> at_port & 1) == 0 || !has_message(at_port));
    }
    descriptor release_socket() { return static_cast<descriptor&&>(socket_); }

private:
    using outgoing = detail::stream_outgoing;
    using incoming = detail::stream_incoming;
    static constexpr std::size_t stage_bytes = 8192;
    static_assert(stage_bytes < least_landed_bytes); // what waits is never all here: its stream stays readable
    using kind = detail::stream_frame::kind;

    bool has_message(int p) const {
        const std::uint64_t i = out_[p].queued;
        return memory_.tx(p).slot(i).number.load(memory_order::acquire) == i + 1;
    }
    bool has_messages() const {
        for (int p = 0; p < ports_; ++p)
            if ((used_ >> p & 1) != 0 && has_message(p)) return true;
        return false;
    }
    // ------------------------------------------------------------------ sending
    bool has_unsent() const { return !queue_.is_empty() || wire_.has_pending(); }
    bool send() {
        bool moved = false;
        while (is_live() && !cannot_send_ && (wire_.flush(socket_.get()) || note_send()) && refill()) {
            iovec parts[2 * detail::stream_queue::most_entries];
            std::size_t want = 0;
            const int count = queue_.gather(parts, want);
            msghdr m{};
            m.msg_iov = parts;
            m.msg_iovlen = static_cast<std::size_t>(count);
            const ssize_t sent = wire_.send(socket_.get(), m);
            if (sent < 0) return note_send(), moved;
            moved = true;
            account(static_cast<std::size_t>(sent));
            if (static_cast<std::size_t>(sent) < want) return moved;
        }
        return moved;
    }
    bool note_send() { // the other end may have said why before it closed: receive() decides
        if (!detail::would_block(errno)) cannot_send_ = true, error_ = errno;
        return false;
    }
    void account(std::size_t bytes) {
        queue_.account(bytes, [this](const detail::stream_entry& e) {
            if (e.is_message)
                memory_.tx(e.head.at_port).taken().store(++out_[e.head.at_port].sent, memory_order::release);
            else if (e.head_bytes != 0 && e.head.what == kind::bye) has_said_bye_ = true;
        });
    }
    // Lines up frames behind what is on its way. False when there is nothing to send.
    bool refill() {
        // Bad news needs no welcome.
        const bool may_speak = phase_ == phase::open || (phase_ == phase::waiting && failure_ != 0);
        if (queue_.is_full() || !may_speak || has_queued_bye_) return !queue_.is_empty();
        if (owes_welcome_) owes_welcome_ = false, queue_.add_word({.what = kind::welcome});
        if (failure_ != said_failure_) {
            said_failure_ = failure_;
            queue_.add_word({.what = kind::failure,
                             .bytes = static_cast<std::uint32_t>(failure_),
                             .tag = static_cast<std::uint32_t>(failure_ >> 32)});
        }
        if (memory_.is_mapped() && phase_ == phase::open) {
            add_credits();
            if (failure_ == 0 && !is_settled_) add_messages();
        }
        if (owes_waiting_ && !queue_.is_full()) {
            owes_waiting_ = false;
            queue_.add_word({.what = kind::waiting, .bytes = static_cast<std::uint32_t>(waiting_)});
        }
        if (owes_bye_ && !queue_.is_full() && (failure_ != 0 || !has_messages()))
            has_queued_bye_ = true, queue_.add_word({.what = kind::bye});
        return !queue_.is_empty();
    }
    // Half of the slots at a time: seldom, and a sender that waits for a slot is always told of one.
    void add_credits() {
        for (int p = 0; p < ports_ && !queue_.is_full(); ++p) {
            const std::uint64_t taken = memory_.taken(p);
            if ((taken - in_[p].told) * 2 < static_cast<std::uint64_t>(memory_.shape().depth)) continue;
            in_[p].told = taken;
            queue_.add_word({.what = kind::credit,
                             .at_port = static_cast<std::uint8_t>(p),
                             .taken = static_cast<std::uint32_t>(taken)});
        }
    }
    void add_messages() {
        std::size_t bytes = queue_.payload_bytes();
        for (bool again = true; again;) {
            again = false;
            for (int p = 0; p < ports_; ++p) {
                if ((used_ >> p & 1) == 0) continue;
                if (queue_.is_full() || bytes >= write_bytes) return;
                outgoing& o = out_[p];
                if (o.queued - o.taken >= static_cast<std::uint64_t>(memory_.shape().depth) || !has_message(p))
                    continue;
                const auto memory = memory_.tx(p);
                const slot_header& slot = memory.slot(o.queued);
                const std::byte* payload = slot.payload;
                const bool is_lent = (slot.bytes & slot_header::lent_bit) != 0;
                const std::uint32_t length = slot.bytes & ~slot_header::lent_bit;
                if (is_lent) {
                    std::memcpy(&payload, slot.payload, sizeof payload);
                } else if (length > slot_header::inline_bytes) {
                    payload = memory.own_place(o.queued);
                }
                in_[p].told = memory_.taken(p);
                queue_.add({{.what = kind::message,
                             .at_port = static_cast<std::uint8_t>(p),
                             .bytes = length,
                             .tag = slot.tag,
                             .taken = static_cast<std::uint32_t>(in_[p].told)},
                            payload,
                            length,
                            sizeof(detail::stream_frame),
                            true,
                            is_lent});
                ++o.queued;
                bytes += length;
                again = true;
            }
        }
    }

    // ------------------------------------------------------------------ receiving
    bool receive() {
        bool moved = false;
        if (is_held_ && !read_frames()) return is_nonsense_ = true, end(), true;
        if (is_held_) return true;
        for (int turn = 0; is_live() && !is_insecure_ && turn < 32; ++turn) {
            iovec parts[2];
            int count = 0;
            if (payload_left_ != 0) parts[count++] = {payload_at_, payload_left_};
            parts[count++] = {stage_ + staged_, stage_bytes - staged_};
            const std::size_t room = payload_left_ + stage_bytes - staged_;
            msghdr m{};
            m.msg_iov = parts;
            m.msg_iovlen = static_cast<std::size_t>(count);
            const ssize_t got = wire_.receive(socket_.get(), m);
            if (got < 0 && detail::would_block(errno)) return moved;
            if (got < 0 && errno == EBADMSG) return is_nonsense_ = is_insecure_ = true; // it shall hear of it
            if (got < 0 && error_ == 0) error_ = errno;
            if (got <= 0) return end(), true;
            moved = true;
            std::size_t bytes = static_cast<std::size_t>(got);
            const std::size_t direct = bytes < payload_left_ ? bytes : payload_left_;
            if (direct != 0) advance_payload(direct);
            staged_ += bytes - direct;
            if (!read_frames()) return is_nonsense_ = true, end(), true;
            if (bytes < room || is_held_) return true; // the system had no more
        }
        return moved;
    }
    void advance_payload(std::size_t bytes) {
        payload_at_ += bytes;
        payload_left_ -= bytes;
        if (payload_left_ == 0) deliver();
    }
    // Hands the message over to the receiving end.
    void deliver() {
        incoming& i = in_[payload_port_];
        const std::uint64_t number = i.put++;
        memory_.rx(payload_port_).slot(number).number.store(number + 1, memory_order::release);
    }
    bool read_frames() {
        std::size_t at = 0;
        for (;;) {
            if (payload_left_ != 0) {
                const std::size_t here = staged_ - at < payload_left_ ? staged_ - at : payload_left_;
                if (here == 0) break;
                std::memcpy(payload_at_, stage_ + at, here);
                at += here;
                advance_payload(here);
                continue;
            }
            if (staged_ - at < sizeof(detail::stream_frame)) break;
            detail::stream_frame f;
            std::memcpy(&f, stage_ + at, sizeof f);
            if (is_held_ = !is_held_ && is_early(f); is_held_) break;
            at += sizeof f;
            if (!read_frame(f)) return false;
        }
        std::memmove(stage_, stage_ + at, staged_ - at);
        staged_ -= at;
        return true;
    }
    // Whether to wait with a large message for one look of the receiver, who has had others land and will say where it
    // wants this one.
    bool is_early(const detail::stream_frame& f) {
        if (f.what != kind::message || f.bytes < least_landed_bytes || f.at_port >= ports_) return false;
        return in_[f.at_port].lands && !is_wanted(f);
    }
    bool is_wanted(const detail::stream_frame& f) const {
        if (is_settled_ || failure_ != 0) return false;
        const auto& wish = memory_.rx(f.at_port).landing();
        return wish.number.load(memory_order::acquire) == in_[f.at_port].put + 1 && wish.bytes == f.bytes &&
               wish.tag == f.tag;
    }
    // False for what no end of this version says.
    bool read_frame(const detail::stream_frame& f) {
        if (f.magic != detail::stream_frame::magic_value || has_heard_bye_) return false;
        switch (f.what) {
            case kind::message: return read_taken(f) && begin_message(f);
            case kind::credit: return read_taken(f);
            case kind::failure:
                heard_failure_ = static_cast<std::uint64_t>(f.tag) << 32 | f.bytes;
                return heard_failure_ != 0;
            case kind::waiting:
                heard_waiting_ = static_cast<int>(f.bytes - 1u);
                heard_waiting_at_ns_ = now_ns();
                return true;
            case kind::welcome:
                if (phase_ != phase::waiting) return false;
                phase_ = phase::open;
                return true;
            case kind::bye: return has_heard_bye_ = true;
            default: return is_insecure_ = f.what == kind::refused, false;
        }
    }
    // The other end counts in 32 bits; what it says must lie between what it said before and what it was sent.
    bool read_taken(const detail::stream_frame& f) {
        if (f.at_port >= ports_) return false;
        outgoing& o = out_[f.at_port];
        const std::uint64_t now = o.taken + static_cast<std::uint32_t>(f.taken - static_cast<std::uint32_t>(o.taken));
        if (now > o.queued) return false;
        o.taken = now;
        return true;
    }
    bool begin_message(const detail::stream_frame& f) {
        if (!memory_.map()) return false;
        incoming& i = in_[f.at_port];
        if (f.bytes > memory_.shape().slot_bytes ||
            i.put - memory_.taken(f.at_port) >= static_cast<std::uint64_t>(memory_.shape().depth))
            return false;
        const auto memory = memory_.rx(f.at_port);
        slot_header& slot = memory.slot(i.put);
        slot.bytes = f.bytes;
        slot.tag = f.tag;
        payload_at_ = slot.payload;
        is_landing_ = f.bytes >= least_landed_bytes && is_wanted(f);
        if (f.bytes >= least_landed_bytes) i.lands = is_landing_;
        if (is_landing_) {
            slot.bytes |= slot_header::landed_bit;
            payload_at_ = memory.landing().at;
        } else if (f.bytes > slot_header::inline_bytes) {
            payload_at_ = memory.own_place(i.put);
        }
        payload_port_ = f.at_port;
        payload_left_ = f.bytes;
        if (payload_left_ == 0) deliver();
        return true;
    }
    void end() {
        phase_ = has_heard_bye_ && !is_nonsense_ ? phase::left : phase::lost;
        socket_.close();
    }

    detail::stream_wire wire_;
    detail::stream_memory memory_;
    int ports_;
    unsigned used_ = 0; // ports that this end sends on
    descriptor socket_;
    phase phase_ = phase::closed;
    bool cannot_send_ = false, is_nonsense_ = false, is_insecure_ = false, has_heard_bye_ = false,
         has_said_bye_ = false;
    bool owes_welcome_ = false, owes_waiting_ = false, owes_bye_ = false, has_queued_bye_ = false;
    std::uint64_t failure_ = 0, said_failure_ = 0, heard_failure_ = 0;
    int waiting_ = 0, heard_waiting_ = -1;
    std::int64_t heard_waiting_at_ns_ = 0;
    outgoing out_[most_ports];
    incoming in_[most_ports];
    detail::stream_hello hello_;
    detail::stream_queue queue_;
    int error_ = 0;
    std::byte* payload_at_ = nullptr;
    std::size_t payload_left_ = 0;
    int payload_port_ = 0;
    bool is_landing_ = false; // the payload goes to the user's memory
    bool is_held_ = false;    // the frame in front waits for the receiver's next look
    bool is_settled_ = false;
    std::size_t staged_ = 0;
    std::byte stage_[stage_bytes];
};

COLLX_END_NAMESPACE
