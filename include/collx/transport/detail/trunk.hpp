// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One connection between two ranks of a job that many communicators share. Each communicator has a line of it, which a
// stream uses like its own connection:
//
//   segment: the communicator, a length, so many bytes of its stream  |  end: of its line  |  welcome
//
// The rest of a segment that the system takes in part is copied, and the next sender finishes it. So no line waits for
// another line's rank. Bytes for another line than the one that is read go into that line's inbox. So reading never
// stops, and the streams' credits bound what comes. An inbox may fill before its communicator is made here. The
// connection keeps one order for all lines, so the last bytes and the end of a line are read before the end of all.
#pragma once

#include <sys/uio.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include <collx/core/atomic.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/transport/detail/mutual_help.hpp>
#include <collx/transport/detail/sealed_socket.hpp>
#include <collx/transport/detail/socket_calls.hpp>
#include <collx/transport/detail/stream_frame.hpp>
#include <collx/transport/detail/trunk_line.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class trunk {
public:
    enum class phase : std::uint32_t {
        closed,  // no connection yet
        waiting, // on a lower rank: the peer has not sent its welcome yet
        open,
        lost // for good
    };
    // peer: a rank of the job. generation: how many trunks between these two ranks were lost.
    trunk(const socket_calls& calls, int peer, std::uint32_t generation, mutual_help& helpers, trunk_arrivals& arrivals)
        : wire_(calls), peer_(peer), generation_(generation), arrivals_(&arrivals), lines_(helpers, arrivals, peer) {
        unsent_.reserve(sizeof(segment) + segment::most_bytes);
    }
    trunk(const trunk&) = delete;

    int peer() const { return peer_; }
    std::uint32_t generation() const { return generation_; }
    phase state() const { return static_cast<phase>(phase_.load(memory_order::acquire)); }
    int fd() const { return socket_.get(); }
    int error() const { return error_; } // of the system, 0: none

    // Takes over a connected socket.
    void open(descriptor socket, bool wait_for_welcome, bool owes_welcome, sole_ptr<wire_layer> sealed) {
        const lock_held here(lock_);
        wire_.begin(std::move(sealed));
        socket_ = std::move(socket);
        error_ = 0;
        at_ = got_ = 0;
        const segment welcome{.what = segment::kind::welcome};
        if (owes_welcome) welcome_.append(reinterpret_cast<const std::byte*>(&welcome), sizeof welcome);
        set(wait_for_welcome ? phase::waiting : phase::open);
        (void)flush();
    }
    // Gives up a connection that waits, because the peer's has come.
    void drop() {
        const lock_held here(lock_);
        if (state() == phase::waiting) close(phase::closed, 0);
    }
    // error: the system's error for its lines, EBADMSG for a broken seal or another protection; 0: none.
    void lose(int error) {
        const lock_held here(lock_);
        close(phase::lost, error);
    }

    // ------------------------------------------------------------------ lines
    // name: of the communicator's links in mutual_help.
    trunk_line& claim(std::uint64_t communicator, std::uint64_t name) {
        const lock_held here(lock_);
        return lines_.claim(communicator, name);
    }
    void close(trunk_line& l) {
        if (is_forgotten_) return;
        const lock_held here(lock_);
        if (unsent_line_ == &l) unsent_line_ = nullptr;
        const segment end{.what = segment::kind::end, .communicator = l.communicator};
        try {
            if (state() != phase::lost) unsent_.append(reinterpret_cast<const std::byte*>(&end), sizeof end);
        } catch (const std::bad_alloc&) { // the other end finds its line silent
        }
        lines_.close(l, state() == phase::lost);
        (void)flush();
    }

    // Like sendmsg(), for one line: how many bytes were taken, -1 for none. They may still lie here: see is_unsent.
    ssize_t send(trunk_line& l, const msghdr& m) {
        const lock_tried here(lock_);
        if (!here) {
            errno = EAGAIN;
            return -1;
        }
        if (!flush()) return -1;
        segment_writer out(l.communicator, m);
        const ssize_t n = wire_.send(socket_.get(), out.whole());
        if (n < 0) {
            note_error();
            return -1;
        }
        const std::size_t taken = out.keep_rest(static_cast<std::size_t>(n), unsent_);
        if (has_unsent()) {
            l.is_unsent.store(true, memory_order::release);
            unsent_line_ = &l;
        }
        return static_cast<ssize_t>(taken);
    }
    // Gives the system the bytes of this line that lie here. False while something is left, errno says why.
    bool flush(trunk_line& l) {
        if (!l.is_unsent.load(memory_order::acquire)) return true;
        const lock_tried here(lock_);
        if (!here) {
            errno = EAGAIN;
            return false;
        }
        return flush();
    }
    // Like recvmsg(), for one line.
    ssize_t receive(trunk_line& l, const msghdr& m) {
        const lock_tried here(lock_);
        if (!here) {
            errno = EAGAIN;
            return -1;
        }
        read_places to(m);
        l.take_inbox(to);
        if (!l.inbox_has_bytes()) read(&l, to);
        hand_out();
        const bool has_ended = l.peer_has_closed || is_deaf_ || state() == phase::lost;
        l.has_news.store(l.inbox_has_bytes() || has_ended, memory_order::release);
        if (to.given() != 0) return static_cast<ssize_t>(to.given());
        if (!has_ended) {
            errno = EAGAIN;
            return -1;
        }
        if (l.peer_has_closed || error_ == 0) return 0;
        errno = error_;
        return -1;
    }
    // Puts everything that has come into the inboxes of its lines.
    void pump() {
        const lock_tried here(lock_);
        if (!here) return;
        read_places nowhere;
        read(nullptr, nowhere);
        hand_out();
    }

    // Whether a seal has read what no line has.
    bool holds_unread() const { return holds_unread_.load(memory_order::acquire); }

    // ------------------------------------------------------------------ the end
    // The socket, when the system has everything or never will; not open: not yet, or there is none.
    descriptor release_flushed() {
        const lock_held here(lock_);
        if (state() != phase::open || (!flush() && would_block(errno))) return {};
        descriptor s = std::move(socket_);
        close(phase::lost, 0);
        return s;
    }
    // In a child of fork().
    void forget() { is_forgotten_ = true; }

private:
    static constexpr std::size_t stage_bytes = 16 * 1024 + 512, short_bytes = 4096;
    static constexpr int most_reads = 64; // in one call

    void set(phase p) { phase_.store(static_cast<std::uint32_t>(p), memory_order::release); }
    bool has_unsent() const { return unsent_at_ < unsent_.size() || wire_.has_pending(); }
    void note_error() {
        if (!would_block(errno) && error_ == 0) error_ = errno; // reading decides
    }
    bool write(growing_array<std::byte>& from, std::size_t& at) {
        while (at < from.size()) {
            const ssize_t n = wire_.send(socket_.get(), one_part(from.data() + at, from.size() - at));
            if (n < 0) {
                note_error();
                return false;
            }
            at += static_cast<std::size_t>(n);
        }
        from.clear();
        at = 0;
        return true;
    }
    bool flush() {
        const phase now = state();
        if (now != phase::open) {
            errno = now == phase::lost ? EPIPE : EAGAIN;
            return false;
        }
        if (!write(welcome_, welcome_at_) || !write(unsent_, unsent_at_)) return false;
        if (!wire_.flush(socket_.get())) {
            note_error();
            return false;
        }
        if (unsent_line_ != nullptr) unsent_line_->is_unsent.store(false, memory_order::release);
        unsent_line_ = nullptr;
        return true;
    }

    // Reads what has come. Bytes of `l` go to their places until these are full, those of other lines to inboxes.
    void read(trunk_line* l, read_places& to) {
        (void)flush();
        bool is_dry = false;
        for (int reads = 0; (l == nullptr || !to.is_full()) && state() != phase::closed && !is_deaf_;) {
            if (left_ == 0 && begin_segment()) continue;
            if (state() == phase::lost) return;
            if (left_ != 0 && at_ != got_) {
                if (!hand_over(l, to)) return;
                continue;
            }
            if (is_dry || ++reads > most_reads) return;
            is_dry = !(left_ != 0 && line_ == l ? fill_directly(to) : fill());
        }
    }
    // Puts what the stage still has into inboxes. The socket may be empty, and then no poll tells of these bytes. Nor
    // does one tell of what a seal has read ahead, so the lines show that.
    void hand_out() {
        read_places nowhere;
        while (at_ != got_ && !is_deaf_ && (state() == phase::open || state() == phase::waiting)) {
            if (left_ == 0 && begin_segment()) continue;
            if (left_ == 0 || state() == phase::lost || !hand_over(nullptr, nowhere)) break;
        }
        const bool may_read = !is_deaf_ && (state() == phase::open || state() == phase::waiting);
        const bool holds = may_read && wire_.has_unread();
        holds_unread_.store(holds, memory_order::release);
        if (holds) arrivals_->are_held.store(true, memory_order::release);
    }
    // Hands over what the stage has of this segment. False where there is no memory: it stays where it is.
    bool hand_over(const trunk_line* l, read_places& to) {
        const std::size_t here = left_ < got_ - at_ ? left_ : got_ - at_;
        const std::size_t took = line_ == l                                ? to.put(stage_ + at_, here)
                                 : lines_.post(*line_, stage_ + at_, here) ? here
                                                                           : 0;
        at_ += took;
        left_ -= took;
        if (line_->inbox.size() > trunk_line::most_inbox_bytes) {
            close(phase::lost, EPROTO);
            return false;
        }
        return took != 0;
    }
    // Takes the head of the next segment, if it is here.
    bool begin_segment() {
        segment s;
        if (got_ - at_ < sizeof s) return false;
        std::memcpy(&s, stage_ + at_, sizeof s);
        const bool is_waiting = state() == phase::waiting;
        if (!s.is_sound() || (s.what == segment::kind::welcome) != is_waiting) {
            close(phase::lost, EPROTO);
            return false;
        }
        switch (s.what) {
            case segment::kind::welcome: set(phase::open); break;
            case segment::kind::end: lines_.hear_end(s.communicator); break;
            case segment::kind::bytes:
                line_ = &lines_.of(s.communicator);
                left_ = s.bytes;
                if (line_->peer_has_closed) { // the line may end at any time
                    close(phase::lost, EPROTO);
                    return false;
                }
                break;
        }
        at_ += sizeof s;
        return true;
    }
    // Reads into the stage. True if there may be more.
    bool fill() {
        std::memmove(stage_, stage_ + at_, got_ - at_);
        got_ -= at_;
        at_ = 0;
        one_part m(stage_ + got_, stage_bytes - got_);
        const std::size_t got = took(wire_.receive(socket_.get(), m));
        got_ += got;
        return got == m.part.iov_len;
    }
    // Reads the rest of this segment to its places, and with it the head of the next.
    bool fill_directly(read_places& to) {
        at_ = got_ = 0;
        iovec parts[read_places::most + 1];
        msghdr m{};
        m.msg_iov = parts;
        std::size_t direct = 0;
        m.msg_iovlen = to.free_parts(parts, left_, direct);
        const std::size_t behind = direct < left_ ? 0 : left_ < short_bytes ? stage_bytes : sizeof(segment);
        if (behind != 0) parts[m.msg_iovlen++] = {stage_, behind};
        const std::size_t got = took(wire_.receive(socket_.get(), m)), here = got < direct ? got : direct;
        to.advance(here);
        left_ -= here;
        got_ = got - here;
        return got == direct + behind;
    }
    std::size_t took(ssize_t n) {
        if (n > 0) return static_cast<std::size_t>(n);
        if (n < 0 && would_block(errno)) return 0;
        if (n < 0 && errno == EBADMSG) { // the other end shall be notified
            is_deaf_ = true;
            error_ = errno;
            lines_.tell_all();
            return 0;
        }
        if (n < 0 && error_ == 0) error_ = errno;
        // A connection that waited gave way to one that is to come.
        close(state() == phase::waiting ? phase::closed : phase::lost, error_);
        return 0;
    }
    void close(phase next, int error) {
        if (state() == phase::lost) return;
        set(next);
        error_ = error;
        socket_.close();
        welcome_.clear();
        welcome_at_ = 0;
        if (next == phase::lost) {
            unsent_line_ = nullptr;
            lines_.tell_all();
        }
    }

    yielding_lock lock_; // protects all of these but the atomic ones
    stream_wire wire_;
    descriptor socket_;
    int peer_, error_ = 0;
    std::uint32_t generation_;
    atomic<std::uint32_t> phase_{0};
    atomic<bool> holds_unread_{false};
    bool is_forgotten_ = false, is_deaf_ = false; // deaf: a seal is broken, so nothing is read any more
    trunk_arrivals* arrivals_;
    trunk_lines lines_;
    growing_array<std::byte> welcome_, unsent_; // what is sent first; segments that were not sent entirely
    std::size_t welcome_at_ = 0, unsent_at_ = 0;
    trunk_line* unsent_line_ = nullptr; // whose bytes are in unsent_; at most one, because others send after these
    trunk_line* line_ = nullptr;        // of the segment that is being read
    std::size_t left_ = 0;              // bytes left of it
    std::size_t at_ = 0, got_ = 0;      // what came and is not read
    std::byte stage_[stage_bytes];
};

// One communicator's part of a trunk, as a stream sees it. The destructor sends the end of the line.
class trunk_end final : public wire_layer {
public:
    trunk_end(counted_ptr<trunk> t, std::uint64_t communicator, std::uint64_t name)
        : trunk_(std::move(t)), line_(trunk_->claim(communicator, name)) {}
    trunk_end(const trunk_end&) = delete;
    ~trunk_end() override { trunk_->close(line_); }
    ssize_t send(int, const msghdr& m) override { return trunk_->send(line_, m); }
    ssize_t receive(int, const msghdr& m) override { return trunk_->receive(line_, m); }
    bool flush(int) override { return trunk_->flush(line_); }
    bool has_pending() const override { return line_.is_unsent.load(memory_order::acquire); }
    bool has_unread() const override { return line_.has_news.load(memory_order::acquire) || trunk_->holds_unread(); }

private:
    counted_ptr<trunk> trunk_;
    trunk_line& line_;
};

} // namespace detail

COLLX_END_NAMESPACE
