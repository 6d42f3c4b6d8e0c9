// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The sending direction of a stream: committed messages become frames, as far as the other end has slots for them.
// Frames go over the leading lane, large messages in parts over all. Only for stream.hpp, which says how it is used.
#pragma once

#include <cstring>
#include <utility>

#include <collx/core/clock.hpp>
#include <collx/transport/detail/stream_parts.hpp>
#include <collx/transport/detail/stream_queue.hpp>
#include <collx/transport/detail/stream_unsent.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class stream_sender {
public:
    // Frames are sent together up to about this size: larger writes measured slower again (docs/design/sockets.md).
    static constexpr std::size_t write_bytes = 1024 * 1024;

    stream_sender(stream_parts& of, const socket_calls& calls)
        : of_(of), unsent_(calls, static_cast<std::size_t>(of.ports.count() * of.ports.shape().depth)) {}

    void begin() { // a new connection
        queue_.clear();
        accepted_ = 0;
        of_.words.said_failure = 0; // a word over a connection that was given up has reached no rank
    }
    void set_copy_mode(single_copy_mode when) { unsent_.set_copy_mode(when); }
    void drop_pages() { unsent_.pages().drop(); }

    bool send() {
        bool moved = false;
        while (of_.leading.is_live() && !of_.leading.cannot_send && flush() && has_work() && refill()) {
            iovec parts[stream_queue::most_parts];
            std::size_t want = 0;
            const int count = queue_.gather(parts, want);
            const ssize_t sent = count != 0 ? send_parts(parts, count) : send_pages(want);
            if (sent < 0 && queue_.has_referenced() && !unsent_.pages().is_usable()) {
                queue_.stop_referencing();
                drop_pages();
                continue;
            }
            if (sent < 0) {
                of_.leading.note_send();
                return moved;
            }
            moved = true;
            accepted_ = static_cast<std::size_t>(sent);
            if (accepted_ < want) {
                of_.leading.wire.has_pending() || flush();
                return moved;
            }
        }
        return moved;
    }

    // ------------------------------------------------------------------ what has gone
    // A slot is free again when all parts were sent, or the other end has received the message.
    void count_gone() {
        unsent_.free(
            [this](std::uint64_t awaited) {
                return of_.lanes ? of_.lanes->has_gone(awaited) : awaited <= of_.words.heard_received;
            },
            [this](int p) { of_.ports.count_sent(p); }, !of_.lanes);
    }
    bool hear_received(const stream_frame& f) {
        if (!of_.words.hear_received(f, unsent_.last_asked())) return false;
        count_gone();
        return true;
    }
    bool is_waiting() const { return !unsent_.is_empty(); } // for slots of messages that have not gone entirely
    // Whether the system may still read the user's memory.
    bool is_exposed() const {
        return !of_.lanes && of_.leading.socket.is_open() && (is_waiting() || queue_.is_within_awaited());
    }
    bool has_under_way() const { return has_unsent() || (of_.verbs && !of_.verbs->is_idle()); }
    bool has_said_bye() const { return has_said_bye_ && !has_under_way(); }
    bool has_said_failure() const {
        return of_.words.said_failure == of_.words.failure && queue_.is_empty() && !of_.leading.wire.has_pending();
    }
    // Drops what is queued.
    void forget() { queue_.clear(); }
    // Copies what is queued in the user's memory. False: there is no memory to copy it to, and nothing more is sent.
    [[gnu::cold]] bool settle() {
        if (queue_.own() && (!of_.lanes || of_.lanes->settle())) return true;
        accepted_ = 0;
        queue_.clear();
        return false;
    }

private:
    using kind = stream_frame::kind;

    ssize_t send_parts(iovec* parts, int count) {
        msghdr m{};
        m.msg_iov = parts;
        m.msg_iovlen = static_cast<std::size_t>(count);
        return of_.leading.send(m, queue_.has_referenced());
    }
    ssize_t send_pages(std::size_t& want) {
        const iovec next = queue_.next_referenced();
        want = next.iov_len;
        return unsent_.pages().send(of_.leading.fd(), static_cast<const std::byte*>(next.iov_base), want);
    }
    // Whether there may be something to send. Mostly there is nothing, which a few lines of memory show.
    bool has_work() const {
        if (has_unsent() || of_.words.owes_any() || (of_.verbs && of_.verbs->owes_words(ports_in_use()))) return true;
        if (!of_.ports.is_mapped()) return false;
        return of_.ports.has_messages() || of_.ports.owes_credits();
    }
    bool has_unsent() const {
        return !queue_.is_empty() || of_.leading.wire.has_pending() || (of_.lanes && of_.lanes->has_unsent());
    }
    // Sealed bytes count as sent only when the system has them: a call that has returned may be this rank's last for a
    // long time.
    bool flush() {
        if (!of_.leading.flush()) return false;
        if (accepted_ != 0) account(std::exchange(accepted_, 0));
        return true;
    }
    void account(std::size_t bytes) {
        queue_.account(bytes, [this](const stream_entry& e) {
            if (e.is_message && e.awaited == 0 && unsent_.is_empty()) of_.ports.count_sent(e.head.at_port);
            else if (e.is_message) {
                unsent_.wait_for(e);
                count_gone();
            } else if (e.head_bytes != 0 && e.head.what == kind::bye) has_said_bye_ = true;
            else if (e.head_bytes != 0 && e.head.what == kind::switched) of_.verbs->note_switched(e.head.at_port);
        });
    }
    // Queues frames behind those under way. False when there is nothing to send.
    bool refill() {
        stream_words& words = of_.words;
        const bool is_open = of_.leading.phase == stream_phase::open;
        // A failure is sent without a welcome.
        const bool may_speak = is_open || (of_.leading.phase == stream_phase::waiting && words.failure != 0);
        if (queue_.is_full() || !may_speak || words.has_queued_bye) return !queue_.is_empty();
        words.add_welcome(queue_);
        words.add_failure(queue_);
        if (words.owed_lanes != 0) words.add_lanes(queue_);
        if (of_.verbs && is_open && !of_.is_settled && of_.verbs->owes_words(ports_in_use()))
            of_.verbs->add_words(queue_, of_.ports.memory(), ports_in_use(), unsent_.is_empty());
        if (of_.ports.is_mapped() && is_open) {
            words.add_received(queue_);
            add_credits();
            if (words.failure == 0 && !of_.is_settled) add_messages();
        }
        words.add_waiting(queue_);
        if (words.owes_bye &&
            (words.failure != 0 || (!of_.ports.has_messages() && (!of_.verbs || of_.verbs->is_idle()))))
            words.add_bye(queue_, of_.verbs ? of_.verbs->messages_sent() : 0);
        return !queue_.is_empty();
    }
    unsigned ports_in_use() const { return of_.ports.used() | of_.ports.heard(); }
    void add_credits() {
        verbs_path* const verbs = of_.verbs.get();
        for (unsigned rest = of_.ports.heard(); rest != 0 && !queue_.is_full(); rest &= rest - 1) {
            const int p = stream_ports::first_of(rest);
            const bool by_verbs = verbs != nullptr && verbs->sends(p);
            if (!of_.ports.owes_credit(p) || (by_verbs && !verbs->has_room())) continue;
            // Over the socket, behind the last word of this port, it could come after a credit by verbs that says more.
            if (verbs != nullptr && verbs->is_switching(p) && !by_verbs) continue;
            const auto f = stream_frame{.what = kind::credit, .taken = of_.ports.tell_taken(p)}.on(p);
            if (by_verbs) verbs->post_credit(f);
            else queue_.add_word(f);
        }
    }
    void add_messages() {
        std::size_t bytes = queue_.payload_bytes();
        for (bool again = true; again;) {
            again = false;
            for (unsigned rest = of_.ports.used(); rest != 0; rest &= rest - 1) {
                const int p = stream_ports::first_of(rest);
                if (queue_.is_full() || bytes >= write_bytes) return;
                if (!of_.ports.has_room(p) || !of_.ports.has_message(p)) continue;
                if (of_.verbs && of_.verbs->is_switching(p)) {
                    again = post_message(p) || again;
                    continue;
                }
                bytes += add_message(p);
                again = true;
            }
        }
    }
    // Queues the next message of a port, which has one. Returns how many bytes of it go over the leading lane.
    std::size_t add_message(int p) {
        const slot_header& slot = of_.ports.next_slot(p);
        const std::byte* payload = slot.payload;
        const bool is_users_memory = (slot.bytes & slot_header::single_copy_bit) != 0;
        const std::uint32_t length = slot.bytes & ~slot_header::single_copy_bit;
        const bool is_in_place = !is_users_memory && length > slot_header::inline_bytes;
        if (is_users_memory) std::memcpy(&payload, slot.payload, sizeof payload);
        else if (is_in_place) payload = of_.ports.next_place(p);
        const std::uint64_t striped = of_.lanes ? stripe(payload, length, is_users_memory) : 0;
        const std::size_t here = striped != 0 ? of_.lanes->begin_of(1, length) : length;
        const copy_or_reference::way by = is_users_memory ? choose(length) : copy_or_reference::way{};
        const std::size_t filler = filler_before(payload, length);
        const stream_frame head{.what = striped != 0  ? kind::striped
                                        : by.is_asked ? kind::answered
                                                      : kind::message,
                                .bytes = length,
                                .tag = slot.tag,
                                .taken = of_.ports.tell_taken(p)};
        queue_.add({head.on(p).filled(filler), payload, here, sizeof(stream_frame) + filler, true, is_users_memory,
                    by.by_reference, by.is_asked ? unsent_.ask() : striped, by.is_asked ? now_ns() : 0, is_in_place});
        of_.ports.pass_next(p);
        return here;
    }
    // The system's pages begin anew where the receiver has taken all, so a frame mostly lies at the beginning of a
    // line. A changed filler costs the receiver a copy of at most 64 KiB (take_misplaced). So it changes only for a
    // message that is much longer, or for several alike.
    std::size_t filler_before(const std::byte* payload, std::size_t bytes) {
        if (bytes < stream_frame::least_large_bytes || of_.lanes || !of_.leading.wire.is_plain()) return 0;
        const std::uintptr_t place = reinterpret_cast<std::uintptr_t>(payload) - sizeof(stream_frame);
        const std::size_t best =
            place % cache_line_bytes / stream_frame::filler_unit_bytes * stream_frame::filler_unit_bytes;
        if (bytes >= 128 * 1024 || best == best_filler_) filler_ = best;
        best_filler_ = best;
        return filler_;
    }
    copy_or_reference::way choose(std::size_t bytes) {
        if (bytes < copy_or_reference::least_bytes || of_.lanes || !of_.leading.wire.is_plain()) return {};
        return unsent_.choose(bytes, of_.leading.fd(), queue_.has_referenced());
    }
    bool post_message(int p) {
        if (!of_.verbs->sends(p) || !of_.verbs->has_room()) return false;
        const slot_header& slot = of_.ports.next_slot(p);
        const stream_frame head{
            .what = kind::message, .bytes = slot.bytes, .tag = slot.tag, .taken = of_.ports.tell_taken(p)};
        of_.verbs->post(of_.ports.memory().tx(p), of_.ports.next_number(p), head.on(p));
        of_.ports.pass_next(p);
        return true;
    }
    // The number of a message of which the other lanes carry parts; 0: it goes over the leading lane alone.
    std::uint64_t stripe(const std::byte* payload, std::size_t bytes, bool is_users_memory) {
        if (bytes < stream_lanes::least_bytes) return 0;
        if (of_.lanes->are_open()) return of_.lanes->send_later(payload, bytes, is_users_memory);
        if (of_.lanes->want()) of_.words.owed_lanes |= 1;
        return 0;
    }

    stream_parts& of_;
    stream_queue queue_;
    stream_unsent unsent_;
    std::size_t accepted_ = 0;                 // queued bytes, not counted yet: the system may not have all of them
    std::size_t filler_ = 0, best_filler_ = 0; // before large messages; what the last of them asked for
    bool has_said_bye_ = false;
};

} // namespace detail

COLLX_END_NAMESPACE
