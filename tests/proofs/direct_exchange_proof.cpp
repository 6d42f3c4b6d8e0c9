// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Direct exchange (all-to-all) for 1 to 17 ranks, and what they declare.
#include <collx/algo/direct.hpp>

#include "support/prove.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

COLLX_PROVE(direct_all_to_all);
