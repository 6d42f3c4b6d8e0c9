// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rings for 1 to 17 ranks, and what they declare.
#include <collx/algo/ring.hpp>

#include "support/prove.hpp"

COLLX_PROVE(collx::ring_all_reduce);
COLLX_PROVE(collx::ring_reduce_scatter);
COLLX_PROVE(collx::ring_all_gather);

// A ring of fused steps needs two slots: with one, every rank holds the message its neighbour must take before it can take its own.
constexpr collx::verdict with_one_slot(int n) {
    collx::schedule s = record_all(collx::ring_all_reduce{}, n);
    s.depth = 1;
    return verify(s);
}
static_assert(with_one_slot(2).what == collx::problem::deadlock);
static_assert(with_one_slot(7).what == collx::problem::deadlock);
static_assert(verify(collx::ring_all_reduce{}, 7).order == collx::reduction_order::rotated);

static_assert(collx::facts_of(collx::ring_all_reduce{}, 6).rounds == 2 * (6 - 1));
static_assert(collx::facts_of(collx::ring_all_reduce{}, 6).messages == 2 * (6 - 1));
static_assert(collx::facts_of(collx::ring_reduce_scatter{}, 6).rounds == 6 - 1);
static_assert(collx::facts_of(collx::ring_all_gather{}, 6).rounds == 6 - 1);
