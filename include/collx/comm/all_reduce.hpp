// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// all_reduce: every rank receives the reduction of all ranks' buffers.
#pragma once

#include <collx/comm/verb_fronts.hpp>

COLLX_BEGIN_NAMESPACE

// Reduces x over all ranks, in place, or from `in` to `out`.
// Shape: the same number of elements on every rank.
// Cost: in shared memory one synchronisation for short buffers (up to 2 to 48 KiB, docs/algorithms.md), two for longer
//     ones. A call by way of messages moves 2(n - 1)/n of the buffer. No allocation after the first call.
// Order: the default algorithms combine operands in rank order, so any associative operator is right. All ranks hold
//     the same bits.
// Errors: invalid_argument (null, overlapping, sizes), mismatch (checked), peer_failed, timed_out, aborted.
// Example: collx::all_reduce(world, gradient);
//     collx::all_reduce(world, in, out, collx::max{}, {.timeout = 5s});
COLLX_VERB_BY(all_reduce, reducing_fn)

COLLX_END_NAMESPACE
