// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Direct exchange (all-to-all and scans) for 1 to 17 ranks, and what they declare.
#include <collx/algo/direct.hpp>

#include "support/prove.hpp"

COLLX_PROVE(collx::direct_all_to_all);
COLLX_PROVE(collx::direct_scan);
COLLX_PROVE(collx::direct_exclusive_scan);
