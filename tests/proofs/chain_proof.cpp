// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Chains for 1 to 17 ranks, and what they declare.
#include <collx/algo/chain.hpp>

#include "support/prove.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

COLLX_PROVE_ROOTED(chain_broadcast);
COLLX_PROVE_ROOTED(chain_reduce);

// S ranks forward K chunks in S + K - 2 rounds.
constexpr bool rounds_of_chains(int ranks, int chunks) {
    return facts_of(chain_broadcast{.chunk_count = chunks}, ranks).rounds == ranks + chunks - 2;
}
static_assert(rounds_of_chains(2, 1) && rounds_of_chains(5, 1) && rounds_of_chains(5, 7) && rounds_of_chains(9, 3));
