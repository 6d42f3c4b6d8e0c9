// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Zero-copy collectives with a root for 1 to 17 ranks, and what they declare.
#include <collx/algo/zero_copy.hpp>

#include "support/prove.hpp"

COLLX_PROVE_ROOTED(collx::zero_copy_broadcast);
COLLX_PROVE_ROOTED(collx::zero_copy_reduce);
