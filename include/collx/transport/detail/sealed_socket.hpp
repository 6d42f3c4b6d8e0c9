// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The layer of a stream where bytes on the network are sealed: records of a length, up to 64 KiB and a tag. It takes
// and gives bytes like the system's own calls, so a stream knows no records. Nothing of a record is given before its
// seal is verified.
#pragma once

#include <sys/uio.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include <collx/core/growing_array.hpp>
#include <collx/core/sealing.hpp>
#include <collx/transport/detail/socket_calls.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// What a stream sends and receives through instead of the plain socket. Each call is given the socket.
struct wire_layer {
    virtual ~wire_layer() = default;
    // Like sendmsg(): how many bytes were taken, -1 for none. They may still lie here: see has_pending().
    virtual ssize_t send(int fd, const msghdr& m) = 0;
    // Gives the system what lies here. False while something is left, errno says why.
    virtual bool flush(int fd) = 0;
    virtual bool has_pending() const = 0;
    // Like recvmsg(). -1 with EBADMSG, then and in later calls, for bytes that the other end has not sent in this
    // place.
    virtual ssize_t receive(int fd, const msghdr& m) = 0;
    // Whether there is more to receive() than the socket has.
    virtual bool has_unread() const = 0;
};

class sealed_socket final : public wire_layer {
public:
    static constexpr std::size_t most_text = 64 * 1024;

    sealed_socket(sole_ptr<sealer> by, const socket_calls& calls)
        : by_(std::move(by)), calls_(&calls), out_(most_record), in_(2 * most_record) {}

    ssize_t send(int fd, const msghdr& m) override {
        std::size_t taken = 0, part = 0, at = 0;
        while (!cannot_seal_ && flush(fd) && part < m.msg_iovlen) {
            std::size_t bytes = 0;
            while (part < m.msg_iovlen && bytes < most_text) {
                const iovec& v = m.msg_iov[part];
                const std::size_t n = v.iov_len - at < most_text - bytes ? v.iov_len - at : most_text - bytes;
                std::memcpy(out_.data() + head_bytes + bytes, static_cast<const char*>(v.iov_base) + at, n);
                bytes += n;
                at += n;
                if (at == v.iov_len) {
                    ++part;
                    at = 0;
                }
            }
            if (bytes != 0 && !close_record(bytes)) break;
            taken += bytes;
        }
        if (cannot_seal_) {
            errno = EBADMSG;
            return -1;
        }
        return taken != 0 ? static_cast<ssize_t>(taken) : -1; // flush() has set errno
    }
    bool flush(int fd) override {
        while (sent_ < end_) {
            const one_part m(out_.data() + sent_, end_ - sent_);
            const ssize_t n = without_eintr([&] { return calls_->sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT); });
            if (n < 0) return false;
            sent_ += static_cast<std::size_t>(n);
        }
        return true;
    }
    bool has_pending() const override { return sent_ < end_; }
    bool has_unread() const override { return text_left_ != 0 || got_ != at_ || is_broken_; }

    ssize_t receive(int fd, const msghdr& m) override {
        std::size_t given = 0;
        for (std::size_t part = 0, at = 0; part < m.msg_iovlen;) {
            if (text_left_ == 0) {
                const ssize_t n = next_record(fd);
                if (n <= 0) return given != 0 ? static_cast<ssize_t>(given) : n;
            }
            const iovec& v = m.msg_iov[part];
            const std::size_t n = v.iov_len - at < text_left_ ? v.iov_len - at : text_left_;
            std::memcpy(static_cast<char*>(v.iov_base) + at, in_.data() + text_at_, n);
            given += n;
            at += n;
            text_at_ += n;
            text_left_ -= n;
            if (at == v.iov_len) {
                ++part;
                at = 0;
            }
        }
        return static_cast<ssize_t>(given);
    }

private:
    static constexpr std::size_t head_bytes = 4, most_record = head_bytes + most_text + sealer::tag_bytes;

    bool close_record(std::size_t bytes) {
        const auto length = static_cast<std::uint32_t>(bytes);
        std::memcpy(out_.data(), &length, head_bytes);
        if (!by_->seal(out_.data(), head_bytes, out_.data() + head_bytes, bytes, out_.data() + head_bytes + bytes)) {
            cannot_seal_ = true; // what is not sealed is never sent
            return false;
        }
        sent_ = 0;
        end_ = head_bytes + bytes + sealer::tag_bytes;
        return true;
    }
    // 1: the text of a record is ready; else the result of recvmsg().
    ssize_t next_record(int fd) {
        if (is_broken_) {
            errno = EBADMSG;
            return -1;
        }
        for (;;) {
            std::uint32_t length = 0;
            if (got_ - at_ >= head_bytes) {
                std::memcpy(&length, in_.data() + at_, head_bytes);
                if (length == 0 || length > most_text) {
                    is_broken_ = true;
                    errno = EBADMSG;
                    return -1;
                }
                const std::size_t whole = head_bytes + length + sealer::tag_bytes;
                if (got_ - at_ >= whole) {
                    unsigned char* text = in_.data() + at_ + head_bytes;
                    is_broken_ = !by_->open(text - head_bytes, head_bytes, text, length, text + length);
                    if (is_broken_) {
                        errno = EBADMSG;
                        return -1;
                    }
                    text_at_ = at_ + head_bytes;
                    text_left_ = length;
                    at_ += whole;
                    return 1;
                }
            }
            if (at_ == got_) at_ = got_ = 0;
            if (in_.size() - at_ < most_record) { // the rest of this record may not fit behind it
                std::memmove(in_.data(), in_.data() + at_, got_ - at_);
                got_ -= at_;
                at_ = 0;
            }
            one_part m(in_.data() + got_, in_.size() - got_);
            const ssize_t n = without_eintr([&] { return calls_->recvmsg(fd, &m, MSG_DONTWAIT); });
            if (n <= 0) return n;
            got_ += static_cast<std::size_t>(n);
        }
    }

    sole_ptr<sealer> by_;
    const socket_calls* calls_;
    detail::growing_array<unsigned char> out_, in_;
    std::size_t sent_ = 0, end_ = 0;          // of the record that goes out
    std::size_t at_ = 0, got_ = 0;            // what came and is not read
    std::size_t text_at_ = 0, text_left_ = 0; // what is read and not given
    bool is_broken_ = false, cannot_seal_ = false;
};

// The two calls of a stream: of the system, or of a layer above it.
class stream_wire {
public:
    explicit stream_wire(const socket_calls& calls) : calls_(&calls) {}
    const socket_calls& calls() const { return *calls_; }
    void begin(sole_ptr<wire_layer> by) { layer_ = static_cast<sole_ptr<wire_layer>&&>(by); }
    void end() { layer_ = nullptr; }
    bool is_plain() const { return layer_ == nullptr; }
    // more: bytes that follow at once are to be sent with these.
    ssize_t send(int fd, const msghdr& m, bool more = false) {
        if (layer_) return layer_->send(fd, m);
        const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
        return without_eintr([&] { return calls_->sendmsg(fd, &m, flags); });
    }
    ssize_t receive(int fd, msghdr& m) {
        if (layer_) return layer_->receive(fd, m);
        return without_eintr([&] { return calls_->recvmsg(fd, &m, MSG_DONTWAIT); });
    }
    // Whether there is something to receive: > 0 yes, 0 the end, -1 for what errno says.
    ssize_t peek(int fd) {
        if (has_unread()) return 1;
        char c;
        one_part m(&c, 1);
        return without_eintr([&] { return calls_->recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT); });
    }
    // Whether the system has something to receive, or the end.
    static bool is_readable(int fd) { return events_now(fd, POLLIN) != 0; }
    // Whether the other end has given up the connection and what it had sent.
    static bool is_reset(int fd) { return (events_now(fd, 0) & (POLLERR | POLLHUP)) != 0; }
    bool flush(int fd) { return !layer_ || layer_->flush(fd); }
    bool has_pending() const { return layer_ && layer_->has_pending(); }
    bool has_unread() const { return layer_ && layer_->has_unread(); }

private:
    const socket_calls* calls_;
    sole_ptr<wire_layer> layer_; // null: none
};

// The layer that seals a job's connections; null: they are not sealed.
inline sole_ptr<wire_layer> seal_connection(protection level, const secret& session, bool is_connecting,
                                            const socket_calls& calls) {
    if (level < protection::integrity) return {};
    return make_sole<sealed_socket>(seals->make(session, is_connecting, level == protection::encrypted), calls);
}

} // namespace detail

COLLX_END_NAMESPACE
