// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one-shot collectives without a root for 1 to 17 ranks, and what they declare.
#include <collx/algo/one_shot.hpp>

#include "support/prove.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

COLLX_PROVE(one_shot_all_reduce);
COLLX_PROVE(one_shot_all_gather);
COLLX_PROVE(one_shot_all_to_all);
COLLX_PROVE(one_shot_reduce_scatter);
COLLX_PROVE(one_shot_scan);
COLLX_PROVE(one_shot_exclusive_scan);
