// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The sending half of a stream: what was committed on its channels becomes frames, as far as the other end has slots
// for them, and goes out over the leading lane, large ones in parts over all. Only for stream.hpp, which says how it is
// used.
#pragma once

#include <cerrno>
#include <cstring>
#include <utility>

#include <collx/core/clock.hpp>
#include <collx/transport/detail/stream_core.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class stream_sending : public stream_core {
protected:
    using stream_core::stream_core;

    bool send() {
        bool moved = false;
        while (is_live() && !cannot_send_ && flush() && has_work() && refill()) {
            iovec parts[2 * stream_queue::most_entries];
            std::size_t want = 0;
            const int count = queue_.gather(parts, want);
            const ssize_t sent = count != 0 ? send_parts(parts, count) : send_pages(want);
            if (sent < 0 && queue_.has_referenced() && !pages_.is_usable()) {
                queue_.stop_referencing(), pages_.drop();
                continue;
            }
            if (sent < 0) return note_send(), moved;
            moved = true;
            accepted_ = static_cast<std::size_t>(sent);
            if (accepted_ < want) return wire_.has_pending() || flush(), moved;
        }
        return moved;
    }
    ssize_t send_parts(iovec* parts, int count) {
        msghdr m{};
        m.msg_iov = parts;
        m.msg_iovlen = static_cast<std::size_t>(count);
        return wire_.send(socket_.get(), m, queue_.has_referenced());
    }
    ssize_t send_pages(std::size_t& want) {
        const iovec next = queue_.next_referenced();
        want = next.iov_len;
        return pages_.send(socket_.get(), static_cast<const std::byte*>(next.iov_base), want);
    }
    // Whether there may be something to send. Mostly there is nothing, which a few lines of memory say.
    bool has_work() const {
        if (has_unsent() || words_.owes_any() || (verbs_ && verbs_->owes_words(used_ | heard_))) return true;
        if (!memory_.is_mapped()) return false;
        for (unsigned rest = used_; rest != 0; rest &= rest - 1)
            if (has_message(first_of(rest))) return true;
        for (unsigned rest = heard_; rest != 0; rest &= rest - 1)
            if (owes_credit(first_of(rest))) return true;
        return false;
    }
    // Half of the slots at a time: seldom, and a sender that waits for a slot is always told of one.
    bool owes_credit(int p) const {
        return (memory_.taken(p) - in_[p].told) * 2 >= static_cast<std::uint64_t>(memory_.shape().depth);
    }
    // What is sealed counts as sent only when the system has it: a call that has returned may be this rank's last for a
    // long time.
    bool flush() {
        if (!wire_.flush(socket_.get())) return note_send();
        if (accepted_ != 0) account(std::exchange(accepted_, 0));
        return true;
    }
    bool note_send() { // the other end may have said why before it closed: receive() decides
        if (!would_block(errno)) cannot_send_ = true, error_ = errno;
        return false;
    }
    void account(std::size_t bytes) {
        queue_.account(bytes, [this](const stream_entry& e) {
            if (e.is_message && e.awaited == 0 && unsent_.is_empty()) count_sent(e.head.at_port);
            else if (e.is_message) wait_for(e), count_sent_awaited();
            else if (e.head_bytes != 0 && e.head.what == kind::bye) has_said_bye_ = true;
            else if (e.head_bytes != 0 && e.head.what == kind::switched) verbs_->note_switched(e.head.at_port);
        });
    }
    void count_sent(int p) { memory_.tx(p).taken().store(++out_[p].sent, memory_order::release); }
    void wait_for(const stream_entry& e) {
        unsent_.push({e.head.at_port, 0, e.awaited, e.payload_bytes, e.began_ns, e.is_referenced});
    }
    // A slot is free again when all parts have gone, or word has come that the message has; and in its turn: `sent`
    // only counts.
    void count_sent_awaited() {
        unfinished all; // that one answer was for
        for (; !unsent_.is_empty() && has_gone(unsent_.front().awaited); unsent_.pop()) {
            const unfinished& u = unsent_.front();
            if (u.awaited != 0 && all.bytes == 0) all = u;
            else if (u.awaited != 0) all.bytes += u.bytes, all.is_referenced &= u.is_referenced;
            count_sent(u.at_port);
        }
        if (all.bytes != 0 && !lanes_) note_answer(all);
    }
    void note_answer(const unfinished& u) {
        const std::int64_t now = now_ns(), since = u.began_ns > answered_at_ns_ ? u.began_ns : answered_at_ns_;
        choice_.add_cost(u.is_referenced, now - since, u.bytes);
        answered_at_ns_ = now;
    }
    bool has_gone(std::uint64_t awaited) {
        return lanes_ ? lanes_->has_gone(awaited) : awaited <= words_.heard_received;
    }
    // Lines up frames behind what is on its way. False when there is nothing to send.
    bool refill() {
        // Bad news needs no welcome.
        const bool may_speak = phase_ == phase::open || (phase_ == phase::waiting && words_.failure != 0);
        if (queue_.is_full() || !may_speak || words_.has_queued_bye) return !queue_.is_empty();
        words_.add_welcome(queue_);
        words_.add_failure(queue_);
        if (words_.owed_lanes != 0) words_.add_lanes(queue_);
        if (verbs_ && phase_ == phase::open && !is_settled_ && verbs_->owes_words(used_ | heard_))
            verbs_->add_words(queue_, memory_, used_ | heard_, unsent_.is_empty());
        if (memory_.is_mapped() && phase_ == phase::open) {
            words_.add_received(queue_);
            add_credits();
            if (words_.failure == 0 && !is_settled_) add_messages();
        }
        words_.add_waiting(queue_);
        if (words_.owes_bye && (words_.failure != 0 || (!has_messages() && (!verbs_ || verbs_->is_idle()))))
            words_.add_bye(queue_, verbs_ ? verbs_->messages_sent() : 0);
        return !queue_.is_empty();
    }
    void add_credits() {
        for (unsigned rest = heard_; rest != 0 && !queue_.is_full(); rest &= rest - 1) {
            const int p = first_of(rest);
            const bool by_verbs = verbs_ && verbs_->sends(p);
            if (!owes_credit(p) || (by_verbs && !verbs_->has_room())) continue;
            // Behind the last word over the socket it could come after one by verbs that says more.
            if (verbs_ && verbs_->is_switching(p) && !by_verbs) continue;
            in_[p].told = memory_.taken(p);
            const stream_frame f{.what = kind::credit,
                                 .at_port = static_cast<std::uint8_t>(p),
                                 .taken = static_cast<std::uint32_t>(in_[p].told)};
            if (by_verbs) verbs_->post_credit(f);
            else queue_.add_word(f);
        }
    }
    void add_messages() {
        std::size_t bytes = queue_.payload_bytes();
        for (bool again = true; again;) {
            again = false;
            for (unsigned rest = used_; rest != 0; rest &= rest - 1) {
                const int p = first_of(rest);
                if (queue_.is_full() || bytes >= write_bytes) return;
                stream_outgoing& o = out_[p];
                if (o.queued - o.taken >= static_cast<std::uint64_t>(memory_.shape().depth) || !has_message(p))
                    continue;
                if (verbs_ && verbs_->is_switching(p)) {
                    again = post_message(p) || again;
                    continue;
                }
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
                const std::uint64_t striped = lanes_ ? stripe(payload, length, is_lent) : 0;
                const std::size_t here = striped != 0 ? lanes_->begin_of(1, length) : length;
                copy_or_reference::way by;
                if (is_lent && length >= choice_.least_bytes && can_reference()) {
                    by = choice_.next(length);
                    if (!by.is_asked && !queue_.has_referenced()) pages_.rest();
                }
                queue_.add({{.what = striped != 0  ? kind::striped
                                     : by.is_asked ? kind::lent
                                                   : kind::message,
                             .at_port = static_cast<std::uint8_t>(p),
                             .bytes = length,
                             .tag = slot.tag,
                             .taken = static_cast<std::uint32_t>(in_[p].told)},
                            payload,
                            here,
                            sizeof(stream_frame),
                            true,
                            is_lent,
                            by.by_reference,
                            by.is_asked ? ++last_asked_ : striped,
                            by.is_asked ? now_ns() : 0,
                            !is_lent && length > slot_header::inline_bytes});
                ++o.queued;
                bytes += here;
                again = true;
            }
        }
    }

    bool post_message(int p) {
        if (!verbs_->sends(p) || !verbs_->has_room()) return false;
        const auto memory = memory_.tx(p);
        const slot_header& slot = memory.slot(out_[p].queued);
        in_[p].told = memory_.taken(p);
        verbs_->post(memory, out_[p].queued++,
                     {.what = kind::message,
                      .at_port = static_cast<std::uint8_t>(p),
                      .bytes = slot.bytes,
                      .tag = slot.tag,
                      .taken = static_cast<std::uint32_t>(in_[p].told)});
        return true;
    }
    bool can_reference() { return !lanes_ && wire_.is_plain() && pages_.is_usable_on(socket_.get()); }
    // Its number, if the other lanes carry parts of a message; without them it goes as ever.
    std::uint64_t stripe(const std::byte* payload, std::size_t bytes, bool is_lent) {
        if (bytes < stream_lanes::least_bytes) return 0;
        if (lanes_->are_open()) return lanes_->send_later(payload, bytes, is_lent);
        if (!wants_lanes_) wants_lanes_ = true, words_.owed_lanes |= 1;
        return 0;
    }
};

} // namespace detail

COLLX_END_NAMESPACE
