// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a communicator says of its failure, in the error that a call throws. Part of every program, or compiled once in
// collx::collx.
#pragma once

#include <cstdio>
#include <cstring>

#include <collx/job/communicator_core.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// The sentences of one failure of a communicator.
class failure_text {
public:
    explicit failure_text(const communicator_core& c)
        : core_(c), me_(c.net.rank()), is_checked_(c.settings.checked != 0) {
        if (c.made_for != nullptr) std::snprintf(call_, sizeof call_, "%s", c.made_for);
        else if (c.calls() == 0) std::snprintf(call_, sizeof call_, "before the first call");
        else std::snprintf(call_, sizeof call_, "call %llu", static_cast<unsigned long long>(c.calls()));
    }

    // Where other ranks report a failure of this rank, it says what they report.
    [[noreturn, gnu::cold]] void say(failure f, int waiting_for) const {
        const int who = f.rank();
        if (f.is_circle()) circle(who);
        const bool is_mine = who == me_;
        switch (f.code()) {
            case errc::peer_failed:
                if (is_mine)
                    others(f, "took this rank for dead",
                           "its connections broke or its process was taken for another; shrink() of the others leaves "
                           "it out");
                rank(f, "has ended", "see its output; shrink() makes a communicator of the survivors");
            case errc::timeout: out_of_time(f);
            case errc::aborted:
                rank(f, "aborted the communicator",
                     is_mine ? "by abort(), a handle or group it dropped, an operator that threw or no memory"
                             : "by abort(), a handle or group it dropped, an operator that threw or no memory; "
                               "shrink() makes a new communicator");
            case errc::mismatch:
                if (is_mine)
                    others(f,
                           "report that the part of this rank has another size than this call expects, or is of "
                           "another call",
                           remedy_of_mismatch());
                differing_part(who, who < 0 ? waiting_for : who);
            case errc::resource: rank(f, lack_there(f.short_of()), remedy_there(f.short_of()));
            case errc::unsupported:
                if (is_mine) break;
                fail(errc::unsupported, me_, who,
                     "drop the attach policy, or allow process_vm_readv (ptrace scope, container capabilities)",
                     "%s: cannot read the memory of rank %d", call_, who);
            case errc::security: {
                const char* const remedy = "give all ranks the same key and COLLX_SECURITY; see docs/security.md";
                if (is_mine)
                    others(f,
                           "refused this rank: it did not prove to have the job's key, or its bytes were changed on "
                           "the way",
                           remedy);
                rank(f, "did not prove to have this job's key, or its bytes were changed on the way", remedy);
            }
            case errc::protocol: {
                const char* const remedy = "are all ranks the same program, built with the same version of collx?";
                if (is_mine) others(f, "refused what this rank sent", remedy);
                rank(f, "sent what this call does not allow", remedy);
            }
            default:
                if (!is_mine) rank(f, "failed", "see the output of that rank");
        }
        others(f, "reported a failure of this rank", "see what this rank printed before, and their output");
    }

private:
    [[noreturn, gnu::cold]] void rank(failure f, const char* what, const char* remedy) const {
        if (f.rank() == me_) fail(f.code(), me_, me_, remedy, "%s: this rank %s", call_, what);
        fail(f.code(), me_, f.rank(), remedy, "%s: rank %d %s", call_, f.rank(), what);
    }
    [[noreturn, gnu::cold]] void others(failure f, const char* what, const char* remedy) const {
        fail(f.code(), me_, me_, remedy, "%s: other ranks %s", call_, what);
    }

    [[noreturn, gnu::cold]] void out_of_time(failure f) const {
        const int who = f.rank();
        if (who == me_)
            others(f, "gave up waiting for this rank",
                   is_checked_ ? "was it busy, stopped or in another call? set_timeout() waits longer"
                               : "was it busy, stopped or in another call? set_checked(true) compares calls; "
                                 "set_timeout() waits longer");
        if (who < 0)
            fail(errc::timeout, me_, who,
                 is_checked_ ? "is every rank in this call? set_timeout() waits longer"
                             : "is every rank in the same call? set_checked(true) names the odd one",
                 "%s: timed out waiting for several ranks", call_);
        fail(errc::timeout, me_, who, remedy_of_timeout(), "%s: timed out waiting for rank %d", call_, who);
    }
    // guilty: the rank whose part it is; who: the error's peer.
    [[noreturn, gnu::cold]] void differing_part(int who, int guilty) const {
        const char* const remedy = remedy_of_mismatch();
        const odd_message& m = core_.net.refused();
        if (m.peer != guilty || m.peer < 0)
            fail(errc::mismatch, me_, who, remedy,
                 "%s: the part of rank %d has another size than this call expects, or is of another call", call_,
                 guilty);
        if (m.came == odd_message::unknown)
            fail(errc::mismatch, me_, who, remedy,
                 "%s: the part of rank %d is not the %zu bytes that this call expects, or is of another type, or of "
                 "another call",
                 call_, guilty, m.expected);
        if (m.whole != m.expected)
            fail(errc::mismatch, me_, who, remedy,
                 "%s: the part of rank %d has another size than this call expects, or is of another type, or of "
                 "another call: a message of %zu bytes came, of the %zu bytes in messages of %zu that are expected",
                 call_, guilty, m.came, m.whole, m.expected);
        if (m.came != m.expected)
            fail(errc::mismatch, me_, who, remedy,
                 "%s: the part of rank %d has another size than this call expects: a message of %zu bytes instead of "
                 "%zu",
                 call_, guilty, m.came, m.expected);
        fail(errc::mismatch, me_, who, remedy,
             "%s: the part of rank %d has the %zu bytes that this call expects, but is of another type or count, or "
             "of another call",
             call_, guilty, m.came);
    }

    // Prints the circle from its lowest rank on, so that all ranks say the same; of ranks on other hosts what is known.
    [[noreturn, gnu::cold]] void circle(int of_rank) const {
        const waiting_words words = core_.net.waits();
        const auto next = [&](int r) { return words.of(r).peer(); };
        int first = of_rank, ranks = 1, r = next(of_rank);
        bool sends = words.of(of_rank).what() == awaited::why::room, has_me = of_rank == me_;
        for (; r >= 0 && r != of_rank && ranks <= core_.net.size(); r = next(r), ++ranks) {
            first = r < first ? r : first;
            has_me |= r == me_;
            sends &= words.of(r).what() == awaited::why::room;
        }
        const bool is_closed = r == of_rank;
        if (is_closed && ranks == 1)
            fail(errc::timeout, me_, of_rank, "use sendrecv() or async::send() for what a rank sends to itself",
                 "%s: rank %d waits for itself: it %s", call_, of_rank,
                 sends ? "sends before it receives" : "receives before it sends");
        if (!is_closed) first = of_rank;
        char text[200];
        int used = std::snprintf(text, sizeof text, "%d", first);
        const auto room = static_cast<int>(sizeof text) - 40;
        int said = 1;
        for (r = next(first); r >= 0 && said < ranks && used < room; r = next(r), ++said)
            used += std::snprintf(text + used, sizeof text - static_cast<std::size_t>(used), " -> %d", r);
        if (said < ranks || !is_closed)
            used += std::snprintf(text + used, sizeof text - static_cast<std::size_t>(used), " -> ...");
        std::snprintf(text + used, sizeof text - static_cast<std::size_t>(used), " -> %d", first);
        const int peer = has_me && next(me_) >= 0 ? next(me_) : of_rank == me_ ? -1 : of_rank;
        const bool all_send = sends && is_closed;
        fail(errc::timeout, me_, peer,
             all_send       ? "let one of them receive first, or use sendrecv() or async::send()"
             : exchanging() ? remedy_of_exchange
             : is_checked_
                 ? "is every rank in the same call, in the same order, and does each compare calls (set_checked, "
                   "NDEBUG)?"
                 : "is every rank in the same call, in the same order? set_checked(true) on all ranks compares calls",
             "%s: ranks %s wait for each other%s", call_, text, all_send ? ": each sends before it receives" : "");
    }

    // Messages between two ranks are not compared before they are sent, so checked mode has this error, too.
    const char* remedy_of_mismatch() const {
        return is_checked_
                   ? "this call, or one before it, differs between the ranks: in order, root, counts, type or operator"
                   : "this call, or one before it, differs between the ranks: in order, root, counts, type or "
                     "operator; set_checked(true) names the first that does";
    }

    // What to do about a rank that does not come.
    const char* remedy_of_timeout() const {
        if (core_.made_for != nullptr && std::strcmp(core_.made_for, communicator_core::of_device_window) == 0)
            return "is it alive, and does it make this call of the device window? set_timeout() of the window waits "
                   "longer";
        if (core_.made_for != nullptr)
            return "is it alive, and does it call this window, progress() of it, or serve it by "
                   "with(progress::thread{})? set_timeout() waits longer";
        if (!core_.pending.empty())
            return "is it alive, and does it wait for this communicator's calls? Where calls of several communicators "
                   "are under way, wait_all() moves all of them; set_timeout() waits longer";
        if (exchanging()) return remedy_of_exchange;
        return is_checked_
                   ? "is it alive and in this call? set_timeout() waits longer"
                   : "is it alive and in the same call? set_checked(true) compares calls; set_timeout() waits longer";
    }
    // Whether another rank of this host waits in an exchange that this rank does not make.
    bool exchanging() const {
        const std::uint64_t i = core_.exchanges;
        for (int r = 0; core_.net.is_one_host() && r < core_.net.size(); ++r)
            if (r != me_ &&
                signal_word::has_reached(core_.exchange_window.line(r, 0, i).word.load(memory_order::acquire), i + 1))
                return true;
        return false;
    }
    static constexpr const char* remedy_of_exchange =
        "another rank compares calls or makes a communicator, and this one does not: set_checked() and NDEBUG must be "
        "alike on all ranks";

    const communicator_core& core_;
    const int me_;
    const bool is_checked_;
    char call_[32]; // how an error begins: "call 7" of the program's communicator, or "window"
};

} // namespace detail

[[gnu::cold]] COLLX_ONCE void communicator_core::explain(failure f, int waiting_for) const {
    detail::failure_text(*this).say(f, waiting_for);
}

COLLX_END_NAMESPACE
