// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The lanes of a stream beside its leading one: connections that carry parts of large messages and nothing else. The
// frames on the leading lane say to which message a part belongs. Every lane carries its parts in this order, so both
// ends know what comes next on each. Knows no frames and no channels.
#pragma once

#include <sys/uio.h>

#include <cerrno>
#include <new>
#include <utility>

#include <collx/core/descriptor.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/transport/detail/sealed_socket.hpp>
#include <collx/transport/detail/socket_calls.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// A FIFO; never holds more than it was made for.
template <class T>
class short_line {
public:
    explicit short_line(std::size_t most) {
        std::size_t places = 1;
        while (places < most) places *= 2;
        at_.resize(places);
    }
    bool is_empty() const { return count_ == 0; }
    std::size_t size() const { return count_; }
    T& at(std::size_t i) { return at_[(first_ + i) & (at_.size() - 1)]; }
    T& front() { return at(0); }
    void push(const T& x) { at(count_++) = x; }
    void pop() {
        ++first_;
        --count_;
    }

private:
    growing_array<T> at_;
    std::size_t first_ = 0, count_ = 0;
};

class stream_lanes {
public:
    static constexpr int most = 8; // with the leading one
    // Smaller messages go over the leading lane alone.
    static constexpr std::size_t least_bytes = 256 * 1024;

    // messages: the most that can be under way at once in each direction.
    stream_lanes(const socket_calls& calls, int lanes, std::size_t messages) : count_(lanes), unreceived_(messages) {
        for (int k = 1; k < lanes; ++k) lanes_.push_back(make_sole<lane>(calls, messages));
    }
    int count() const { return count_; }

    // ------------------------------------------------------------------ connections
    bool is_open(int k) const { return at(k).socket.is_open(); }
    int opened() const { return open_; } // without the leading one
    bool are_open() const { return open_ == count_ - 1; }
    // Notes that this end has a message for more lanes. True the first time.
    bool want() { return !std::exchange(is_wanted_, true); }
    bool are_wanted() const { return is_wanted_; }
    void open(int k, descriptor socket, sole_ptr<wire_layer> sealed) {
        at(k).wire.begin(std::move(sealed));
        at(k).socket = std::move(socket);
        ++open_;
    }
    void close() {
        for (auto& l : lanes_) l->socket.close();
    }
    descriptor release(int k) { return std::move(at(k).socket); }
    // A lane that ends before its stream ends the stream, too.
    bool has_ended() const { return has_ended_; }
    bool is_insecure() const { return is_insecure_; }
    int error() const { return error_; }

    // Where the part of lane k begins; it ends where that of the next lane begins.
    std::size_t begin_of(int k, std::size_t bytes) const {
        return k == count_ ? bytes : bytes * static_cast<std::size_t>(k) / static_cast<std::size_t>(count_) & ~line;
    }

    // ------------------------------------------------------------------ sending
    // Queues the parts of the next message to send. Returns its number, from 1 on.
    std::uint64_t send_later(const std::byte* from, std::size_t bytes, bool is_users_memory) {
        add(&lane::out, const_cast<std::byte*>(from), nullptr, bytes, is_users_memory, ++sent_);
        return sent_;
    }
    bool has_gone(std::uint64_t number) {
        for (const auto& l : lanes_)
            if (l->wire.has_pending() && l->sealed_from <= number) return false;
        return is_done(&lane::out, number);
    }
    bool has_unsent() const {
        for (const auto& l : lanes_)
            if (!l->out.is_empty() || l->wire.has_pending()) return true;
        return false;
    }
    bool send() {
        bool moved = false;
        for (auto& l : lanes_) {
            while (l->socket.is_open() && (l->wire.flush(l->socket.get()) || note(errno)) && !l->out.is_empty()) {
                iovec parts[most_parts];
                std::size_t want = 0;
                const msghdr m = gather(l->out, parts, want);
                l->sealed_from = l->out.front().number;
                const ssize_t sent = l->wire.send(l->socket.get(), m);
                if (sent < 0 && !note(errno)) break;
                moved = true;
                take(l->out, static_cast<std::size_t>(sent));
                if (static_cast<std::size_t>(sent) < want) break;
            }
        }
        return moved;
    }

    // ------------------------------------------------------------------ receiving
    // Expects the parts of the next message. elsewhere: where they go after receive_elsewhere(); null: they stay.
    std::uint64_t receive_later(std::byte* to, std::byte* elsewhere, std::size_t bytes) {
        add(&lane::in, to, elsewhere, bytes, elsewhere != nullptr, ++received_);
        return received_;
    }
    // Message `number` of a port has parts here. striped: its number among the striped messages.
    void expect(int port, std::uint64_t number, std::uint64_t striped) { unreceived_.push({port, number, striped}); }
    // The leading lane's part of that message has come.
    void note_led(std::uint64_t striped) { led_ = striped; }
    // Calls whole(port, number) for each message of which all parts are here, in the order in which they were sent.
    template <class Whole>
    void deliver(Whole&& whole) {
        for (; !unreceived_.is_empty(); unreceived_.pop()) {
            const unreceived& u = unreceived_.front();
            if (u.striped > led_ || !is_done(&lane::in, u.striped)) return;
            whole(u.port, u.number);
        }
    }
    bool is_waiting() const {
        for (const auto& l : lanes_)
            if (!l->in.is_empty()) return true;
        return false;
    }
    bool receive() {
        bool moved = false;
        for (auto& l : lanes_) {
            for (int turn = 0; turn < 32 && l->socket.is_open() && !l->in.is_empty(); ++turn) {
                iovec parts[most_parts];
                std::size_t want = 0;
                msghdr m = gather(l->in, parts, want);
                const ssize_t got = l->wire.receive(l->socket.get(), m);
                if (got <= 0 && !note(got < 0 ? errno : 0)) break;
                moved = true;
                take(l->in, static_cast<std::size_t>(got));
                if (static_cast<std::size_t>(got) < want) break;
            }
        }
        return moved;
    }
    // Checks now and then whether lanes on which nothing is expected still live.
    void look() {
        if ((++looks_ & 127) != 0) return;
        for (auto& l : lanes_) {
            if (!l->socket.is_open() || !l->in.is_empty()) continue;
            if (const ssize_t n = l->wire.peek(l->socket.get()); n <= 0) (void)note(n < 0 ? errno : 0);
        }
    }

    // From here on nothing is sent from users' memory: copies what is unsent. False: there is no memory to copy to.
    [[gnu::cold]] bool settle() {
        try {
            for (auto& l : lanes_)
                for (std::size_t i = 0; i < l->out.size(); ++i) own(l->out.at(i));
        } catch (const std::bad_alloc&) {
            return false;
        }
        return true;
    }
    // From here on what arrives goes elsewhere: to slots.
    [[gnu::cold]] void receive_elsewhere() {
        for (auto& l : lanes_)
            for (std::size_t i = 0; i < l->in.size(); ++i)
                if (part& p = l->in.at(i); p.elsewhere != nullptr) {
                    p.at = p.elsewhere;
                    p.elsewhere = nullptr;
                }
    }

private:
    static constexpr std::size_t line = 63; // parts begin at whole cache lines of the message
    static constexpr int most_parts = 8;
    struct part {
        std::byte *at = nullptr, *elsewhere = nullptr;
        std::size_t left = 0;
        std::uint64_t number = 0;
        bool is_users_memory = false;
    };
    struct unreceived {
        int port = 0;
        std::uint64_t number = 0, striped = 0;
    };
    struct lane {
        lane(const socket_calls& calls, std::size_t messages) : wire(calls), out(messages), in(messages) {}
        stream_wire wire;
        descriptor socket;
        short_line<part> out, in;
        std::uint64_t sealed_from = 0; // number of the first part of the last send, which may still lie in the layer
    };
    const lane& at(int k) const { return *lanes_[k - 1]; }
    lane& at(int k) { return *lanes_[k - 1]; }

    void add(short_line<part> lane::*way, std::byte* base, std::byte* elsewhere, std::size_t bytes,
             bool is_users_memory, std::uint64_t number) {
        for (int k = 1; k < count_; ++k) {
            const std::size_t begin = begin_of(k, bytes), end = begin_of(k + 1, bytes);
            if (begin != end) (at(k).*way).push({base + begin, elsewhere, end - begin, number, is_users_memory});
        }
    }
    bool is_done(short_line<part> lane::*way, std::uint64_t number) {
        for (auto& l : lanes_)
            if (short_line<part>& parts = (*l).*way; !parts.is_empty() && parts.front().number <= number) return false;
        return true;
    }
    static msghdr gather(short_line<part>& from, iovec* parts, std::size_t& bytes) {
        msghdr m{};
        m.msg_iov = parts;
        for (std::size_t i = 0; i < from.size() && i < most_parts; ++i) {
            parts[m.msg_iovlen++] = {from.at(i).at, from.at(i).left};
            bytes += from.at(i).left;
        }
        return m;
    }
    static void take(short_line<part>& from, std::size_t bytes) {
        while (bytes != 0) {
            part& p = from.front();
            const std::size_t here = bytes < p.left ? bytes : p.left;
            p.at += here;
            p.left -= here;
            bytes -= here;
            if (p.left == 0) from.pop();
        }
    }
    void own(part& p) {
        if (!p.is_users_memory) return;
        copies_.emplace_back(p.at, p.at + p.left);
        p.at = copies_.back().data();
        p.is_users_memory = false;
    }
    // Notes the end of a lane, unless `error` is temporary. Always false. 0: the other end has closed.
    bool note(int error) {
        if (error != 0 && would_block(error)) return false;
        has_ended_ = true;
        is_insecure_ = is_insecure_ || error == EBADMSG;
        if (error_ == 0) error_ = error;
        return false;
    }

    int count_, open_ = 0;
    growing_array<sole_ptr<lane>> lanes_;
    std::uint64_t sent_ = 0, received_ = 0, led_ = 0; // numbers of the last; led_: whose leading part has come
    short_line<unreceived> unreceived_;               // some parts of these are on their way
    unsigned looks_ = 0;
    bool is_wanted_ = false;
    bool has_ended_ = false, is_insecure_ = false;
    int error_ = 0;
    detail::growing_array<detail::growing_array<std::byte>> copies_;
};

} // namespace detail

COLLX_END_NAMESPACE
