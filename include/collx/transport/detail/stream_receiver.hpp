// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The receiving direction of a stream: reads frames from the leading lane and puts the payloads of messages where they
// are wanted, or into slots. Also handles the end of a stream. Only for stream.hpp, which says how it is used.
#pragma once

#include <cerrno>
#include <cstring>

#include <collx/core/clock.hpp>
#include <collx/core/copy_bytes.hpp>
#include <collx/transport/detail/stream_guess.hpp>
#include <collx/transport/detail/stream_parts.hpp>
#include <collx/transport/detail/stream_payload.hpp>
#include <collx/transport/detail/stream_sender.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class stream_receiver {
public:
    static constexpr std::size_t least_posted_bytes = stream_payload::least_posted_bytes;
    static constexpr int most_looks = 8; // at such a message, until its receiver has said where it wants it

    // sender: of the same stream; its slots become free when the other end has received their messages.
    stream_receiver(stream_parts& of, stream_sender& sender) : of_(of), sender_(sender), payload_(of) {}

    void begin() { staged_ = 0; } // a new connection
    // The frame in front waits for a receiver, or a seal holds what it has read.
    bool has_more_here() const { return is_held_ || of_.leading.wire.has_unread(); }

    bool move_lanes() {
        if (!of_.leading.is_live()) return false;
        bool moved = of_.lanes->send();
        if (moved || sender_.is_waiting()) sender_.count_gone();
        if (of_.lanes->receive()) {
            moved = true;
            payload_.deliver_striped();
        }
        of_.lanes->look();
        if (of_.lanes->has_ended() && of_.leading.is_live()) moved = end_by_lane() || moved;
        if (is_ending_ && !of_.lanes->is_waiting()) end();
        return moved;
    }
    bool receive() {
        bool moved = false;
        if (is_ending_ || of_.leading.lacks_memory) return false;
        if (is_held_ && !read_frames()) return refuse();
        if (is_held_) return true;
        for (int turn = 0; of_.leading.is_live() && !of_.leading.is_insecure && turn < 32; ++turn) {
            const expectation next = expected();
            stream_frame head;
            std::byte filler[stream_frame::most_filler_bytes];
            iovec parts[4];
            int count = 0;
            std::size_t room = 0;
            const auto add = [&](void* at, std::size_t bytes) {
                if (bytes != 0) {
                    parts[count++] = {at, bytes};
                    room += bytes;
                }
            };
            add(&head, next.is_guess && !next.is_joined ? sizeof head : 0);
            add(filler, next.filler_bytes);
            add(next.at, next.bytes);
            add(stage_ + staged_, next.staged_bytes);
            msghdr m{};
            m.msg_iov = parts;
            m.msg_iovlen = static_cast<std::size_t>(count);
            const ssize_t got = of_.leading.receive(m);
            if (got < 0 && would_block(errno)) {
                has_more_ = false;
                return moved;
            }
            if (got <= 0) return end_by_leading(got);
            moved = true;
            const auto bytes = static_cast<std::size_t>(got);
            if (!(next.is_guess    ? take_guessed(head, filler, next, bytes)
                  : next.is_joined ? take_medium(next.at, bytes)
                                   : take(bytes)))
                return refuse();
            has_more_ = bytes == room;
            // A large message that is complete is handled before the next is read, which may be wanted elsewhere.
            if (!has_more_ || is_held_ ||
                (payload_.left() == 0 && next.bytes != 0 && next.staged_bytes == 0 &&
                 (next.is_guess || !next.is_joined)))
                return true;
        }
        return moved;
    }
    // Whether messages come by verbs, and no frame over the socket has come in part.
    bool goes_by_verbs() const { return of_.verbs && of_.verbs->receives() && staged_ == 0 && payload_.left() == 0; }
    // A look at the socket is a system call, so it is rare where messages come by verbs.
    bool is_time_for_socket() { return !goes_by_verbs() || (++looks_ & 15) == 0; }
    bool move_verbs() {
        if (!of_.leading.is_live()) return false;
        const bool moved = of_.verbs->move([this](int p) { of_.ports.count_sent(p); },
                                           [this](const stream_frame& f, const std::byte* payload, std::size_t bytes) {
                                               if (f.magic != stream_frame::magic_value || f.filler_units != 0 ||
                                                   !of_.ports.hear_taken(f))
                                                   return false;
                                               if (f.what == kind::credit) return bytes == 0;
                                               return f.what == kind::message && of_.ports.put(f, payload, bytes);
                                           });
        if (of_.verbs->is_nonsense()) {
            of_.leading.is_nonsense = true;
            end();
            return true;
        }
        if (of_.verbs->has_broken()) return end_by_verbs();
        if (is_ending_) end();
        return moved;
    }
    // After a failure, and when this end leaves, nothing goes to users' memory any more.
    [[gnu::cold]] void settle() { payload_.settle(); }
    // Gives the connection up.
    [[gnu::cold]] void lose() {
        of_.leading.phase = stream_phase::lost;
        close_all();
    }

private:
    using kind = stream_frame::kind;
    // Room for a message of 16 KiB and what may be around it: a second read costs more than copying that much.
    static constexpr std::size_t stage_bytes = 16 * 1024 + 512;
    static constexpr std::size_t most_guessed_bytes = stream_guess::most_bytes;
    static constexpr std::int64_t socket_patience_ns = 200'000'000;
    using expectation = stream_guess::expectation;

    [[gnu::cold]] bool end_by_leading(ssize_t got) {
        if (got < 0 && errno == EBADMSG) return of_.leading.note_insecure(); // the other end shall be notified
        if (got < 0 && of_.leading.error == 0) of_.leading.error = errno;
        if (got < 0 && errno == EPROTO) of_.leading.is_nonsense = true;
        end();
        return true;
    }
    // The other end closes the leading lane first, with a goodbye: without one, and with nothing more to read there,
    // the connection has broken.
    [[gnu::cold]] bool end_by_lane() {
        if (of_.leading.is_insecure) return false;
        of_.leading.is_insecure = of_.leading.is_nonsense = of_.lanes->is_insecure(); // the other end shall be notified
        if (of_.leading.is_insecure) return true;
        has_more_ = !is_ending_;
        const bool moved = receive();
        if (!of_.leading.is_live() || is_held_ || has_more_ || (of_.words.has_heard_bye && !of_.lanes->is_waiting()))
            return moved;
        if (!is_ending_ && of_.leading.may_have_more()) return moved;
        if (of_.leading.error == 0) of_.leading.error = of_.lanes->error();
        is_ending_ = false;
        lose();
        return true;
    }
    // The queue pair has failed with messages under way. A peer that died, left or gave up says so over the socket,
    // which may take longer.
    [[gnu::cold]] bool end_by_verbs() {
        const bool moved = receive();
        if (!of_.leading.is_live() || is_held_ || has_more_) return moved;
        if (broken_until_ns_ == 0) broken_until_ns_ = now_ns() + socket_patience_ns;
        if (now_ns() < broken_until_ns_) return moved;
        end();
        return true;
    }
    // Where the next bytes are read to.
    expectation expected() const {
        if (payload_.left() != 0)
            return {payload_.at(), payload_.left(), guess_.is_large() ? 0 : stage_bytes - staged_, false};
        // Where a device may write, nothing is read that does not belong there.
        if (staged_ != 0 || !payload_.goes_to_users() || (of_.verbs && of_.verbs->has_offered()))
            return {nullptr, 0, stage_bytes - staged_, false};
        // A `received` frame may come first, and what is behind it must not lie where it does not belong.
        if (sender_.is_exposed()) return {nullptr, 0, guess_.head_bytes(), false};
        return guess_.expected(of_.ports, static_cast<bool>(of_.verbs), stage_bytes);
    }
    bool take_medium(const std::byte* at, std::size_t bytes) {
        stream_frame f;
        std::memcpy(&f, at, bytes < sizeof f ? bytes : sizeof f);
        const bool is_like = bytes >= sizeof f && f.what == kind::message && guess_.is_medium_of(f.at_port) &&
                             f.bytes > slot_header::inline_bytes && f.bytes < least_posted_bytes;
        std::size_t done = 0;
        if (is_like) {
            if (!read_frame(f)) return false;
            at += sizeof f;
            bytes -= sizeof f;
            done = bytes < payload_.left() ? bytes : payload_.left();
            payload_.copy(at, done);
        }
        if (done == bytes) return true;
        std::memcpy(stage_, at + done, staged_ = bytes - done);
        return read_frames();
    }
    bool take(std::size_t bytes) {
        const std::size_t direct = bytes < payload_.left() ? bytes : payload_.left();
        if (direct != 0) payload_.advance(direct);
        staged_ += bytes - direct;
        return read_frames();
    }
    // Takes a head, its filler and the payload, which mostly lies in its place already.
    bool take_guessed(stream_frame head, const std::byte* filler, const expectation& next, std::size_t bytes) {
        const std::byte* at = next.at;
        if (next.is_joined) {
            std::memcpy(&head, at, bytes < sizeof head ? bytes : sizeof head);
            at += sizeof head;
        }
        if (bytes < sizeof head) {
            std::memcpy(stage_, &head, staged_ = bytes);
            return true;
        }
        bytes -= sizeof head;
        if (bytes == 0 && head.filler_units == 0) return read_frame(head);
        const std::size_t between = next.filler_bytes;
        const bool is_one =
            filler_of(head) == between && bytes >= between && is_whole(head.what) && head.bytes >= bytes - between;
        if (!is_one) return take_misplaced(head, {filler, between}, {at, bytes > between ? bytes - between : 0}, bytes);
        bytes -= between;
        if (!read_frame(head)) return false;
        if (bytes == 0) return true;
        payload_.copy(at, bytes);
        return true;
    }
    struct run {
        const std::byte* at;
        std::size_t bytes;
    };
    // Another frame came first, or lies differently. bytes: behind the head, in `first` and then in `second`.
    [[gnu::cold, gnu::noinline]] bool take_misplaced(const stream_frame& head, run first, run second,
                                                     std::size_t bytes) {
        std::byte copy[stream_frame::most_filler_bytes + most_guessed_bytes]; // a payload may belong where it lies now
        if (first.bytes > bytes) first.bytes = bytes;
        if (first.bytes != 0) std::memcpy(copy, first.at, first.bytes);
        if (second.bytes != 0) std::memcpy(copy + first.bytes, second.at, second.bytes);
        std::memcpy(stage_, &head, staged_ = sizeof head);
        may_hold_ = false;
        bool is_sound = read_frames();
        for (std::size_t done = 0; is_sound && done != bytes;) {
            const std::size_t here = bytes - done < stage_bytes - staged_ ? bytes - done : stage_bytes - staged_;
            std::memcpy(stage_ + staged_, copy + done, here);
            staged_ += here;
            done += here;
            is_sound = read_frames();
        }
        may_hold_ = true;
        // Where only the filler differed, the guess is as good as before.
        if (filler_of(head) == first.bytes || head.bytes + filler_of(head) < bytes) guess_.forget_large();
        return is_sound;
    }
    // What no end of this version sends ends the stream. Where there is no memory, the other end shall be notified.
    [[gnu::cold]] bool refuse() {
        if (!of_.leading.lacks_memory) {
            of_.leading.is_nonsense = true;
            end();
        }
        return true;
    }
    static bool is_whole(kind k) { return k == kind::message || k == kind::answered; }
    bool read_frames() {
        std::size_t at = 0;
        for (;;) {
            if (payload_.left() != 0) {
                const std::size_t here = staged_ - at < payload_.left() ? staged_ - at : payload_.left();
                if (here == 0) break;
                payload_.copy(stage_ + at, here);
                at += here;
                continue;
            }
            if (staged_ - at < sizeof(stream_frame)) break;
            stream_frame f;
            std::memcpy(&f, stage_ + at, sizeof f);
            if (staged_ - at < sizeof f + filler_of(f)) break;
            if (is_held_ = looks_held_ < most_looks && is_early(f); is_held_) {
                ++looks_held_;
                break;
            }
            looks_held_ = 0;
            at += sizeof f + filler_of(f);
            if (!read_frame(f)) return false;
        }
        std::memmove(stage_, stage_ + at, staged_ - at);
        staged_ -= at;
        return true;
    }
    // Whether a large message waits for the receiver, which has pre-posted for others and will say where it wants this
    // one. It waits for several looks, because this stream may also be moved for others between two looks of the
    // receiver. They cost no system call.
    bool is_early(const stream_frame& f) {
        if ((!is_whole(f.what) && f.what != kind::striped) || f.bytes < least_posted_bytes ||
            f.at_port >= of_.ports.count())
            return false;
        return may_hold_ && of_.ports.is_mostly_posted(f.at_port) && payload_.wanted_at(f) == nullptr;
    }
    // False for what no end of this version sends.
    bool read_frame(const stream_frame& f) {
        if (f.magic != stream_frame::magic_value || of_.words.has_heard_bye) return false;
        if (filler_of(f) > (is_whole(f.what) && f.bytes >= least_posted_bytes ? stream_frame::most_filler_bytes : 0))
            return false;
        switch (f.what) {
            case kind::message:
            case kind::answered:
            case kind::striped: return !has_switched(f) && of_.ports.hear_taken(f) && begin_message(f);
            case kind::credit: return !has_switched(f) && of_.ports.hear_taken(f);
            case kind::received: return sender_.hear_received(f);
            case kind::failure: return of_.words.hear_failure(f);
            case kind::waiting: return of_.words.waits.hear_from_host(f.tag, f.bytes, f.taken);
            case kind::lane: return of_.words.hear_lane(f, of_.lanes ? of_.lanes->count() : 1);
            case kind::welcome:
                if (of_.leading.phase != stream_phase::waiting) return false;
                of_.leading.phase = stream_phase::open;
                return true;
            case kind::bye: return of_.words.hear_bye(f);
            case kind::queue_pair: return payload_.begin_queue_pair(f);
            case kind::slots: return !of_.verbs || of_.verbs->hear_slots(f);
            case kind::switched: return of_.verbs && of_.verbs->hear_switched(f);
            default: of_.leading.is_insecure = f.what == kind::refused; return false;
        }
    }
    // Whether the other end has sent its last frame of this port over the socket.
    bool has_switched(const stream_frame& f) const { return of_.verbs && of_.verbs->has_switched(f.at_port); }
    bool begin_message(const stream_frame& f) {
        if (!payload_.begin(f)) return false;
        guess_.note(f, static_cast<bool>(of_.lanes));
        return true;
    }
    // Whether messages are missing that the other end had sent by verbs when it said goodbye.
    bool lacks_messages() const {
        return of_.verbs && of_.words.failure == 0 && of_.words.heard_failure == 0 &&
               !of_.verbs->is_complete(of_.words.heard_messages);
    }
    void end() {
        is_ending_ = of_.words.has_heard_bye && !of_.leading.is_nonsense &&
                     ((of_.lanes && of_.lanes->is_waiting()) || (lacks_messages() && !of_.verbs->has_failed()));
        if (is_ending_) return; // what other lanes or a device still bring was sent before
        of_.leading.phase = of_.words.has_heard_bye && !of_.leading.is_nonsense && !lacks_messages()
                                ? stream_phase::left
                                : stream_phase::lost;
        close_all();
    }
    void close_all() {
        if (sender_.is_exposed())
            page_pipe::take_back(of_.leading.fd()); // what the system still has is not to be received any more
        of_.leading.socket.close();
        const stream_phase now = of_.leading.phase;
        if (now == stream_phase::left || now == stream_phase::lost) of_.leading.wire.end();
        sender_.drop_pages();
        if (of_.lanes) of_.lanes->close();
    }

    stream_parts& of_;
    stream_sender& sender_;
    stream_payload payload_;
    bool is_ending_ = false; // the leading lane has ended well, others bring the rest
    std::int64_t broken_until_ns_ =
        0;                  // how long the socket may still explain a failed queue pair; 0: it has not failed
    bool has_more_ = false; // maybe, on the leading lane
    stream_guess guess_;
    bool may_hold_ = true;
    bool is_held_ = false; // the frame in front waits for the receiver to look
    int looks_held_ = 0;   // for which it has waited
    unsigned looks_ = 0;   // at the socket, where messages come by a device
    std::size_t staged_ = 0;
    std::byte stage_[stage_bytes];
};

} // namespace detail

COLLX_END_NAMESPACE
