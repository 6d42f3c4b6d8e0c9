// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arithmetic shared by the algorithms that halve and double: powers of two around n, and the fold that turns n ranks
// into a power of two of teams. No algorithm here.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/step.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// The largest power of two <= n, n >= 1.
COLLX_HD constexpr int power_below(int n) {
    int p = 1;
    while (p <= n / 2) p *= 2;
    return p;
}

// The lowest bit set in x, x >= 1.
COLLX_HD constexpr int lowest_bit(int x) { return x & -x; }

// n ranks as a power of two of teams: the first `excess` teams are pairs (2t, 2t + 1), led by the even rank, the others
// single ranks. Teams are intervals of ranks in rank order, so that a reduction over consecutive teams is over
// consecutive ranks.
struct team_layout {
    int teams;
    int excess;
    COLLX_HD constexpr explicit team_layout(int n) : teams(power_below(n)), excess(n - power_below(n)) {}
    COLLX_HD constexpr int team_of(int rank) const { return rank < 2 * excess ? rank / 2 : rank - excess; }
    // Also the first rank of the team.
    COLLX_HD constexpr int leader(int team) const { return team < excess ? 2 * team : team + excess; }
    // The ranks of `count` teams, as chunks of an algorithm with one chunk per rank.
    COLLX_HD constexpr chunk_set chunks_of(int team, int count) const {
        return {leader(team), leader(team + count) - leader(team)};
    }
    COLLX_HD constexpr bool in_pair(int rank) const { return rank < 2 * excess; }
    COLLX_HD constexpr bool follows(int rank) const { return in_pair(rank) && rank % 2 == 1; }
};

} // namespace algo
COLLX_END_NAMESPACE
