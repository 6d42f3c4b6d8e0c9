// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gather, gather_v: the root receives the parts of all ranks, in rank order.
#pragma once

#include <collx/comm/verb_fronts.hpp>

COLLX_BEGIN_NAMESPACE

// Collects the parts of all ranks at the root.
// Shape: `in` has the same number of elements m on every rank; the root's `out` has n m, other ranks may pass an empty
//     one.
// Cost: n - 1 messages to the root.
// Errors: as all_reduce; invalid_argument for a root that is no rank; mismatch where a rank sends another count than
//     the root expects.
// Example: collx::gather(world, mine, all, {.root = 0});
COLLX_VERB_BY(gather, moving_fn)

// The same with parts of different sizes.
// Shape: rank r's part has counts[r] elements at offsets[r] of the root's buffer, by default one after the other. Only
//     the root's tables are used; the other ranks may pass empty ones.
// Errors: as gather.
// Example: collx::gather_v(world, mine, all, counts, {.root = 1});
COLLX_VERB_BY(gather_v, moving_v_fn)

COLLX_END_NAMESPACE
