// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Recursive doubling for 1 to 17 ranks, and what they declare.
#include <collx/algo/recursive_doubling.hpp>

#include "support/prove.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

COLLX_PROVE(recursive_doubling_all_reduce);
COLLX_PROVE(recursive_doubling_all_gather);
