// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Binomial trees with a root for 1 to 17 ranks, and what they declare.
#include <collx/algo/binomial.hpp>

#include "support/prove.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

COLLX_PROVE_ROOTED(binomial_broadcast);
COLLX_PROVE_ROOTED(binomial_reduce);
COLLX_PROVE_ROOTED(binomial_gather);
COLLX_PROVE_ROOTED(binomial_scatter);
