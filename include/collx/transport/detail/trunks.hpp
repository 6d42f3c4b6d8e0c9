// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A rank's trunks, one to each rank of the job with which it shares communicators. Either end makes a trunk when the
// first line is wanted; all its lines are moved together. The rank with the higher number sends at once. The lower one
// waits for a welcome, and gives way when the higher one's connection comes. After a trunk was lost the next line makes
// another.
#pragma once

#include <cerrno>
#include <cstdint>
#include <utility>

#include <collx/core/atomic.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/core/system_limits.hpp>
#include <collx/transport/detail/greeting.hpp>
#include <collx/transport/detail/mutual_help.hpp>
#include <collx/transport/detail/poll_set.hpp>
#include <collx/transport/detail/rank_list.hpp>
#include <collx/transport/detail/trunk.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class trunks {
public:
    static constexpr std::uint64_t name = 0; // in hellos, in place of a communicator

    trunks(const socket_calls& calls, mutual_help& helpers) : calls_(&calls), helpers_(&helpers) {}

    // Makes a line. hub: of this rank, `me` in the job. line_name: of the communicator's links in mutual_help.
    template <class Hub>
    [[gnu::cold]] sole_ptr<wire_layer> open(Hub& hub, int me, int peer, std::uint64_t communicator,
                                            std::uint64_t line_name) {
        const lock_held here(lock_);
        way& w = way_to(peer);
        if (!w.to || w.to->state() == trunk::phase::lost) renew(w, w.to ? w.to->generation() + 1 : 0, me < peer);
        if (me > peer && w.to->state() == trunk::phase::closed && !w.proof) connect(w, hub, me);
        return make_sole<trunk_end>(w.to, communicator, line_name);
    }
    // A peer (rank of the job) that has begun a line which this communicator does not have here yet; -1: none.
    int take_arrival(std::uint64_t communicator) { return arrivals_.take(communicator); }

    // Takes a connection that came to the listener.
    [[gnu::cold]] void bring(guest&& g) {
        const lock_held here(guests_lock_);
        guests_.push_back(std::move(g));
        has_guests_.store(true, memory_order::release);
    }
    bool has_to_open() const {
        return has_guests_.load(memory_order::relaxed) || is_opening_.load(memory_order::relaxed);
    }
    // Advances the trunks that are not open yet.
    template <class Hub>
    [[gnu::cold]] void move(Hub& hub, int me) {
        const lock_tried here(lock_);
        if (!here) return;
        growing_array<guest> guests;
        {
            const lock_held now(guests_lock_);
            guests.swap(guests_);
            has_guests_.store(false, memory_order::release);
        }
        for (guest& g : guests) adopt(g, hub, me);
        for (std::size_t i = 0; i < opening_.size(); ++i) {
            const int peer = opening_[i];
            if (step(way_to(peer), hub, me)) {
                remove_rank(opening_, peer);
                --i;
            }
        }
        is_opening_.store(!opening_.empty(), memory_order::release);
    }

    // Calls visit(rank of the job) for each trunk that can be read; visit returns whether it moved any. False as well
    // when nothing can tell which ones they are.
    template <class Visit>
    bool visit_readable(Visit&& visit) {
        return is_polling_.load(memory_order::acquire) &&
               poll_.visit_readable(*calls_, [&](std::uint64_t peer) { return visit(static_cast<int>(peer)); });
    }
    bool can_tell() const { return is_polling_.load(memory_order::acquire); }
    // Puts what has come over one trunk, or over all, into the inboxes of its lines.
    void pump(int peer) {
        counted_ptr<trunk> t;
        {
            const lock_tried here(lock_);
            if (here && static_cast<std::size_t>(peer) < ways_.size() && ways_[peer]) t = ways_[peer]->to;
        }
        if (t) t->pump();
    }
    void pump_all() {
        const int one = only_.load(memory_order::acquire);
        if (one == none) return;
        if (can_tell())
            return void(visit_readable([&](int peer) {
                pump(peer);
                return true;
            }));
        if (are_several_.load(memory_order::acquire)) return pump_each();
        pump(one);
    }

    // At the end of the job: hands over the sockets of trunks that have sent everything. False while some have not.
    template <class Take>
    [[gnu::cold]] bool part(Take&& take) {
        const lock_held here(lock_);
        bool is_done = true;
        for (auto& w : ways_) {
            if (!w || !w->to || w->to->state() != trunk::phase::open) continue;
            descriptor s = w->to->release_flushed();
            if (s.is_open()) take(std::move(s));
            else is_done = w->to->state() != trunk::phase::open && is_done;
        }
        return is_done;
    }
    // In a child of fork().
    void forget() {
        for (auto& w : ways_)
            if (w && w->to) w->to->forget();
    }
    // The number of open trunks.
    int count() {
        const lock_held here(lock_);
        int n = 0;
        for (auto& w : ways_) n += w && w->to && w->to->state() == trunk::phase::open ? 1 : 0;
        return n;
    }

private:
    struct way {
        int peer = 0;
        counted_ptr<trunk> to;
        sole_ptr<greeting> proof; // the handshake that leads to its connection
        std::int64_t try_at_ns = 0;
        int refusals = 0;
    };
    static constexpr std::int64_t first_try_ns = 5'000'000, next_try_ns = 50'000'000, soon_ns = 1'000'000;
    static constexpr int none = -1;

    // There was no descriptor for poll_.
    [[gnu::cold]] void pump_each() {
        int peers = 0;
        {
            const lock_tried here(lock_);
            if (here) peers = static_cast<int>(ways_.size());
        }
        for (int p = 0; p < peers; ++p) pump(p);
    }
    way& way_to(int peer) {
        const auto at = static_cast<std::size_t>(peer);
        if (ways_.size() <= at) ways_.resize(at + 1);
        if (!ways_[at]) {
            ways_[at] = make_sole<way>();
            ways_[at]->peer = peer;
        }
        return *ways_[at];
    }
    void renew(way& w, std::uint32_t generation, bool is_patient) {
        w.to = make_counted<trunk>(*calls_, w.peer, generation, *helpers_, arrivals_);
        w.proof = nullptr;
        w.refusals = 0;
        w.try_at_ns = is_patient ? now_ns() + first_try_ns : 0; // the higher rank mostly connects by itself
        if (!is_in(opening_, w.peer)) opening_.push_back(w.peer);
        is_opening_.store(true, memory_order::release);
    }
    // True when the trunk is open or lost.
    template <class Hub>
    bool step(way& w, Hub& hub, int me) {
        if (w.proof) greet(w, hub, me);
        else if (w.to->state() == trunk::phase::waiting) wait(w, me);
        else if (w.to->state() == trunk::phase::closed && now_ns() >= w.try_at_ns && hub.knows(w.peer))
            connect(w, hub, me);
        const trunk::phase now = w.to->state();
        if (now == trunk::phase::open) watch(w);
        return now == trunk::phase::open || now == trunk::phase::lost;
    }
    void wait(way& w, int me) {
        w.to->pump();
        if (w.to->state() == trunk::phase::closed) retry_later(w, me, w.to->is_refused());
    }
    // It gave way to a connection that is to come. If the peer's process has ended, that connection may wait at our
    // listener with its last messages: only the second refusal counts.
    void retry_later(way& w, int me, bool is_refused) {
        if (is_refused && (w.peer < me || ++w.refusals >= 2)) return w.to->lose(ECONNREFUSED);
        w.try_at_ns = now_ns() + (is_refused ? soon_ns : next_try_ns);
    }
    template <class Hub>
    void connect(way& w, Hub& hub, int me) {
        stream_hello h = hub.hello(name, me, w.peer, {});
        h.attempt = w.to->generation();
        descriptor s = hub.connect_to(w.peer);
        if (!s.is_open()) return not_connected(w, hub, me, errno);
        const job_protection& by = hub.protected_by();
        if (by.key) w.proof = make_sole<greeting>(std::move(s), h, by.key, *calls_);
        else w.to->open(std::move(s), &h, w.peer > me, false, {});
        if (w.to->state() == trunk::phase::open) watch(w);
    }
    template <class Hub>
    void not_connected(way& w, Hub& hub, int me, int error) {
        if (hub.is_unix() && error == EAGAIN) return void(w.try_at_ns = now_ns() + soon_ns); // a long queue
        if (error == ECONNREFUSED) return retry_later(w, me, true);
        if (would_block(error)) error = ENOSPC; // lack of memory, whose errno a line takes for "nothing has come yet"
        w.to->lose(error == EKEYREJECTED ? EBADMSG : error);
    }
    template <class Hub>
    void greet(way& w, Hub& hub, int me) {
        const greeted how = w.proof->move();
        if (how == greeted::not_yet) return;
        const sole_ptr<greeting> was = std::move(w.proof);
        if (how == greeted::done)
            w.to->open(was->release_socket(), nullptr, w.peer > me, false,
                       seal_connection(hub.protected_by().level, was->session(), true, *calls_));
        else if (how == greeted::insecure) w.to->lose(EBADMSG);
        else if (!was->is_refused() && was->is_unreachable()) w.to->lose(was->error());
        else retry_later(w, me, was->is_refused()); // pushed out by strangers, too
    }
    template <class Hub>
    void adopt(guest& g, Hub& hub, int me) {
        const stream_hello& h = g.hello;
        if (!h.is_to(me) || !hub.knows(h.from) || h.lane != 0) return;
        way& w = way_to(h.from);
        if (!w.to || h.attempt > w.to->generation()) {
            if (w.to) { // the other end has lost it
                w.to->pump();
                w.to->lose(0);
            }
            renew(w, h.attempt, true);
        }
        const trunk::phase now = w.to->state();
        const bool is_ours_begun = w.proof || now == trunk::phase::waiting;
        if (h.attempt < w.to->generation() || now == trunk::phase::open || now == trunk::phase::lost ||
            (is_ours_begun && h.from < me))
            return; // our connection stays
        w.proof = nullptr;
        w.to->drop();
        w.to->open(std::move(g.socket), nullptr, false, h.from < me,
                   seal_connection(hub.protected_by().level, g.session(hub.protected_by().key), false, *calls_));
    }
    // Several trunks are polled at once, a single one by itself.
    void watch(way& w) {
        if (only_.load(memory_order::relaxed) == none) only_.store(w.peer, memory_order::release);
        if (!can_tell() && only_.load(memory_order::relaxed) != w.peer) {
            poll_.open();
            for (auto& other : ways_)
                if (other && other->to && other->peer != w.peer && other->to->state() == trunk::phase::open)
                    poll_.add(other->to->fd(), static_cast<std::uint64_t>(other->peer));
            are_several_.store(true, memory_order::release);
            is_polling_.store(poll_.is_open(), memory_order::release);
        }
        poll_.add(w.to->fd(), static_cast<std::uint64_t>(w.peer));
    }

    const socket_calls* calls_;
    mutual_help* helpers_;
    trunk_arrivals arrivals_;
    yielding_lock lock_;                // protects these
    growing_array<sole_ptr<way>> ways_; // by rank of the job
    growing_array<int> opening_;
    poll_set poll_;
    atomic<bool> is_opening_{false}, is_polling_{false}, are_several_{false};
    atomic<int> only_{none};    // the first that was open
    yielding_lock guests_lock_; // protects these
    growing_array<guest> guests_;
    atomic<bool> has_guests_{false};
};

} // namespace detail

COLLX_END_NAMESPACE
