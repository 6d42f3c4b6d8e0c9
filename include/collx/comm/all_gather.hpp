// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// all_gather, all_gather_v: every rank receives the parts of all ranks, in rank order.
#pragma once

#include <collx/comm/verb_fronts.hpp>

COLLX_BEGIN_NAMESPACE

// Collects the parts of all ranks on every rank.
// Shape: `in` has the same number of elements m on every rank, `out` has n m; rank r's part is out[r m, (r + 1) m). One
//     buffer: in place.
// Cost: every rank writes its part to shared memory once and reads the n - 1 others.
// Errors: as all_reduce.
// Example: collx::all_gather(world, mine, everybodys);
COLLX_VERB_BY(all_gather, moving_fn)

// The same with parts of different sizes.
// Shape: rank r contributes counts[r] elements (the same table on every rank); they go to offsets[r], by default one
//     part after the other. Counts may be zero.
// Errors: as all_reduce; mismatch (checked) if the tables differ.
// Example: collx::all_gather_v(world, mine, everybodys, counts);
COLLX_VERB_BY(all_gather_v, moving_v_fn)

COLLX_END_NAMESPACE
