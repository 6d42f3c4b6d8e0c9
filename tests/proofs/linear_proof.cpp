// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Linear collectives for 1 to 17 ranks, and what they declare.
#include <collx/algo/linear.hpp>

#include "support/prove.hpp"

COLLX_PROVE_ROOTED(collx::linear_broadcast);
COLLX_PROVE_ROOTED(collx::linear_reduce);
COLLX_PROVE_ROOTED(collx::linear_gather);
COLLX_PROVE_ROOTED(collx::linear_scatter);
