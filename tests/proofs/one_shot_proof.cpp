// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One-shot all-reduce for 1 to 17 ranks, and what they declare.
#include <collx/algo/one_shot.hpp>

#include "support/prove.hpp"

COLLX_PROVE(collx::one_shot_all_reduce);
