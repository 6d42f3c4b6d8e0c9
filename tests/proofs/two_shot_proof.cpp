// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two-shot all-reduce for 1 to 17 ranks, and what they declare.
#include <collx/algo/two_shot.hpp>

#include "support/prove.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

COLLX_PROVE(two_shot_all_reduce);
