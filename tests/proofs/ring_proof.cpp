// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rings for 1 to 17 ranks, and what they declare.
#include <collx/algo/ring.hpp>

#include "support/prove.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

COLLX_PROVE(ring_all_reduce);
COLLX_PROVE(ring_reduce_scatter);
COLLX_PROVE(ring_all_gather);

// A ring of fused steps needs two slots. With one, every rank holds a message that its neighbour must receive before
// it can receive its own.
constexpr verdict with_one_slot(int n) {
    schedule s = collx::sched::record_all(ring_all_reduce{}, n);
    s.depth = 1;
    return collx::sched::verify(s);
}
static_assert(with_one_slot(2).what == problem::deadlock);
static_assert(with_one_slot(7).what == problem::deadlock);
static_assert(collx::sched::verify(ring_all_reduce{}, 7).order == reduction_order::rotated);

static_assert(facts_of(ring_all_reduce{}, 6).rounds == 2 * (6 - 1));
static_assert(facts_of(ring_all_reduce{}, 6).messages == 2 * (6 - 1));
static_assert(facts_of(ring_reduce_scatter{}, 6).rounds == 6 - 1);
static_assert(facts_of(ring_all_gather{}, 6).rounds == 6 - 1);
