// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Direct exchange with a root for 1 to 17 ranks, and what they declare.
#include <collx/algo/direct.hpp>

#include "support/prove.hpp"

COLLX_PROVE_ROOTED(collx::direct_broadcast);
COLLX_PROVE_ROOTED(collx::direct_reduce);
