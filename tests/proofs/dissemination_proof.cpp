// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Barriers for 1 to 17 ranks, and what they declare.
#include <collx/algo/dissemination.hpp>

#include "support/prove.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

COLLX_PROVE(dissemination_barrier);
COLLX_PROVE(flag_barrier);
