// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How survivors on several hosts agree on who continues. The lowest rank whose listener still answers coordinates: it
// waits for all others and proposes the members. When all live ranks have accepted, it sends them the commit. If it
// dies, another rank takes over and proposes what it or others have accepted. So if one rank has continued with a
// proposal, all continue with it. The connections and messages are those of survivor_links.hpp.
//
//   rank → coordinator: here (with the proposal that it accepted before), accept
//   coordinator → rank: waits (for whom), propose, commit, late or out
//
// A rank that has received the commit continues. It answers all ranks that still ask: ranks that follow it, and a
// coordinator that waits for it. The previous coordinator may have died when it had notified only some ranks.
//
// A network that falls apart turns one communicator into two. Ranks come at different times and so time out at
// different times; each names the rank that the coordinator said it waits for.
#pragma once

#include <utility>

#include <collx/core/growing_array.hpp>
#include <collx/job/survivor_links.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class remote_survivors final : public job_attachment, helped {
public:
    using members = survivor_links::members;

    remote_survivors(communicator_core& c, std::uint32_t round)
        : core_(&c), n_(c.net.size()), me_(c.net.rank()), peers_(static_cast<std::size_t>(n_)),
          limit_ns_(c.settings.timeout_ns < INT64_MAX / 2 ? c.settings.timeout_ns : INT64_MAX / 2), begun_ns_(now_ns()),
          links_(c, round, patience_ns()) {}
    remote_survivors(const remote_survivors&) = delete;
    ~remote_survivors() override {
        if (is_decided_) links_.hub().helpers().leave(name_);
    }

    // Returns the ranks that continue, a bit per rank. Errors: timeout naming a rank that lives and does not come ·
    // peer_failed when the others continued without this one.
    [[gnu::cold]] const members& agree() {
        for (int k = 0; k < me_ && !is_decided_; ++k)
            if (follow(k)) is_decided_ = true;
            else end_core(k);
        if (!is_decided_) {
            coordinate();
            is_decided_ = true;
        }
        core_ = nullptr;
        links_.leave_core();
        links_.part_all();
        // Ranks that did not get the commit from the coordinator may get it from this rank.
        name_ = links_.hub().helpers().enter(*this);
        return decided_;
    }
    static bool is_in(const members& m, int r) { return is_member(m.data(), r); }

private:
    using kind = survival_word::kind;
    using heard = survivor_links::heard;
    struct peer {
        int ballot = 0; // of the proposal that it had accepted when it came
        members accepted;
        int told = -1; // the missing rank that the last message to it named
        bool has_come = false, was_asked = false, has_accepted = false;
        bool came_once = false;
    };

    peer& at(int r) { return peers_[r]; }

    std::int64_t patience_ns() const { return limit_ns_ / 2; }

    // Ends the old communicator for a member that is in a call of it, waits for a rank that shrinks, and has no
    // connection to the rank that is gone.
    void end_core(int gone) {
        if (core_->net.failed()) return;
        core_->net.report(failure(errc::peer_failed, gone));
        core_->net.announce_failure();
    }

    // The rank that this one follows may wait for it in a call of the old communicator, without a connection to the
    // rank that died. No other rank would notify it, since only a coordinator looks for the dead.
    [[gnu::cold]] void look_for_the_dead(std::int64_t now) {
        for (int r = 0; r < n_ && !core_->net.failed(); ++r) {
            if (r == me_) continue;
            if (!links_.is_gone(r)) links_.probe(r, now);
            if (links_.is_known_gone(r)) end_core(r);
        }
    }

    // Sends `here` on a connection that this rank has made to rank r, as soon as it is open.
    void say_here(int r) {
        if (links_.take_new(r))
            links_.say(r, kind::here, core_->accepted_ballot,
                       core_->accepted_ballot != 0 ? core_->accepted_members : links_.none());
    }

    // ------------------------------------------------------------------ following
    // Follows rank k. True when rank k has sent the commit; false when it is gone.
    [[gnu::cold]] bool follow(int k) {
        backoff wait(core_->settings.waiting);
        // Well within the patience, because a rank that is not asked cannot answer.
        const std::int64_t most_ns = patience_ns() / 8 < 64'000'000 ? patience_ns() / 8 : 64'000'000;
        std::int64_t connect_at_ns = 0, pause_ns = most_ns < 1'000'000 ? most_ns : 1'000'000;
        missing_ = k;
        for (heard h;;) {
            bool moved = links_.move(k);
            for (; links_.hear(k, h); moved = true)
                if (obey(k, h)) return true;
            if (!links_.is_connected(k) && now_ns() >= connect_at_ns) {
                if (links_.is_gone(k) || !links_.connect(k)) {
                    links_.set_gone(k);
                    return false;
                }
                connect_at_ns = now_ns() + pause_ns;
                pause_ns = 2 * pause_ns < most_ns ? 2 * pause_ns : most_ns;
            }
            say_here(k);
            moved = core_->net.move() || moved;
            if (moved) wait.reset();
            if (moved || !wait.pause()) continue;
            links_.hub().serve(); // a rank that waits here may have to leave an earlier shrink() first
            if (links_.is_gone(k)) return false;
            const std::int64_t now = now_ns();
            look_for_the_dead(now);
            if (links_.is_silent(k, now)) {
                links_.set_gone(k);
                return false;
            }
            if (links_.is_silent_for(k, now, patience_ns() / 8))
                for (int r = k + 1; r < me_; ++r) { // several hosts may be lost at once
                    links_.ask_to_connect(r, now);
                    say_here(r);
                }
            // Times out later than a coordinator that came at the same time.
            if (now - begun_ns_ > limit_ns_ + limit_ns_ / 8) fail_late_to_shrink(me_, missing_);
        }
    }
    // Handles a message of rank k. True when it is the commit.
    bool obey(int k, const heard& h) {
        switch (h.word.what) {
            case kind::waits: missing_ = h.word.rank < 0 ? k : h.word.rank; return false;
            case kind::propose:
                core_->accepted_ballot = h.word.ballot;
                core_->accepted_members = h.bits;
                links_.say(k, kind::accept, h.word.ballot, h.bits);
                return false;
            case kind::commit: decided_ = h.bits; return true;
            case kind::late: // the coordinator has timed out; it may come again while this rank has time left
                missing_ = h.word.rank < 0 ? k : h.word.rank;
                if (now_ns() - begun_ns_ > limit_ns_ / 2) fail_late_to_shrink(me_, missing_);
                return false;
            case kind::out: fail_left_out(me_);
            default: links_.close(k); return false;
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
                if (links_.is_known_gone(r)) end_core(r);
                const bool is_done = proposal.empty() ? p.has_come : !is_in(proposal, r) || p.has_accepted;
                if (!is_done && !links_.is_known_gone(r) && missing < 0) missing = r;
            }
            if (is_decided_ || (missing < 0 && !proposal.empty())) break;
            if (missing < 0) propose(proposal);
            moved = core_->net.move() || moved || missing < 0;
            if (moved) wait.reset();
            if (moved || !wait.pause()) continue;
            links_.hub().serve();
            look_for(missing, proposal);
        }
        if (!is_decided_) decided_ = proposal;
        for (int r = 0; r < n_; ++r)
            if (r != me_ && at(r).has_come)
                links_.say(r, is_in(decided_, r) ? kind::commit : kind::out, me_ + 1, decided_);
    }
    [[gnu::cold]] bool take_guests() {
        bool came = false;
        const int refusal = links_.accept([&](int r) {
            at(r).has_come = at(r).was_asked = false;
            at(r).told = -1;
            came = true;
        });
        if (refusal != 0 && !is_decided_) links_.fail_full(refusal);
        return came;
    }
    [[gnu::cold]] bool attend(int r, const members& proposal) {
        if (!links_.is_begun(r)) return false;
        peer& p = at(r);
        bool moved = links_.move(r);
        say_here(r);
        if (!links_.is_open(r)) return moved;
        for (heard h; links_.hear(r, h); moved = true) {
            if (h.word.what == kind::here) {
                p.has_come = p.came_once = true;
                links_.set_gone(r, false);
                p.ballot = h.word.ballot;
                p.accepted = std::move(h.bits);
            } else if (h.word.what == kind::accept && h.word.ballot == me_ + 1) {
                p.has_accepted = true;
            } else if (h.word.what == kind::commit || h.word.what == kind::out) { // it was asked, and has continued
                if (!is_in(h.bits, me_)) fail_left_out(me_);
                decided_ = h.bits;
                is_decided_ = true;
                return true;
            }
        }
        if (!links_.is_live(r)) {
            links_.drop(r);
            p.has_come = p.was_asked = false;
            return true;
        }
        if (!p.has_come || p.was_asked || proposal.empty()) return moved;
        p.was_asked = true;
        links_.say(r, is_in(proposal, r) ? kind::propose : kind::out, me_ + 1, proposal);
        return true;
    }
    [[gnu::cold]] void propose(members& proposal) {
        int ballot = core_->accepted_ballot;
        proposal = ballot != 0 ? core_->accepted_members : links_.none();
        for (int r = 0; r < n_; ++r) {
            peer& p = at(r);
            if (r == me_ || !p.has_come || p.ballot <= ballot) continue;
            ballot = p.ballot;
            proposal = p.accepted;
        }
        for (int r = 0; ballot == 0 && r < n_; ++r)
            if (r == me_ || at(r).has_come) add_member(proposal.data(), r);
        core_->accepted_ballot = me_ + 1;
        core_->accepted_members = proposal;
    }
    [[gnu::cold]] void look_for(int missing, const members& proposal) {
        const std::int64_t now = now_ns();
        for (int r = missing; r < n_; ++r) {
            if (r == me_ || at(r).has_come || links_.is_gone(r)) continue;
            // If rank r has continued already, it answers. If not, it looks for no connections, and comes by itself.
            if (r > me_) {
                links_.ask(r, now, begun_ns_);
                say_here(r);
            }
            links_.probe(r, now);
        }
        // A rank that came once and left again has timed out waiting for another one.
        for (int r = n_ - 1; r >= 0 && proposal.empty(); --r)
            if (r != me_ && !links_.is_known_gone(r) && !at(r).came_once) missing = r;
        if (now - begun_ns_ > limit_ns_) {
            tell(kind::late, missing, proposal);
            links_.part_all();
            fail_late_to_shrink(me_, missing);
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
            links_.say(r, what, 0, proposal.empty() ? links_.none() : proposal, missing);
        }
    }

    // ------------------------------------------------------------------ afterwards
    [[gnu::cold]] void help() override {
        const lock_tried here(lock_);
        if (!here) return;
        (void)take_guests();
        for (int r = 0; r < n_; ++r) {
            if (!links_.is_open(r)) continue;
            (void)links_.move(r);
            for (heard h; links_.hear(r, h);)
                if (h.word.what == kind::here) {
                    links_.say(r, is_in(decided_, r) ? kind::commit : kind::out, 0, decided_);
                    links_.part(r);
                    break;
                }
            if (!links_.is_connected(r)) links_.drop(r);
        }
    }

    communicator_core* core_; // until it is decided
    int n_, me_;
    growing_array<peer> peers_;
    std::int64_t limit_ns_, begun_ns_, told_ns_ = 0;
    survivor_links links_;
    int missing_ = -1; // the rank that the coordinator waits for, as far as it has said so
    members decided_;
    std::uint64_t name_ = 0; // its number as a helper
    bool is_decided_ = false;
    yielding_lock lock_;
};

[[gnu::cold]] COLLX_ONCE detail::growing_array<std::uint64_t>
agree_on_survivors(communicator_core& c, std::uint32_t round, sole_ptr<job_attachment>& answers) {
    auto all = make_sole<remote_survivors>(c, round);
    auto chosen = all->agree();
    answers = std::move(all);
    return chosen;
}

} // namespace detail

COLLX_END_NAMESPACE
