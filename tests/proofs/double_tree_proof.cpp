// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Double trees for 1 to 17 ranks, and what they declare.
#include <collx/algo/double_tree.hpp>

#include "support/prove.hpp"

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

COLLX_PROVE_ROOTED(double_tree_broadcast);
COLLX_PROVE_ROOTED(double_tree_reduce);
COLLX_PROVE(double_tree_all_reduce);
