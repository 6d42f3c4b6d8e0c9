// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages of a stream whose slots are not free yet, though the leading connection has taken them: other lanes still
// have parts of them, or the system still refers to the sender's memory until the receiver has answered. Also chooses
// which messages go by reference. Only for stream.hpp, which says how it is used.
#pragma once

#include <collx/core/clock.hpp>
#include <collx/transport/detail/copy_or_reference.hpp>
#include <collx/transport/detail/page_pipe.hpp>
#include <collx/transport/detail/stream_frame.hpp>
#include <collx/transport/detail/stream_lanes.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class stream_unsent {
public:
    stream_unsent(const socket_calls& calls, std::size_t messages) : pages_(calls), line_(messages) {}
    bool is_empty() const { return line_.is_empty(); }

    // ------------------------------------------------------------------ by reference
    void set_copy_mode(single_copy_mode when) { choice_ = copy_or_reference(when); }
    page_pipe& pages() { return pages_; }
    // How a large message from the user's memory goes over this connection. is_in_use: others by reference are queued.
    copy_or_reference::way choose(std::size_t bytes, int fd, bool is_in_use) {
        if (!pages_.is_usable_on(fd)) return {};
        const copy_or_reference::way by = choice_.next(bytes);
        if (!by.is_asked && !is_in_use) pages_.rest();
        return by;
    }
    std::uint64_t ask() { return ++last_asked_; } // numbers a message that wants an answer
    std::uint64_t last_asked() const { return last_asked_; }

    // ------------------------------------------------------------------ until their slots are free
    void wait_for(const stream_entry& e) {
        line_.push({e.head.at_port, e.awaited, e.payload_bytes, e.began_ns, e.is_referenced});
    }
    // Calls sent(port) for each message in front for which has_gone(awaited) holds; in order, because sent messages are
    // only counted. measure: tells the choice how long answers took.
    template <class HasGone, class Sent>
    void free(HasGone&& has_gone, Sent&& sent, bool measure) {
        message all; // the messages that one answer was for
        for (; !line_.is_empty() && has_gone(line_.front().awaited); line_.pop()) {
            const message& m = line_.front();
            if (m.awaited != 0 && all.bytes == 0) all = m;
            else if (m.awaited != 0) {
                all.bytes += m.bytes;
                all.is_referenced &= m.is_referenced;
            }
            sent(m.at_port);
        }
        if (all.bytes != 0 && measure) note_answer(all);
    }

private:
    struct message {
        int at_port = 0;
        std::uint64_t awaited = 0; // see stream_entry::awaited
        std::size_t bytes = 0;
        std::int64_t began_ns = 0;
        bool is_referenced = false;
    };
    void note_answer(const message& m) {
        const std::int64_t now = now_ns(), since = m.began_ns > answered_at_ns_ ? m.began_ns : answered_at_ns_;
        choice_.add_cost(m.is_referenced, now - since, m.bytes);
        answered_at_ns_ = now;
    }

    page_pipe pages_;
    copy_or_reference choice_;
    short_line<message> line_;
    std::uint64_t last_asked_ = 0; // number of the last message that wants an answer
    std::int64_t answered_at_ns_ = 0;
};

} // namespace detail

COLLX_END_NAMESPACE
