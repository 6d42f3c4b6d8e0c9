// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Unix datagrams between processes of one machine; one in twenty is dropped on purpose. Message numbers,
// acknowledgements, retransmission, and a window of messages that the receiver has room for make channels of them.
#pragma once

#include <collx/core/clock.hpp>
#include <collx/transport/transport_concept.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <random>
#include <system_error>
#include <thread>
#include <vector>

struct datagrams {
    static constexpr const char* name = "datagrams";
    static constexpr bool carries(collx::relation) { return true; }
    class endpoint;
};

class datagrams::endpoint {
    static constexpr std::size_t most = 16 * 1024, window = 8;
    static constexpr std::uint32_t no_message = UINT32_MAX;
    struct packet {
        int from = 0;
        std::uint32_t bytes = no_message; // of data behind the head
        std::uint64_t number = 0;         // of the message
        std::uint64_t arrived = 0;        // number of messages received from the peer
    };
    struct message {
        packet head;
        std::byte bytes[most];
    };
    struct peer { // both ends of the channels to and from one rank
        endpoint& mine;
        std::vector<message> out{window}, in{window};
        std::uint64_t committed = 0, acknowledged = 0, arrived = 0, taken = 0;
        std::int64_t sent_ns = 0;
        collx::endpoint_address there{};
        bool is_connected = false, is_gone = false;

        template <class F>
        auto locked(F&& f) {
            const std::scoped_lock here(mine.mutex_);
            return f();
        }
        bool is_lost() {
            return locked([&] { return is_gone; });
        }
        std::byte* try_acquire(std::size_t) {
            return locked([&] { return committed - acknowledged < window ? out[committed % window].bytes : nullptr; });
        }
        void commit(std::size_t bytes) {
            const std::scoped_lock here(mine.mutex_);
            message& m = out[committed % window];
            m.head = {mine.rank_, static_cast<std::uint32_t>(bytes), committed++, 0};
            mine.send(*this, m);
        }
        bool is_drained() {
            return locked([&] { return acknowledged == committed; });
        }
        bool has_message() {
            return locked([&] { return taken != arrived; });
        }
        std::size_t message_bytes() { return in[taken % window].head.bytes; }
        const std::byte* peek(std::size_t) { return in[taken % window].bytes; }
        void release(std::size_t) {
            locked([&] { ++taken; });
        }
    };

public:
    endpoint(int rank, int size) : rank_(rank), random_(static_cast<unsigned>(rank + 1)) {
        for (int p = 0; p < size; ++p) peers_.push_back(peer{*this});
        const sockaddr_un any{AF_UNIX, {}}; // the system chooses a name
        if (socket_ < 0 || ::bind(socket_, reinterpret_cast<const sockaddr*>(&any), sizeof any.sun_family) != 0)
            throw std::system_error(errno, std::generic_category(), "datagrams: socket");
        carrier_ = std::thread([this] {
            for (pollfd news{socket_, POLLIN, 0}; !has_ended_; (void)::poll(&news, 1, 1)) (void)move();
        });
    }
    ~endpoint() { // what was committed is retransmitted for up to a second
        const auto until = collx::deadline::in_ns(1'000'000'000);
        for (peer& p : peers_)
            while (!p.is_drained() && !p.is_lost() && !until.passed()) std::this_thread::yield();
        has_ended_ = true;
        carrier_.join();
        ::close(socket_);
    }
    collx::endpoint_address address() {
        collx::endpoint_address a;
        socklen_t bytes = sizeof a.at;
        (void)::getsockname(socket_, reinterpret_cast<sockaddr*>(a.at), &bytes);
        a.bytes = bytes;
        return a;
    }
    void connect(int p, const collx::endpoint_address& there) {
        const std::scoped_lock here(mutex_);
        tx(p).there = there;
        tx(p).is_connected = true;
    }
    std::size_t most_bytes() { return most; }
    peer& tx(int p) { return peers_[static_cast<std::size_t>(p)]; }
    peer& rx(int p) { return tx(p); }
    bool is_gone(int p) { return tx(p).is_lost(); }
    // Receives what has arrived and retransmits what was not acknowledged for 2 ms. Sends to an idle peer every 50 ms:
    // if its socket is closed, the peer is gone.
    bool move() {
        const std::scoped_lock here(mutex_);
        bool moved = false;
        for (ssize_t bytes; (bytes = ::recv(socket_, &arriving_, sizeof arriving_, MSG_DONTWAIT)) >= 0;)
            moved = receive(static_cast<std::size_t>(bytes)) || moved;
        const std::int64_t now = collx::now_ns();
        for (peer& p : peers_) {
            const bool is_owed = p.acknowledged != p.committed;
            if (now - p.sent_ns < (is_owed ? 2'000'000 : 50'000'000)) continue;
            for (std::uint64_t m = p.acknowledged; m < p.committed; ++m) send(p, p.out[m % window]);
            if (!is_owed) send(p, answer_);
        }
        return moved;
    }

private:
    void send(peer& p, message& m) {
        p.sent_ns = collx::now_ns();
        m.head.arrived = p.arrived;
        if (!p.is_connected || p.is_gone || random_() % 20 == 0) return; // one in 20 is dropped
        const std::size_t bytes = sizeof m.head + (m.head.bytes == no_message ? 0 : m.head.bytes);
        const auto* at = reinterpret_cast<const sockaddr*>(p.there.at);
        if (::sendto(socket_, &m, bytes, MSG_DONTWAIT, at, p.there.bytes) < 0) p.is_gone = errno == ECONNREFUSED;
    }
    bool receive(std::size_t bytes) {
        const packet& head = arriving_.head;
        if (bytes < sizeof head || head.from < 0 || static_cast<std::size_t>(head.from) >= peers_.size()) return false;
        peer& p = tx(head.from);
        if (head.arrived > p.acknowledged && head.arrived <= p.committed) p.acknowledged = head.arrived;
        if (head.bytes != bytes - sizeof head) return false;
        const bool is_next = head.number == p.arrived && p.arrived - p.taken < window;
        if (is_next) std::memcpy(&p.in[p.arrived++ % window], &arriving_, bytes);
        send(p, answer_); // also for a duplicate: the first answer may have been lost
        return is_next;
    }

    int rank_, socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    std::mutex mutex_;
    std::minstd_rand random_;
    std::vector<peer> peers_;
    message arriving_, answer_{{rank_}, {}}; // answer_ carries no message, only an acknowledgement
    std::atomic<bool> has_ended_{false};
    std::thread carrier_; // a peer may need an answer while this rank computes
};
