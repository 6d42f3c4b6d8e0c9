// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// reduce: the root receives the reduction of all ranks' buffers.
#pragma once

#include <collx/comm/verb_fronts.hpp>

COLLX_BEGIN_NAMESPACE

// Reduces the ranks' buffers into the root's, in place (one buffer) or from `in` to the root's `out` (which the other
// ranks may leave empty). In place, the other ranks' buffers keep their contents.
// Shape: the same number of elements on every rank.
// Cost: each rank gives its buffer once. Where memory is shared, one synchronisation up to 16 KiB; else log2(n) rounds
//     up to 512 KiB and a chain above. Among few ranks straight to the root (docs/algorithms.md).
// Order: rank order by default; any associative operator.
// Errors: as all_reduce; invalid_argument for a root that is no rank.
// Example: collx::reduce(world, losses, totals, {.root = 0});
COLLX_VERB_BY(reduce, reducing_fn)

COLLX_END_NAMESPACE
