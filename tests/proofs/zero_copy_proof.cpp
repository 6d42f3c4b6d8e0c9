// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Zero-copy collectives for 1 to 17 ranks, and what they declare.
#include <collx/algo/zero_copy.hpp>

#include "support/prove.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

COLLX_PROVE(zero_copy_all_reduce);
COLLX_PROVE(zero_copy_reduce_scatter);
COLLX_PROVE(zero_copy_all_gather);
COLLX_PROVE(zero_copy_all_to_all);
