// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Scans for 1 to 17 ranks, and what they declare.
#include <collx/algo/scan.hpp>

#include "support/prove.hpp"

COLLX_PROVE(collx::chain_scan);
COLLX_PROVE(collx::chain_exclusive_scan);
COLLX_PROVE(collx::doubling_scan);
COLLX_PROVE(collx::doubling_exclusive_scan);
