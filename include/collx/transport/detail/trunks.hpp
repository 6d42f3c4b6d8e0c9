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
#include <collx/transport/detail/connecting.hpp>
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
        me_ = me;
        way& w = way_to(peer);
        if (!w.to || w.to->state() == trunk::phase::lost) renew(w, w.to ? w.to->generation() + 1 : 0, me < peer);
        if (me > peer && w.to->state() == trunk::phase::closed && !w.opening.is_under_way()) connect(w, hub, me);
        return make_sole<trunk_end>(w.to, communicator, line_name);
    }
    // A peer (rank of the job) that has begun a line which this communicator does not have here yet; -1: none.
    int take_arrival(std::uint64_t communicator) { return arrivals_.take(communicator); }
    trunk_arrivals& arrivals() { return arrivals_; }
    // This rank's end of a line that a peer has begun; null: their connection was lost.
    [[gnu::cold]] sole_ptr<wire_layer> end_of(int peer, std::uint64_t communicator, std::uint64_t line_name) {
        const lock_held here(lock_);
        const way& w = way_to(peer);
        if (!w.to || w.to->state() == trunk::phase::lost) return {};
        return make_sole<trunk_end>(w.to, communicator, line_name);
    }

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

    // The same at the end of the job, when no communicator is left that does it.
    template <class Hub>
    [[gnu::cold]] void move_last(Hub& hub) {
        if (has_to_open()) move(hub, me_);
    }

    // Calls visit(rank of the job) for each trunk that can be read; visit returns whether it moved any. False as well
    // when nothing can tell which ones they are.
    template <class Visit>
    bool visit_readable(Visit&& visit) {
        return is_polling_.load(memory_order::acquire) &&
               poll_.visit_readable(*calls_, [&](std::uint64_t peer) { return visit(static_cast<int>(peer)); });
    }
    bool can_tell() const { return is_polling_.load(memory_order::acquire); }
    // Puts what has come over one trunk, over all but one, or over those whose seals have read ahead, into the inboxes
    // of its lines. A line of the communicator that waits reads without this copy.
    void pump(int peer, bool only_held = false) {
        counted_ptr<trunk> t;
        {
            const lock_tried here(lock_);
            if (here && static_cast<std::size_t>(peer) < ways_.size() && ways_[peer]) t = ways_[peer]->to;
        }
        if (t && (!only_held || t->holds_unread())) t->pump();
    }
    void pump_all(int but = none) {
        const int one = only_.load(memory_order::acquire);
        if (can_tell()) {
            (void)visit_readable([&](int peer) {
                if (peer != but) pump(peer);
                return true;
            });
            pump_held(but);
        } else if (are_several_.load(memory_order::acquire)) {
            pump_each(but, false);
        } else if (one != but) {
            pump(one);
        }
    }
    // Only its lines show what a seal holds, and among many communicators their turn may come late.
    void pump_held(int but = none) {
        if (arrivals_.are_held.load(memory_order::acquire)) pump_each(but, true);
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
        connecting opening; // of its connection
        bool waits = false; // the connection that was made here is not welcomed yet
    };
    static constexpr std::int64_t first_try_ns = 5'000'000;
    static constexpr int none = -1;

    [[gnu::cold]] void pump_each(int but, bool only_held) {
        int peers = 0;
        {
            const lock_tried here(lock_);
            if (!here) return;
            peers = static_cast<int>(ways_.size());
            arrivals_.are_held.store(false, memory_order::release); // pump() says it again of those that are left
        }
        for (int p = 0; p < peers; ++p)
            if (p != but) pump(p, only_held);
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
        w.opening = {};
        w.waits = false;
        if (is_patient) w.opening.put_off(first_try_ns); // the higher rank mostly connects by itself
        if (!is_in(opening_, w.peer)) opening_.push_back(w.peer);
        is_opening_.store(true, memory_order::release);
    }
    // True when the trunk is open or lost.
    template <class Hub>
    bool step(way& w, Hub& hub, int me) {
        if (w.opening.is_under_way()) end_attempt(w, hub, me, w.opening.move());
        else if (w.waits) wait(w);
        else if (w.to->state() == trunk::phase::closed && w.opening.is_due() && hub.knows(w.peer)) connect(w, hub, me);
        const trunk::phase now = w.to->state();
        if (now == trunk::phase::open) watch(w);
        return now == trunk::phase::open || now == trunk::phase::lost;
    }
    void wait(way& w) {
        w.to->pump();
        const trunk::phase now = w.to->state();
        w.waits = now == trunk::phase::waiting;
        if (now != trunk::phase::closed) return;
        if (const int error = w.to->error(); !w.opening.try_again(attempt_after(error), true)) w.to->lose(error);
    }
    template <class Hub>
    void connect(way& w, Hub& hub, int me) {
        stream_hello h = hub.hello(name, me, w.peer, {});
        h.attempt = w.to->generation();
        end_attempt(w, hub, me, w.opening.begin(hub, w.peer, h));
    }
    template <class Hub>
    void end_attempt(way& w, Hub& hub, int me, attempt how) {
        if (how == attempt::not_yet) return;
        int error = w.opening.error();
        if (how == attempt::done) {
            auto [socket, sealed] = w.opening.take(hub);
            w.waits = w.peer > me;
            w.to->open(std::move(socket), w.waits, false, std::move(sealed));
        } else if (how == attempt::insecure) {
            w.to->lose(EBADMSG);
        } else if (how == attempt::lacking) {
            if (would_block(error)) error = ENOSPC; // no memory, whose errno a line takes for "nothing has come yet"
            w.to->lose(error);
        } else if (!w.opening.try_again(how, w.peer > me)) {
            w.to->lose(error);
        }
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
        const bool is_ours_begun = w.opening.is_under_way() || now == trunk::phase::waiting;
        if (h.attempt < w.to->generation() || now == trunk::phase::open || now == trunk::phase::lost ||
            (is_ours_begun && h.from < me))
            return; // our connection stays
        w.opening.stop();
        w.to->drop();
        w.to->open(std::move(g.socket), false, h.from < me, hub.sealed(g));
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
    int me_ = none;                     // in the job
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
