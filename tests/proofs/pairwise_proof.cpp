// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Pairwise exchanges for 1 to 17 ranks, and what they declare.
#include <collx/algo/pairwise.hpp>

#include "support/prove.hpp"

COLLX_PROVE(collx::pairwise_all_to_all);
COLLX_PROVE(collx::pairwise_all_gather);
COLLX_PROVE(collx::pairwise_reduce_scatter);
