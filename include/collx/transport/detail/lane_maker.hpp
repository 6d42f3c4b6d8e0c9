// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes the lanes of a communicator's streams that do not lead: connects, proves, names the lane, and hands it over
// when the other end has confirmed it on the leading lane. A lane that is lost before that is made again: nothing was
// sent over it. The rank with the higher number of a pair makes them, so that there is one of each.
#pragma once

#include <cerrno>
#include <cstdint>
#include <utility>

#include <collx/core/growing_array.hpp>
#include <collx/core/system_limits.hpp>
#include <collx/transport/failure.hpp>
#include <collx/transport/socket_hub.hpp>
#include <collx/transport/stream.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class lane_maker {
public:
    bool is_idle() const { return ways_.empty(); }
    // Begins all lanes to a peer but the leading one. lead: the hello of that one.
    [[gnu::cold]] void begin(int peer, int job_rank, const stream_hello& lead, int lanes) {
        for (const way& w : ways_)
            if (w.peer == peer) return;
        for (int k = 1; k < lanes; ++k) {
            way& w = ways_.emplace_back();
            w.peer = peer;
            w.job_rank = job_rank;
            w.hello = lead;
            w.hello.lane = static_cast<std::uint32_t>(k);
        }
    }
    [[gnu::cold]] void stop() { ways_.clear(); }

    // stream_to(peer): its stream. Returns a permanent failure, if there is one.
    template <class StreamTo>
    [[gnu::cold]] failure move(socket_hub& hub, int rank, StreamTo&& stream_to) {
        failure found(std::uint64_t{0});
        for (std::size_t i = 0; i < ways_.size();) {
            stream& s = stream_to(ways_[i].peer);
            if (!s.is_live() || step(ways_[i], hub, s, rank, found)) ways_.erase_at(i);
            else ++i;
        }
        return found;
    }

private:
    struct way {
        int peer = 0, job_rank = 0;
        stream_hello hello;
        descriptor socket; // has sent all that it had to, and waits for the confirmation
        sole_ptr<greeting> proof;
        sole_ptr<word_writer> writer;
        sole_ptr<wire_layer> sealed;
        std::int64_t try_at_ns = 0;
    };
    static constexpr std::int64_t next_try_ns = 50'000'000;

    // True when the lane is done or given up.
    bool step(way& w, socket_hub& hub, stream& s, int rank, failure& found) {
        const int k = static_cast<int>(w.hello.lane);
        if (w.socket.is_open() && s.has_arrived(k, w.hello.attempt)) {
            s.use_lane(k, std::move(w.socket), std::move(w.sealed));
            return true;
        }
        if (w.proof) return prove(w, hub, found);
        if (w.writer) {
            say(w);
            return false;
        }
        if (now_ns() < w.try_at_ns) return false;
        w.try_at_ns = now_ns() + next_try_ns;
        if (w.socket.is_open() && is_alive(w.socket.get())) return false;
        return connect(w, hub, rank, found);
    }
    bool connect(way& w, socket_hub& hub, int rank, failure& found) {
        ++w.hello.attempt;
        w.sealed = nullptr;
        w.socket = hub.connect_to(w.job_rank);
        if (!w.socket.is_open()) {
            if (is_out_of_descriptors(errno)) found = failure::no_descriptor(rank, errno);
            if (errno == EKEYREJECTED) found = failure(errc::security, w.peer);
            return found.word != 0; // else this is tried again; that the peer is gone is found by the leading lane
        }
        if (const job_key& key = hub.protected_by().key; key) {
            w.proof = make_sole<greeting>(std::move(w.socket), w.hello, key, hub.calls());
            return prove(w, hub, found);
        }
        w.writer = make_sole<word_writer>(hub.calls());
        say(w);
        return false;
    }
    void say(way& w) {
        const greeted how = w.writer->write(w.socket.get(), &w.hello, sizeof w.hello);
        if (how == greeted::not_yet) return;
        if (how == greeted::gone) w.socket.close();
        w.writer = nullptr;
    }
    bool prove(way& w, socket_hub& hub, failure& found) {
        const greeted how = w.proof->move();
        if (how == greeted::not_yet) return false;
        if (how == greeted::insecure) found = failure(errc::security, w.peer);
        if (how == greeted::done) {
            w.sealed = seal_connection(hub.protected_by().level, w.proof->session(), true, hub.calls());
            w.socket = w.proof->release_socket();
        }
        w.proof = nullptr;
        return found.word != 0;
    }
    static bool is_alive(int fd) {
        char c;
        const ssize_t n = ::recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
        return n > 0 || (n < 0 && (would_block(errno) || errno == EINTR));
    }
    growing_array<way> ways_;
};

} // namespace detail

COLLX_END_NAMESPACE
