// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How survivors on several hosts agree on who goes on. The lowest rank whose listener still answers hears all others,
// and proposes; when all who live have accepted, it confirms to them that this holds. A rank that takes over when it
// dies proposes what it has accepted or heard that others have, so what one rank has gone on with, all go on with.
// Takes new connections (those of the old communicator may be cut in the middle of a word), one per rank.
//
//   rank → coordinator: here (what I accepted before), accept
//   coordinator → rank: waits (for whom), propose, commit, late or out
//
// Who has heard that it holds goes on, and answers all who still ask: ranks that follow it, and a coordinator that
// waits for it. The coordinator before may have died when it had told only some.
//
// A rank is gone when its host refuses connections for it, when the kernel of this host says so, or when its host does
// not answer for half of the time limit. A network that falls apart makes two communicators of one. Ranks come at their
// own times and so lose patience at their own times: each names whom the coordinator said that it waits for.
#pragma once

#include <cstring>
#include <utility>

#include <collx/bootstrap/rendezvous.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/job/survival_word.hpp>
#include <collx/job/survivors.hpp>
#include <collx/transport/socket_connector.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class remote_survivors final : public kept, helped {
public:
    using members = detail::growing_array<std::uint64_t>; // a bit per rank

    remote_survivors(communicator_core& c, std::uint32_t round)
        : core_(&c), hub_(hub_of(*c.home->connector, c.net.rank())), n_(c.net.size()), me_(c.net.rank()),
          peers_(static_cast<std::size_t>(n_)), shape_{.depth = 8, .slot_bytes = round_up(word_bytes(), page_bytes)},
          limit_ns_(c.settings.timeout_ns < INT64_MAX / 2 ? c.settings.timeout_ns : INT64_MAX / 2),
          begun_ns_(now_ns()) {
        const std::uint64_t origin[] = {c.id, round};
        id_ = far_members::id_of(hash_bytes(reinterpret_cast<const char*>(origin), sizeof origin, 13), false);
    }
    remote_survivors(const remote_survivors&) = delete;
    ~remote_survivors() override {
        if (is_decided_) hub_->helpers().leave(name_);
    }

    // Those who go on. Errors: timeout naming a rank that lives and does not come · peer_failed when the others went on
    // without this one.
    [[gnu::cold]] const members& agree() {
        for (int k = 0; k < me_ && !is_decided_; ++k)
            if (follow(k)) is_decided_ = true;
        if (!is_decided_) coordinate(), is_decided_ = true;
        core_ = nullptr;
        part_all();
        name_ = hub_->helpers().enter(*this); // those who did not hear the end from the coordinator may hear it from us
        return decided_;
    }
    static bool is_in(const members& m, int r) {
        return (m[static_cast<std::size_t>(r) / 64] >> (static_cast<unsigned>(r) % 64) & 1) != 0;
    }

private:
    using kind = survival_word::kind;
    struct peer {
        sole_ptr<greeting> proof; // on its way to become the connection
        sole_ptr<stream> connection;
        sending_end tx;
        receiving_end rx;
        listener_probe listener;
        std::int64_t connected_ns = 0, silent_since_ns = 0;
        int ballot = 0; // of what it had accepted when it came
        members accepted;
        int told = -1; // for whom it knows that all wait
        bool is_gone = false, has_come = false, was_asked = false, has_accepted = false;
        bool came_once = false;
    };
    struct heard {
        survival_word word;
        members bits;
    };

    peer& at(int r) { return peers_[static_cast<std::size_t>(r)]; }
    std::size_t bits_bytes() const { return (static_cast<std::size_t>(n_) + 63) / 64 * sizeof(std::uint64_t); }
    std::size_t word_bytes() const { return sizeof(survival_word) + bits_bytes(); }
    members none() const { return members((static_cast<std::size_t>(n_) + 63) / 64); }
    static void add(members& m, int r) {
        m[static_cast<std::size_t>(r) / 64] |= std::uint64_t{1} << (static_cast<unsigned>(r) % 64);
    }

    // ------------------------------------------------------------------ words
    [[gnu::cold]] void open(int r, descriptor socket, const stream_hello* hello, const secret& session = {}) {
        peer& p = at(r);
        p.connection = make_sole<stream>(hub_->calls(), shape_, 1);
        p.tx = p.connection->tx(0);
        p.rx = p.connection->rx(0);
        p.connection->open(std::move(socket), hello, false,
                           seal_connection(hub_->protected_by().level, session, r < me_, hub_->calls()));
        p.has_come = p.was_asked = false, p.told = -1;
    }
    [[gnu::cold]] void say(int r, kind what, int ballot, const members& bits, int about = -1) {
        peer& p = at(r);
        if (!p.connection || !p.connection->is_live()) return;
        std::byte* slot = p.tx.try_acquire(word_bytes());
        if (slot == nullptr) return p.connection->close(); // it asks again and again and reads nothing
        const survival_word w{what, ballot, about};
        std::memcpy(slot, &w, sizeof w);
        std::memcpy(slot + sizeof w, bits.data(), bits_bytes());
        p.tx.commit(word_bytes(), survival_word::tag);
        (void)p.connection->move();
    }
    // True with the next word of a rank. What no survivor says ends its connection.
    [[gnu::cold]] bool hear(int r, heard& h) {
        peer& p = at(r);
        if (!p.connection || !p.rx.has_message()) return false;
        if (!p.rx.is_expected(word_bytes(), survival_word::tag)) return p.connection->close(), false;
        const std::byte* slot = p.rx.peek(word_bytes());
        std::memcpy(&h.word, slot, sizeof h.word);
        h.bits = none();
        std::memcpy(h.bits.data(), slot + sizeof h.word, bits_bytes());
        p.rx.release(word_bytes());
        const survival_word& w = h.word;
        if (w.ballot < 0 || w.ballot > n_ || w.rank < -1 || w.rank >= n_) return p.connection->close(), false;
        return true;
    }
    [[gnu::cold]] bool move(int r) {
        peer& p = at(r);
        if (p.proof) return greet(r);
        return p.connection && p.connection->is_live() && p.connection->move();
    }
    [[gnu::cold]] bool greet(int k) {
        peer& p = at(k);
        const greeted how = p.proof->move();
        if (how == greeted::not_yet) return false;
        const auto proof = std::move(p.proof);
        if (how == greeted::insecure)
            fail(errc::security, me_, k, security_remedy, "rank %d did not prove to have this job's key", k);
        p.is_gone = how == greeted::gone && listener_probe::is_closed_by(proof->error());
        if (how == greeted::done) open(k, proof->release_socket(), nullptr, proof->session()), say_here(k);
        return true;
    }
    bool is_connected(int r) { return at(r).proof || (at(r).connection && at(r).connection->is_live()); }

    // What ranks of this host see at once; those of others are asked for at their listeners.
    bool is_gone(int r) {
        peer& p = at(r);
        if (!p.is_gone) p.is_gone = core_->home->is_gone(job_rank(r));
        return p.is_gone;
    }
    int job_rank(int r) const { return core_->members[static_cast<std::size_t>(r)]; }
    std::int64_t patience_ns() const { return limit_ns_ / 2; }
    [[noreturn, gnu::cold]] void fail_late(int late) const {
        fail(errc::timeout, me_, late, "all ranks that live must call shrink()",
             "rank %d lives, but did not come to shrink the communicator", late);
    }

    [[noreturn, gnu::cold]] void fail_full() const {
        fail(errc::resource, me_, -1, "raise the limit of open files (ulimit -n), and call shrink() again",
             "no descriptor is left for a connection to another rank");
    }

    // ------------------------------------------------------------------ following
    // True when rank k has said what holds; false when it is gone.
    [[gnu::cold]] bool follow(int k) {
        backoff wait(core_->settings.waiting);
        // Well within the patience: who is not asked cannot answer.
        const std::int64_t most_ns = patience_ns() / 8 < 64'000'000 ? patience_ns() / 8 : 64'000'000;
        std::int64_t connect_at_ns = 0, pause_ns = most_ns < 1'000'000 ? most_ns : 1'000'000;
        missing_ = k;
        for (heard h;;) {
            bool moved = move(k);
            for (; hear(k, h); moved = true)
                if (obey(k, h)) return true;
            if (!is_connected(k) && now_ns() >= connect_at_ns) {
                if (at(k).is_gone || is_gone(k) || !connect(k)) return at(k).is_gone = true, false;
                connect_at_ns = now_ns() + pause_ns;
                pause_ns = 2 * pause_ns < most_ns ? 2 * pause_ns : most_ns;
            }
            moved = core_->net.move() || moved;
            if (moved) wait.reset();
            if (moved || !wait.pause()) continue;
            if (is_gone(k)) return false;
            const std::int64_t now = now_ns();
            if (is_silent(k, now)) return at(k).is_gone = true, false;
            if (at(k).silent_since_ns != 0 && now - at(k).silent_since_ns > patience_ns() / 8)
                for (int r = k + 1; r < me_; ++r) knock(r, now); // hosts may be lost together
            // Later than a coordinator that came at the same time.
            if (now - begun_ns_ > limit_ns_ + limit_ns_ / 8) fail_late(missing_);
        }
    }
    // Neither the rank nor its host has answered for so long.
    bool is_silent(int k, std::int64_t now) {
        peer& p = at(k);
        if (is_established(k)) return p.silent_since_ns = 0, false;
        if (p.silent_since_ns == 0) p.silent_since_ns = now;
        return now - p.silent_since_ns > patience_ns();
    }
    void knock(int r, std::int64_t now) {
        peer& p = at(r);
        (void)move(r);
        if (p.is_gone || is_connected(r) || now - p.connected_ns < 64'000'000) return void(is_silent(r, now));
        p.is_gone = is_gone(r) || !connect(r);
    }
    // False when no rank listens there any more.
    [[gnu::cold]] bool connect(int k) {
        peer& p = at(k);
        p.connected_ns = now_ns();
        if (p.connection && listener_probe::is_closed_by(p.connection->error())) return false;
        descriptor s = hub_->connect_to(job_rank(k));
        if (!s.is_open() && (errno == EMFILE || errno == ENFILE)) fail_full(); // that says nothing of the other rank
        if (!s.is_open()) return !listener_probe::is_closed_by(errno);
        stream_hello h = hub_->hello(id_, me_, k, shape_);
        h.from_side = stream_hello::side::higher; // no rank waits for a welcome here
        const job_protection& by = hub_->protected_by();
        if (by.key) return p.proof = make_sole<greeting>(std::move(s), h, by.key, hub_->calls()), true;
        return open(k, std::move(s), &h), say_here(k), true;
    }
    void say_here(int k) {
        say(k, kind::here, core_->accepted_ballot, core_->accepted_ballot != 0 ? core_->accepted_members : none());
    }
    bool is_established(int k) {
        if (!is_connected(k)) return false;
        sockaddr_storage a;
        socklen_t bytes = sizeof a;
        const int fd = at(k).proof ? at(k).proof->fd() : at(k).connection->fd();
        return ::getpeername(fd, reinterpret_cast<sockaddr*>(&a), &bytes) == 0;
    }
    // True when it is decided.
    bool obey(int k, const heard& h) {
        switch (h.word.what) {
            case kind::waits: return missing_ = h.word.rank < 0 ? k : h.word.rank, false;
            case kind::propose:
                core_->accepted_ballot = h.word.ballot;
                core_->accepted_members = h.bits;
                say(k, kind::accept, h.word.ballot, h.bits);
                return false;
            case kind::commit: return decided_ = h.bits, true;
            case kind::late: // with the patience of the coordinator, which may come again while there is patience here
                missing_ = h.word.rank < 0 ? k : h.word.rank;
                if (now_ns() - begun_ns_ > limit_ns_ / 2) fail_late(missing_);
                return false;
            case kind::out: fail_left_out(me_);
            default: at(k).connection->close(); return false;
        }
    }

    // ------------------------------------------------------------------ coordinating
    [[gnu::cold]] void coordinate() {
        members proposal;
        backoff wait(core_->settings.waiting);
        for (;;) {
            bool moved = take_guests();
            int missing = -1;
            for (int r = 0; r < n_; ++r) {
                if (r == me_) continue;
                moved = attend(r, proposal) || moved;
                const peer& p = at(r);
                const bool is_done = proposal.empty() ? p.has_come : !is_in(proposal, r) || p.has_accepted;
                if (!is_done && !p.is_gone && missing < 0) missing = r;
            }
            if (is_decided_ || (missing < 0 && !proposal.empty())) break;
            if (missing < 0) propose(proposal);
            moved = core_->net.move() || moved || missing < 0;
            if (moved) wait.reset();
            else if (wait.pause()) look_for(missing, proposal);
        }
        if (!is_decided_) decided_ = proposal;
        for (int r = 0; r < n_; ++r)
            if (r != me_ && at(r).has_come) say(r, is_in(decided_, r) ? kind::commit : kind::out, me_ + 1, decided_);
    }
    // The connection that came last counts: an earlier one was cut or given up.
    [[gnu::cold]] bool take_guests() {
        bool came = false;
        const bool has_room = hub_->look(id_, [&](const stream_hello& h, descriptor s, const secret& session) {
            if (h.from < 0 || h.from >= n_ || h.from == me_ || h.to != me_ || h.slot_bytes != shape_.slot_bytes ||
                h.depth != static_cast<std::uint32_t>(shape_.depth))
                return;
            at(h.from).proof = nullptr; // it comes by itself
            open(h.from, std::move(s), nullptr, session);
            came = true;
        });
        if (!has_room && !is_decided_) fail_full();
        return came;
    }
    [[gnu::cold]] bool attend(int r, const members& proposal) {
        peer& p = at(r);
        if (!p.connection && !p.proof) return false;
        bool moved = move(r);
        if (!p.connection) return moved;
        for (heard h; hear(r, h); moved = true) {
            if (h.word.what == kind::here) {
                p.has_come = p.came_once = true;
                p.is_gone = false;
                p.ballot = h.word.ballot;
                p.accepted = std::move(h.bits);
            } else if (h.word.what == kind::accept && h.word.ballot == me_ + 1) {
                p.has_accepted = true;
            } else if (h.word.what == kind::commit || h.word.what == kind::out) { // it was asked, and has gone on
                if (!is_in(h.bits, me_)) fail_left_out(me_);
                decided_ = h.bits, is_decided_ = true;
                return true;
            }
        }
        if (!p.connection->is_live()) return p.connection = nullptr, p.has_come = p.was_asked = false, true;
        if (!p.has_come || p.was_asked || proposal.empty()) return moved;
        p.was_asked = true;
        say(r, is_in(proposal, r) ? kind::propose : kind::out, me_ + 1, proposal);
        return true;
    }
    [[gnu::cold]] void propose(members& proposal) {
        int ballot = core_->accepted_ballot;
        proposal = ballot != 0 ? core_->accepted_members : none();
        for (int r = 0; r < n_; ++r) {
            peer& p = at(r);
            if (r == me_ || !p.has_come || p.ballot <= ballot) continue;
            ballot = p.ballot;
            proposal = p.accepted;
        }
        for (int r = 0; ballot == 0 && r < n_; ++r)
            if (r == me_ || at(r).has_come) add(proposal, r);
        core_->accepted_ballot = me_ + 1;
        core_->accepted_members = proposal;
    }
    // A rank that does not come may have gone on: it answers then. One that has not does not look, and comes by itself.
    void ask(int r, std::int64_t now) {
        peer& p = at(r);
        const std::int64_t asked_ns = p.connected_ns != 0 ? p.connected_ns : begun_ns_;
        if (!is_connected(r) && now - asked_ns > 64'000'000) p.is_gone = !connect(r);
    }
    [[gnu::cold]] void look_for(int missing, const members& proposal) {
        const std::int64_t now = now_ns();
        for (int r = missing; r < n_; ++r) {
            peer& p = at(r);
            if (r == me_ || p.is_gone || p.has_come || is_gone(r)) continue;
            if (r > me_) ask(r, now);
            if (!p.is_gone)
                p.is_gone = p.listener.ask(*hub_, job_rank(r), now, patience_ns()) == listener_probe::answer::closed;
        }
        // A rank that came once and left again has lost patience with another one.
        for (int r = n_ - 1; r >= 0 && proposal.empty(); --r)
            if (const peer& p = at(r); r != me_ && !p.is_gone && !p.came_once) missing = r;
        if (now - begun_ns_ > limit_ns_) {
            tell(kind::late, missing, proposal);
            part_all();
            fail_late(missing);
        }
        if (now - told_ns_ < limit_ns_ / 32) return;
        told_ns_ = now;
        tell(kind::waits, missing, proposal);
    }
    [[gnu::cold]] void tell(kind what, int missing, const members& proposal) {
        for (int r = 0; r < n_; ++r) {
            peer& p = at(r);
            if (r == me_ || !p.has_come || (what == kind::waits && p.told == missing)) continue;
            p.told = missing;
            say(r, what, 0, proposal.empty() ? none() : proposal, missing);
        }
    }

    // ------------------------------------------------------------------ afterwards
    // Says goodbye. What the system has not taken yet goes on in the hub.
    void part(int r) {
        peer& p = at(r);
        if (!p.connection) return;
        p.connection->say_bye();
        (void)p.connection->move();
        if (p.connection->is_live()) hub_->linger(std::move(p.connection));
        p.connection = nullptr;
    }
    void part_all() {
        for (int r = 0; r < n_; ++r) part(r);
    }
    [[gnu::cold]] void help() override {
        const turn_tried here(turn_);
        if (!here) return;
        (void)take_guests();
        for (int r = 0; r < n_; ++r) {
            if (!at(r).connection) continue;
            (void)move(r);
            for (heard h; hear(r, h);)
                if (h.word.what == kind::here) {
                    say(r, is_in(decided_, r) ? kind::commit : kind::out, 0, decided_);
                    part(r);
                    break;
                }
            if (!is_connected(r)) at(r).connection = nullptr;
        }
    }

    communicator_core* core_; // until it is decided
    counted_ptr<socket_hub> hub_;
    int n_, me_;
    growing_array<peer> peers_;
    channel_shape shape_;
    std::uint64_t id_ = 0;
    std::int64_t limit_ns_, begun_ns_, told_ns_ = 0;
    int missing_ = -1; // for whom the coordinator waits, as far as it has said so
    members decided_;
    std::uint64_t name_ = 0; // as a helper
    bool is_decided_ = false;
    turn turn_;
};

[[gnu::cold]] COLLX_ONCE detail::growing_array<std::uint64_t>
agree_on_survivors(communicator_core& c, std::uint32_t round, sole_ptr<kept>& answers) {
    auto all = make_sole<remote_survivors>(c, round);
    auto chosen = all->agree();
    answers = std::move(all);
    return chosen;
}

} // namespace detail

COLLX_END_NAMESPACE
