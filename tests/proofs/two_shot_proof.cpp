// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two-shot all-reduce for 1 to 17 ranks, and what they declare.
#include <collx/algo/two_shot.hpp>

#include "support/prove.hpp"

COLLX_PROVE(collx::two_shot_all_reduce);
