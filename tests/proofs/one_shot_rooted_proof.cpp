// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Direct exchange with a root for 1 to 17 ranks, and what they declare.
#include <collx/algo/one_shot.hpp>

#include "support/prove.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

COLLX_PROVE_ROOTED(one_shot_broadcast);
COLLX_PROVE_ROOTED(one_shot_reduce);
