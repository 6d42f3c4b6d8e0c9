// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Bruck's algorithms for 1 to 17 ranks, and what they declare.
#include <collx/algo/bruck.hpp>

#include "support/prove.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

COLLX_PROVE(bruck_all_gather);
COLLX_PROVE(bruck_all_to_all);

static_assert(facts_of(bruck_all_gather{}, 9).messages == 4);
static_assert(facts_of(bruck_all_gather{}, 9).rounds == 4);
static_assert(facts_of(bruck_all_to_all{}, 9).messages == 4);
