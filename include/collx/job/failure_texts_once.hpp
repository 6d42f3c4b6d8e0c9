// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a communicator says of its failure, in the error that a call throws. Part of every program, or compiled once in
// collx::collx.
#pragma once

#include <cstdio>

#include <collx/job/communicator_core.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Messages between two ranks are not compared before they are sent, so checked mode has this error, too.
[[gnu::cold]] inline const char* remedy_of_mismatch(bool is_checked) {
    return is_checked
               ? "this call, or one before it, differs between the ranks: in order, root, counts, type or operator"
               : "this call, or one before it, differs between the ranks: in order, root, counts, type or operator; "
                 "set_checked(true) names the first that does";
}

} // namespace detail

[[gnu::cold]] COLLX_ONCE void communicator_core::explain(failure f, int waiting_for) const {
    const int me = net.rank(), who = f.rank();
    const bool is_checked = settings.checked != 0;
    const auto call = static_cast<unsigned long long>(calls());
    if (f.is_circle()) explain_circle(who);
    if (who == me) explain_own(f);
    switch (f.code()) {
        case errc::peer_failed:
            fail(errc::peer_failed, me, who, "see its output; shrink() makes a communicator of the survivors",
                 "call %llu: rank %d has ended", call, who);
        case errc::timeout:
            if (who < 0)
                fail(errc::timeout, me, who,
                     is_checked ? "is every rank in this call? set_timeout() waits longer"
                                : "is every rank in the same call? set_checked(true) names the odd one",
                     "call %llu: timed out waiting for several ranks", call);
            fail(errc::timeout, me, who,
                 pending.empty() && is_checked ? "is it alive and in this call? set_timeout() waits longer"
                 : pending.empty()
                     ? "is it alive and in the same call? set_checked(true) compares calls; set_timeout() waits longer"
                     : "is it alive, and does it wait for this communicator's calls? Where calls of several "
                       "communicators are under way, wait_all() moves all of them; set_timeout() waits longer",
                 "call %llu: timed out waiting for rank %d", call, who);
        case errc::aborted:
            fail(errc::aborted, me, who,
                 "by abort(), a handle or group it dropped, an operator that threw or no memory; shrink() makes a new "
                 "communicator",
                 "call %llu: rank %d aborted the communicator", call, who);
        case errc::mismatch:
            fail(errc::mismatch, me, who, detail::remedy_of_mismatch(is_checked),
                 "call %llu: the part of rank %d has another size than this call expects, or is of another call", call,
                 who < 0 ? waiting_for : who);
        case errc::resource:
            fail(errc::resource, me, who, remedy_there(f.short_of()),
                 "call %llu: rank %d has no descriptor or no memory left", call, who);
        case errc::unsupported:
            fail(errc::unsupported, me, who,
                 "drop the attach policy, or allow process_vm_readv (ptrace scope, container capabilities)",
                 "call %llu: cannot read the memory of rank %d", call, who);
        case errc::security:
            fail(errc::security, me, who, "give all ranks the same key and COLLX_SECURITY; see docs/security.md",
                 "call %llu: rank %d did not prove to have this job's key, or its bytes were changed on the way", call,
                 who);
        case errc::protocol:
            fail(errc::protocol, me, who, "are all ranks the same program, built with the same version of collx?",
                 "call %llu: rank %d sent what this call does not allow", call, who);
        default: fail(f.code(), me, who, "see the output of that rank", "call %llu: rank %d failed", call, who);
    }
}

// Explains a failure that other ranks report of this rank.
[[gnu::cold]] COLLX_ONCE void communicator_core::explain_own(failure f) const {
    const errc code = f.code();
    const char *what = "reported a failure of this rank",
               *remedy = "see what this rank printed before, and their output";
    switch (code) {
        case errc::peer_failed:
            what = "took this rank for dead";
            remedy = "its connections broke or its process was taken for another; shrink() of the others leaves it out";
            break;
        case errc::timeout:
            what = "gave up waiting for this rank";
            remedy = settings.checked != 0 ? "was it busy, stopped or in another call? set_timeout() waits longer"
                                           : "was it busy, stopped or in another call? set_checked(true) compares "
                                             "calls; set_timeout() waits longer";
            break;
        case errc::mismatch:
            what = "report that the part of this rank has another size than this call expects, or is of another call";
            remedy = detail::remedy_of_mismatch(settings.checked != 0);
            break;
        case errc::security:
            what = "refused this rank: it did not prove to have the job's key, or its bytes were changed on the way";
            remedy = "give all ranks the same key and COLLX_SECURITY; see docs/security.md";
            break;
        case errc::protocol:
            what = "refused what this rank sent";
            remedy = "are all ranks the same program, built with the same version of collx?";
            break;
        case errc::aborted:
            fail(code, net.rank(), net.rank(),
                 "by abort(), a handle or group it dropped, an operator that threw or no memory",
                 "call %llu: this rank aborted the communicator", static_cast<unsigned long long>(calls()));
        case errc::resource:
            fail(code, net.rank(), net.rank(), remedy_there(f.short_of()),
                 "call %llu: this rank has no descriptor or no memory left", static_cast<unsigned long long>(calls()));
        default: break;
    }
    fail(code, net.rank(), net.rank(), remedy, "call %llu: other ranks %s", static_cast<unsigned long long>(calls()),
         what);
}

// Prints the circle from its lowest rank on, so that all ranks say the same; of ranks on other hosts what is known.
[[gnu::cold]] COLLX_ONCE void communicator_core::explain_circle(int of_rank) const {
    const waiting_words words = net.waits();
    const auto next = [&](int r) { return words.of(r).peer(); };
    int first = of_rank, ranks = 1, r = next(of_rank);
    bool sends = words.of(of_rank).what() == awaited::why::room, has_me = of_rank == net.rank();
    for (; r >= 0 && r != of_rank && ranks <= net.size(); r = next(r), ++ranks) {
        first = r < first ? r : first, has_me |= r == net.rank();
        sends &= words.of(r).what() == awaited::why::room;
    }
    const bool is_closed = r == of_rank;
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
    const int peer = has_me && next(net.rank()) >= 0 ? next(net.rank()) : of_rank == net.rank() ? -1 : of_rank;
    const bool all_send = sends && is_closed;
    fail(errc::timeout, net.rank(), peer,
         all_send ? "let one of them receive first, or use sendrecv() or async::send()"
         : settings.checked != 0
             ? "is every rank in the same call, in the same order?"
             : "is every rank in the same call, in the same order? set_checked(true) compares calls",
         "call %llu: ranks %s wait for each other%s", static_cast<unsigned long long>(calls()), text,
         all_send ? ": each sends before it receives" : "");
}

COLLX_END_NAMESPACE
