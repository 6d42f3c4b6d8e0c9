// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Linear collectives for 1 to 17 ranks, and what they declare.
#include <collx/algo/linear.hpp>

#include "support/prove.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

COLLX_PROVE_ROOTED(linear_broadcast);
COLLX_PROVE_ROOTED(linear_reduce);
COLLX_PROVE_ROOTED(linear_gather);
COLLX_PROVE_ROOTED(linear_scatter);
COLLX_PROVE(linear_reduce_scatter);
COLLX_PROVE(linear_all_reduce);
