// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The peers of a communicator on other hosts: the state of the connection to each, and its stream. Only for
// remote_links.hpp, which moves them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/clock.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/transport/detail/connecting.hpp>
#include <collx/transport/detail/left_communicators.hpp>
#include <collx/transport/detail/poll_set.hpp>
#include <collx/transport/detail/rank_list.hpp>
#include <collx/transport/stream.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

struct remote_peer {
    sole_ptr<stream> connection;
    connecting opening; // of it
    std::int64_t lost_at_ns = 0;
};

class remote_peers {
public:
    explicit remote_peers(std::size_t ranks) : all_(ranks) {}

    growing_array<int> active, opening; // with a connection; on the way to one
    growing_array<int> wanted;          // higher ranks that have not connected
    growing_array<int> lost;            // ended without a goodbye
    poll_set poll;

    int count() const { return static_cast<int>(all_.size()); }
    remote_peer& at(int p) { return all_[p]; }
    stream& stream_to(int p) { return *at(p).connection; }
    template <class Is>
    bool any(Is&& is) {
        for (const int p : active)
            if (is(stream_to(p))) return true;
        return false;
    }
    // Connections of this communicator's own.
    int own_connections() {
        int n = 0;
        for (const int p : active) n += stream_to(p).is_shared() ? 0 : stream_to(p).opened_lanes();
        return n;
    }
    // Whether a connection to it exists, or existed, or is being made.
    bool is_known(int p) {
        const auto& c = at(p).connection;
        return c && (c->state() != stream::phase::closed || is_in(wanted, p) || is_in(opening, p) || is_in(lost, p));
    }
    // Nothing is said over a connection that waits for its welcome.
    std::uint64_t had_connections() {
        std::uint64_t all = 0;
        for (int p = 0; p < count(); ++p)
            if (const auto& c = at(p).connection;
                c && c->state() != stream::phase::closed && c->state() != stream::phase::waiting)
                all |= left_communicator::bit_of(p);
        return all;
    }
    void stop_opening(int p) {
        at(p).opening.stop();
        remove_rank(opening, p);
    }
    void lose(int p) {
        at(p).lost_at_ns = now_ns();
        if (!is_in(lost, p)) lost.push_back(p);
    }
    // Its connection is open. Few are looked at one by one; more are polled all at once.
    void activate(int p) {
        active.push_back(p);
        if (poll.is_open()) return poll.add(stream_to(p).fd(), static_cast<std::uint64_t>(p));
        if (active.size() <= few_streams) return;
        poll.open();
        for (const int other : active) poll.add(stream_to(other).fd(), static_cast<std::uint64_t>(other));
    }
    // No peer is connected to, or on the way to be. Streams are kept.
    void drop_all() {
        for (const int p : opening) at(p).opening.stop();
        opening.clear();
        active.clear();
        wanted.clear();
        poll.close();
    }
    // See remote_ranks::find_gone().
    int find_gone(int waiting_for, std::int64_t now) {
        constexpr std::int64_t missed_after_ns = 100'000'000;
        for (const int p : lost)
            if (p == waiting_for || now - at(p).lost_at_ns > missed_after_ns) return p;
        if (waiting_for < 0 || waiting_for >= count()) return -1;
        const auto& s = at(waiting_for).connection;
        if (!s || s->state() != stream::phase::left) return -1;
        return lost.empty() ? waiting_for : lost[0]; // it left for a reason: the death of another is reported first
    }
    [[gnu::cold]] void settle() {
        for (remote_peer& p : all_)
            if (p.connection) p.connection->settle();
    }
    void forget() {
        for (remote_peer& p : all_)
            if (p.connection) p.connection->forget();
    }

private:
    static constexpr std::size_t few_streams = 1; // one call for each of more would cost more

    growing_array<remote_peer> all_;
};

} // namespace detail

COLLX_END_NAMESPACE
