// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Barriers for 1 to 17 ranks, and what they declare.
#include <collx/algo/dissemination.hpp>

#include "support/prove.hpp"

COLLX_PROVE(collx::dissemination_barrier);
COLLX_PROVE(collx::flag_barrier);
