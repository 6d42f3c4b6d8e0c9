// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes the lanes of a communicator's streams that do not lead: connects, proves, names the lane, and hands it over
// when the other end has confirmed it on the leading lane. A lane that is lost before that is made again: nothing was
// sent over it. The rank with the higher number of a pair makes them, so that there is one of each.
#pragma once

#include <cstdint>
#include <utility>

#include <collx/core/growing_array.hpp>
#include <collx/transport/detail/connecting.hpp>
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
        connecting opening;
        connecting::parts made; // waits for the confirmation
    };

    // True when the lane is done or given up.
    bool step(way& w, socket_hub& hub, stream& s, int rank, failure& found) {
        const int k = static_cast<int>(w.hello.lane);
        if (w.made.socket.is_open() && s.has_arrived(k, w.hello.attempt)) {
            s.use_lane(k, std::move(w.made.socket), std::move(w.made.sealed));
            return true;
        }
        if (w.opening.is_under_way()) return end_attempt(w, hub, rank, w.opening.move(), found);
        if (!w.opening.is_due()) return false;
        w.opening.put_off(connecting::pause_ns);
        if (w.made.socket.is_open() && events_now(w.made.socket.get(), POLLRDHUP) == 0) return false;
        w.made = {};
        ++w.hello.attempt;
        return end_attempt(w, hub, rank, w.opening.begin(hub, w.job_rank, w.hello), found);
    }
    // An attempt that failed is made again: the leading lane finds that the peer is gone.
    bool end_attempt(way& w, socket_hub& hub, int rank, attempt how, failure& found) {
        if (how == attempt::done) w.made = w.opening.take(hub);
        if (how == attempt::insecure) found = failure(errc::security, w.peer);
        if (how == attempt::lacking) found = failure::no_descriptor(rank, w.opening.error());
        return found.word != 0;
    }
    growing_array<way> ways_;
};

} // namespace detail

COLLX_END_NAMESPACE
