// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Zero-copy collectives with a root for 1 to 17 ranks, and what they declare.
#include <collx/algo/zero_copy.hpp>

#include "support/prove.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

COLLX_PROVE_ROOTED(zero_copy_broadcast);
COLLX_PROVE_ROOTED(zero_copy_reduce);
