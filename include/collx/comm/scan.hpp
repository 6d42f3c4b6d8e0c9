// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// scan, exclusive_scan: rank r receives the reduction of the buffers of ranks 0 … r, or 0 … r - 1.
#pragma once

#include <collx/comm/verb_fronts.hpp>

COLLX_BEGIN_NAMESPACE

// Reduces over the ranks up to this one.
// Shape: the same number of elements on every rank. Element i of rank r becomes x0[i] op x1[i] op … op xr[i].
// Cost: where memory is shared, one round up to 64 KiB, in which each rank reads the operands before its own; else
//     log2(n) rounds up to 32 KiB. A chain above, among few ranks, and on shared cores (docs/algorithms.md).
// Order: rank order; any associative operator.
// Errors: as all_reduce.
// Example: collx::scan(world, collx::value(count));
COLLX_VERB_BY(scan, reducing_fn)

// As scan, without the rank's own operand. Rank 0 has no operand before its own: its output keeps its contents.
// Shape, Cost, Order, Errors: as scan.
// Example: collx::exclusive_scan(world, collx::value(count), collx::value(offset)); // where my part begins
COLLX_VERB_BY(exclusive_scan, reducing_fn)

COLLX_END_NAMESPACE
