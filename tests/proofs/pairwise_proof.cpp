// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Pairwise exchanges for 1 to 17 ranks, and what they declare.
#include <collx/algo/pairwise.hpp>

#include "support/prove.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

COLLX_PROVE(pairwise_all_to_all);
COLLX_PROVE(pairwise_all_gather);
COLLX_PROVE(pairwise_reduce_scatter);
