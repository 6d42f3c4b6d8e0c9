// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Proves a collective among some of the ranks whose messages other ranks pass on. A rank that only passes on messages
// from one rank to one other is a longer channel. The proof leaves these ranks out and joins the ends; what remains is
// an ordinary schedule of the members. A second run, with all ranks, shows that messages fit, that none is left over
// and that nothing deadlocks.
#pragma once

#include <collx/sched/verify.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// The rank to which `p` passes messages of rank `from` (`to` is -1), or from which it receives those that it passes to
// rank `to` (`from` is -1). -1: none, or more than one.
constexpr int passes_on(const program& p, int from, int to) {
    int found = -1;
    for (const auto& strand : p.strands)
        for (const step& st : strand) {
            if ((st.peer_from != from && from >= 0) || (st.peer_to != to && to >= 0)) continue;
            const int other = from >= 0 ? st.peer_to : st.peer_from;
            if (found >= 0 && found != other) return -1;
            found = other;
        }
    return found;
}

// Whether a rank only passes messages on, in each strand from one rank to one other, so that the strand is a channel.
constexpr bool is_relay(const program& p) {
    for (const auto& strand : p.strands)
        for (const step& st : strand)
            if (st.what != (recv | send) || st.dst.where != place::none || st.peer_from != strand[0].peer_from ||
                st.peer_to != strand[0].peer_to)
                return false;
    return true;
}

// Runs all ranks, of which only the members take part in the collective: messages must go through, and must hold the
// chunks that the steps name. What the members make of them is proved without the others.
constexpr verdict verify_passing(schedule s) {
    const collective promise = s.op;
    s.op = collective::send_recv; // promises no results
    value_reader values(s, false, promise);
    network<value_reader> run(s, values);
    return values.result(run.run());
}

// Verifies a schedule among `members`: ranks by position, in the order in which the collective counts them.
constexpr verdict verify_members(const schedule& s, const detail::growing_array<int>& members) {
    if (const verdict v = out_of_range(s); !v.ok()) return v;
    const auto n = static_cast<unsigned>(s.ranks);
    detail::growing_array<int> position(n, -1);
    for (unsigned i = 0; i < members.size(); ++i) {
        const int m = members[i];
        if (m < 0 || m >= s.ranks || position[static_cast<unsigned>(m)] >= 0)
            return {.what = problem::bad_member, .rank = m};
        position[static_cast<unsigned>(m)] = static_cast<int>(i);
    }
    for (unsigned r = 0; r < n; ++r)
        if (position[r] < 0 && !is_relay(s.programs[r]))
            return {.what = problem::not_an_output, .rank = static_cast<int>(r)};

    // The position of the member at the channel's other end, past all ranks that pass on.
    const auto end_of = [&](int rank, int peer, bool forward) {
        for (int before = rank, hops = 0; peer >= 0 && peer < s.ranks && hops < s.ranks; ++hops) {
            const auto at = static_cast<unsigned>(peer);
            if (position[at] >= 0) return position[at];
            const int next = passes_on(s.programs[at], forward ? before : -1, forward ? -1 : before);
            before = peer;
            peer = next;
        }
        return -1; // the verifier reports a bad peer
    };
    schedule among = s;
    among.ranks = static_cast<int>(members.size());
    among.programs.clear();
    for (const int r : members) {
        program p = s.programs[static_cast<unsigned>(r)];
        for (auto& strand : p.strands)
            for (step& st : strand) {
                if ((st.what & recv) != 0) st.peer_from = end_of(r, st.peer_from, false);
                if ((st.what & send) != 0) st.peer_to = end_of(r, st.peer_to, true);
            }
        among.programs.push_back(static_cast<program&&>(p));
    }
    const verdict v = verify(among);
    if (!v.ok()) return v;
    const verdict whole = verify_passing(s);
    return whole.ok() ? v : whole;
}

// Verifies among the members; without any, among all ranks.
constexpr verdict verify_for(const schedule& s, const detail::growing_array<int>& members) {
    return members.empty() ? verify(s) : verify_members(s, members);
}

} // namespace sched
COLLX_END_NAMESPACE
