// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Scans for 1 to 17 ranks, and what they declare.
#include <collx/algo/scan.hpp>

#include "support/prove.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

COLLX_PROVE(chain_scan);
COLLX_PROVE(chain_exclusive_scan);
COLLX_PROVE(doubling_scan);
COLLX_PROVE(doubling_exclusive_scan);
