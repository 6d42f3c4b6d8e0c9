// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Binomial trees for 1 to 17 ranks, and what they declare.
#include <collx/algo/binomial.hpp>

#include "support/prove.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

COLLX_PROVE(binomial_all_reduce);

static_assert(facts_of(binomial_all_reduce{}, 8).rounds == 6);
