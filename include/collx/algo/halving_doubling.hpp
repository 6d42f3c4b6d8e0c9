// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Halving and doubling: in each round a rank sends half of its chunks and reduces the other half, until it holds one
// complete chunk. The same rounds backwards then collect the others. As few bytes as a ring, in 2 log2 n rounds instead
// of 2(n - 1). Where n is no power of two the ranks form teams (power_of_two.hpp), and only their leaders take part.
//
// Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.
#pragma once

#include <collx/algo/power_of_two.hpp>
#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// The nearest partner comes first, so that a partial result always covers an interval of ranks.
// Shape: p chunks, p the largest power of two <= n.
// Cost: 2 log2 p rounds and messages and 2(p - 1) chunks per leader; if n is no power of two, 2 more rounds and p more
// chunks each way. Scratch p chunks if n > 2; slots >= 1.
// Order: rank order, equal on all ranks; any associative operator.
struct halving_doubling_all_reduce {
    static constexpr collective op = collective::all_reduce;
    static constexpr const char* name = "halving_doubling";
    static constexpr bool needs_commutative = false;
    COLLX_HD static constexpr int chunks(int n) { return power_below(n); }
    static constexpr int tmp_chunks(int n) { return n > 2 ? power_below(n) : 0; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return ex.step(copy, in(0), out(0));
        const team_layout all(n);
        const chunk_set whole{0, all.teams};
        if (all.follows(r)) {
            ex.step(send, to(r - 1), in(whole));
            return ex.step(recv | copy, from(r - 1), out(whole));
        }
        place partial = place::in;
        if (all.in_pair(r)) {
            ex.step(recv | reduce_after | copy, from(r + 1), in(whole), tmp(whole));
            partial = place::tmp;
        }
        const int team = all.team_of(r);
        int first = 0, count = all.teams; // the chunks this rank still reduces, later: those it already has
        for (int d = 1; d < all.teams; d *= 2) {
            const int other = all.leader(team ^ d);
            count /= 2;
            const chunk_set lower{first, count}, upper{first + count, count};
            const place sum = count == 1 ? place::out : place::tmp;
            if (other < r) {
                ex.step(send, to(other), ref{partial, lower});
                ex.step(recv | reduce | copy, from(other), ref{partial, upper}, ref{sum, upper});
                first += count;
            } else {
                ex.step(send, to(other), ref{partial, upper});
                ex.step(recv | reduce_after | copy, from(other), ref{partial, lower}, ref{sum, lower});
            }
            partial = place::tmp;
        }
        for (int d = all.teams / 2; d > 0; d /= 2) {
            const int other = all.leader(team ^ d);
            ex.step(send, to(other), out({first, count}));
            ex.step(recv | copy, from(other), out({first ^ count, count}));
            first &= ~count;
            count *= 2;
        }
        if (all.in_pair(r)) ex.step(send, to(r + 1), out(whole));
    }
};

// The farthest partner comes first, so that the chunks of a half are consecutive and end at their ranks. A follower
// keeps its operand of its own chunk and completes that chunk itself.
// Shape: n chunks; rank r keeps chunk r.
// Cost: log2 n rounds, n - 1 chunks per rank, where n is a power of two; else floor(log2 n) + 3 rounds, and a follower
// sends n - 1 chunks. Scratch n chunks if n > 2; slots >= 1.
// Order: not rank order; needs a commutative operator.
struct halving_reduce_scatter {
    static constexpr collective op = collective::reduce_scatter;
    static constexpr const char* name = "halving";
    static constexpr bool needs_commutative = true;
    COLLX_HD static constexpr int chunks(int n) { return n; }
    static constexpr int tmp_chunks(int n) { return n > 2 ? n : 0; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return ex.step(copy, in(0), out(0));
        const team_layout all(n);
        if (all.follows(r)) {
            ex.step(send, to(r - 1), in({(r + 1) % n, n - 1}));
            return ex.step(recv | reduce | copy, from(r - 1), in(r), out(r));
        }
        place partial = place::in;
        if (all.in_pair(r)) {
            const chunk_set all_but_theirs{(r + 2) % n, n - 1};
            ex.step(recv | reduce_after | copy, from(r + 1), in(all_but_theirs), tmp(all_but_theirs));
            ex.step(copy, in(r + 1), tmp(r + 1));
            partial = place::tmp;
        }
        const int team = all.team_of(r);
        for (int d = all.teams / 2; d > 1; d /= 2) {
            const int mine = team & ~(d - 1), other = all.leader(team ^ d);
            const chunk_set keep = all.chunks_of(mine, d);
            ex.step(send, to(other), ref{partial, all.chunks_of(mine ^ d, d)});
            ex.step(recv | reduce | copy, from(other), ref{partial, keep}, tmp(keep));
            partial = place::tmp;
        }
        const int other = all.leader(team ^ 1);
        ex.step(send, to(other), ref{partial, other});
        ex.step(recv | reduce | copy, from(other), ref{partial, r}, out(r));
        if (all.in_pair(other)) ex.step(send, to(other), ref{partial, other + 1});
        if (all.in_pair(r)) ex.step(recv | reduce | send, from(other), to(r + 1), ref{partial, r + 1});
    }
};

} // namespace algo
COLLX_END_NAMESPACE
