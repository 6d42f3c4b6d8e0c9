// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Recursive doubling: in round k each rank exchanges all it has with the partner at distance 2^k, so that it has twice
// as much. The fewest rounds an all-reduce can have; for short messages. Where n is no power of two the ranks form
// teams (power_of_two.hpp), and only their leaders take part.
//
// Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA
// 19(1), 2005.
#pragma once

#include <collx/algo/power_of_two.hpp>
#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Shape: 1 chunk.
// Cost: log2 n rounds, as many messages per rank, where n is a power of two; else floor(log2 n) + 2 rounds.
// Scratch 1 chunk if n > 2; slots >= 1.
// Order: rank order, equal on all ranks; any associative operator.
struct recursive_doubling_all_reduce {
    static constexpr collective op = collective::all_reduce;
    static constexpr const char* name = "recursive_doubling";
    static constexpr bool needs_commutative = false;
    COLLX_HD static constexpr int chunks(int) { return 1; }
    static constexpr int tmp_chunks(int n) { return n > 2 ? 1 : 0; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        if (n == 1) return ex.step(copy, in(0), out(0));
        const team_layout all(n);
        if (all.follows(r)) {
            ex.step(send, to(r - 1), in(0));
            return ex.step(recv | copy, from(r - 1), out(0));
        }
        ref partial = in(0);
        if (all.in_pair(r)) {
            ex.step(recv | reduce_after | copy, from(r + 1), partial, tmp(0));
            partial = tmp(0);
        }
        const int team = all.team_of(r);
        for (int d = 1; d < all.teams; d *= 2) {
            const int other = all.leader(team ^ d);
            ex.step(send, to(other), partial);
            const bool last = 2 * d == all.teams, tells = last && all.in_pair(r);
            const ref sum = last ? out(0) : tmp(0);
            if (other < r) {
                if (tells) ex.step(recv | reduce | copy | send, from(other), to(r + 1), partial, sum);
                else ex.step(recv | reduce | copy, from(other), partial, sum);
            } else {
                if (tells) ex.step(recv | reduce_after | copy | send, from(other), to(r + 1), partial, sum);
                else ex.step(recv | reduce_after | copy, from(other), partial, sum);
            }
            partial = sum;
        }
    }
};

// A team holds the chunks of its ranks; consecutive teams hold consecutive chunks.
// Shape: n chunks; rank r contributes chunk r.
// Cost: log2 n rounds, n - 1 chunks per rank, where n is a power of two; else floor(log2 n) + 2 rounds, and the leader
// of a pair sends up to 2(t - 1) chunks to leaders of the t teams, then n - 1 to the other rank of the pair. No
// scratch, slots >= 1.
struct recursive_doubling_all_gather {
    static constexpr collective op = collective::all_gather;
    static constexpr const char* name = "recursive_doubling";
    COLLX_HD static constexpr int chunks(int n) { return n; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        ex.step(copy, in(r), out(r));
        const team_layout all(n);
        if (all.follows(r)) {
            ex.step(send, to(r - 1), in(r));
            return ex.step(recv | copy, from(r - 1), out({(r + 1) % n, n - 1}));
        }
        if (all.in_pair(r)) ex.step(recv | copy, from(r + 1), out(r + 1));
        const int team = all.team_of(r);
        for (int d = 1; d < all.teams; d *= 2) {
            const int mine = team & ~(d - 1), other = all.leader(team ^ d);
            ex.step(send, to(other), out(all.chunks_of(mine, d)));
            ex.step(recv | copy, from(other), out(all.chunks_of(mine ^ d, d)));
        }
        if (all.in_pair(r)) ex.step(send, to(r + 1), out({(r + 2) % n, n - 1}));
    }
};

} // namespace algo
COLLX_END_NAMESPACE
