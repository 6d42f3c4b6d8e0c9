// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The connections of a survivor to the others while they agree on who continues (remote_survivors.hpp). They are new,
// one per rank, because those of the old communicator may be cut in the middle of a message. If the job has a key, they
// begin with its proof.
//
// A rank is gone when its host refuses connections to it, when the kernel of this host says so, or when its host does
// not answer for half of the time limit.
#pragma once

#include <cstring>
#include <utility>

#include <collx/bootstrap/rendezvous.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/system_limits.hpp>
#include <collx/job/survival_word.hpp>
#include <collx/job/survivors.hpp>
#include <collx/transport/socket_connector.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class survivor_links {
public:
    using members = detail::growing_array<std::uint64_t>; // a bit per rank
    using kind = survival_word::kind;
    struct heard {
        survival_word word;
        members bits;
    };

    // patience_ns: how long a host may be silent.
    survivor_links(communicator_core& c, std::uint32_t round, std::int64_t patience_ns)
        : core_(&c), hub_(hub_of(*c.home->connector, c.net.rank())), n_(c.net.size()), me_(c.net.rank()),
          links_(static_cast<std::size_t>(n_)), meeting_(c.id, n_, round), patience_ns_(patience_ns) {}
    survivor_links(const survivor_links&) = delete;

    socket_hub& hub() { return *hub_; }
    members none() const { return members((static_cast<std::size_t>(n_) + 63) / 64); }
    // Ends the use of the old communicator: no connect(), is_gone(), ask() or probe() from here on.
    void leave_core() { core_ = nullptr; }

    // ------------------------------------------------------------------ connections
    // Connects to rank r. False when no rank listens there any more.
    [[gnu::cold]] bool connect(int r) {
        link& l = at(r);
        l.connected_ns = now_ns();
        if (l.connection && means_gone(attempt_after(l.connection->error()))) return false;
        stream_hello h = hub_->hello(meeting_.id, me_, r, meeting_.shape);
        h.from_side = stream_hello::side::higher; // no rank waits for a welcome here
        return end_attempt(r, l.opening.begin(*hub_, job_rank(r), h));
    }
    // Takes connections that came, and calls f(rank) for each. The latest one of a rank counts: an earlier one was cut
    // or given up. Returns what socket_hub::look() does.
    template <class F>
    [[gnu::cold]] int accept(F&& f) {
        return hub_->look(meeting_.id, [&](const stream_hello& h, descriptor s, sole_ptr<wire_layer> sealed) {
            if (h.from < 0 || h.from >= n_ || h.from == me_ || h.to != me_ ||
                h.slot_bytes != meeting_.shape.slot_bytes ||
                h.depth != static_cast<std::uint32_t>(meeting_.shape.depth))
                return;
            at(h.from).opening.stop(); // that rank has connected itself
            open(h.from, std::move(s), std::move(sealed));
            f(h.from);
        });
    }
    // True once for each connection that this rank has made and that is open now.
    bool take_new(int r) { return std::exchange(at(r).is_new, false); }
    [[gnu::cold]] bool move(int r) {
        link& l = at(r);
        if (!l.opening.is_under_way()) {
            const bool moved = l.connection && l.connection->is_live() && l.connection->move();
            if (moved && l.connection->heard_failure() != 0) l.is_gone = true; // see socket_hub
            return moved;
        }
        const attempt how = l.opening.move();
        if (how != attempt::not_yet) l.is_gone = !end_attempt(r, how);
        return how != attempt::not_yet;
    }
    bool is_begun(int r) { return at(r).opening.is_under_way() || at(r).connection; }
    bool is_open(int r) { return static_cast<bool>(at(r).connection); } // it may have ended since
    bool is_live(int r) { return at(r).connection && at(r).connection->is_live(); }
    bool is_connected(int r) { return at(r).opening.is_under_way() || is_live(r); }
    void drop(int r) { at(r).connection = nullptr; }
    void close(int r) { at(r).connection->close(); }
    // Says goodbye. The hub goes on sending what the system has not taken yet.
    void part(int r) {
        link& l = at(r);
        if (!l.connection) return;
        l.connection->say_bye();
        (void)l.connection->move();
        if (l.connection->is_live()) hub_->linger(std::move(l.connection));
        l.connection = nullptr;
    }
    void part_all() {
        for (int r = 0; r < n_; ++r) part(r);
    }

    // ------------------------------------------------------------------ words
    [[gnu::cold]] void say(int r, kind what, int ballot, const members& bits, int about = -1) {
        link& l = at(r);
        if (!is_live(r)) return;
        std::byte* slot = l.tx.try_acquire(word_bytes());
        if (slot == nullptr) return l.connection->close(); // the rank asks again and again and reads nothing
        const survival_word w{what, ballot, about};
        std::memcpy(slot, &w, sizeof w);
        std::memcpy(slot + sizeof w, bits.data(), bits_bytes());
        l.tx.commit(word_bytes(), survival_word::tag);
        (void)l.connection->move();
    }
    // True with the next message of a rank. A message that no survivor sends ends the connection.
    [[gnu::cold]] bool hear(int r, heard& h) {
        link& l = at(r);
        if (!l.connection || !l.rx.has_message()) return false;
        if (!l.rx.is_expected(word_bytes(), survival_word::tag)) {
            l.connection->close();
            return false;
        }
        const std::byte* slot = l.rx.peek(word_bytes());
        std::memcpy(&h.word, slot, sizeof h.word);
        h.bits = none();
        std::memcpy(h.bits.data(), slot + sizeof h.word, bits_bytes());
        l.rx.release(word_bytes());
        const survival_word& w = h.word;
        if (w.ballot < 0 || w.ballot > n_ || w.rank < -1 || w.rank >= n_) {
            l.connection->close();
            return false;
        }
        return true;
    }

    // ------------------------------------------------------------------ who is gone
    // Ranks of this host show at once that they are gone. Ranks of other hosts are checked at their listeners: probe().
    bool is_gone(int r) {
        link& l = at(r);
        if (!l.is_gone) l.is_gone = core_->home->is_gone(job_rank(r));
        return l.is_gone;
    }
    bool is_known_gone(int r) { return at(r).is_gone; }
    void set_gone(int r, bool is_gone = true) { at(r).is_gone = is_gone; }
    // Whether neither the rank nor its host has answered for longer than the patience.
    bool is_silent(int r, std::int64_t now) {
        link& l = at(r);
        if (is_established(r)) {
            l.silent_since_ns = 0;
            return false;
        }
        if (l.silent_since_ns == 0) l.silent_since_ns = now;
        return now - l.silent_since_ns > patience_ns_;
    }
    bool is_silent_for(int r, std::int64_t now, std::int64_t ns) {
        return at(r).silent_since_ns != 0 && now - at(r).silent_since_ns > ns;
    }
    // Connects again, at intervals, to a rank that is not followed yet, because several hosts may be lost at once.
    void ask_to_connect(int r, std::int64_t now) {
        link& l = at(r);
        (void)move(r);
        if (l.is_gone || is_connected(r) || now - l.connected_ns < retry_ns) return void(is_silent(r, now));
        l.is_gone = is_gone(r) || !connect(r);
    }
    // Connects to a rank that has not come for a while, since `begun_ns` or since the last attempt.
    void ask(int r, std::int64_t now, std::int64_t begun_ns) {
        link& l = at(r);
        const std::int64_t asked_ns = l.connected_ns != 0 ? l.connected_ns : begun_ns;
        if (!is_connected(r) && now - asked_ns > retry_ns) l.is_gone = !connect(r);
    }
    void probe(int r, std::int64_t now) {
        link& l = at(r);
        if (!l.is_gone)
            l.is_gone = l.listener.ask(*hub_, job_rank(r), now, patience_ns_) == listener_probe::answer::closed;
    }
    [[noreturn, gnu::cold]] void fail_full(int reason) const {
        fail(errc::resource, me_, -1, remedy_for_descriptor(reason),
             "nothing is left for a connection to another rank; shrink() may be called again");
    }

private:
    static constexpr std::int64_t retry_ns = 64'000'000;
    struct link {
        connecting opening; // becomes the connection
        sole_ptr<stream> connection;
        sending_end tx;
        receiving_end rx;
        listener_probe listener;
        std::int64_t connected_ns = 0, silent_since_ns = 0;
        bool is_gone = false, is_new = false;
    };

    link& at(int r) { return links_[r]; }
    std::size_t word_bytes() const { return meeting_of_survivors::message_bytes(n_); }
    std::size_t bits_bytes() const { return word_bytes() - sizeof(survival_word); }
    int job_rank(int r) const { return core_->members[r]; }

    [[gnu::cold]] void open(int r, descriptor socket, sole_ptr<wire_layer> sealed) {
        link& l = at(r);
        l.connection = make_sole<stream>(hub_->calls(), meeting_.shape, 1);
        l.tx = l.connection->tx(0);
        l.rx = l.connection->rx(0);
        l.connection->open(std::move(socket), false, std::move(sealed));
        l.is_new = false;
    }
    // False when no rank listens there any more.
    [[gnu::cold]] bool end_attempt(int r, attempt how) {
        link& l = at(r);
        if (how == attempt::lacking) fail_full(l.opening.error()); // this says nothing about the other rank
        if (how == attempt::insecure)
            fail(errc::security, me_, r, security_remedy, "rank %d did not prove to have this job's key", r);
        if (how == attempt::done) {
            auto [socket, sealed] = l.opening.take(*hub_);
            open(r, std::move(socket), std::move(sealed));
            l.is_new = true;
        }
        return !means_gone(how);
    }
    bool is_established(int r) {
        if (!is_connected(r)) return false;
        const int fd = at(r).opening.is_under_way() ? at(r).opening.fd() : at(r).connection->fd();
        return socket_address::of_peer(fd).bytes != 0;
    }

    communicator_core* core_; // until leave_core()
    counted_ptr<socket_hub> hub_;
    int n_, me_;
    growing_array<link> links_;
    meeting_of_survivors meeting_;
    std::int64_t patience_ns_;
};

} // namespace detail

COLLX_END_NAMESPACE
