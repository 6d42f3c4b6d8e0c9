// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// broadcast: every rank receives the root's buffer.
#pragma once

#include <collx/comm/verb_fronts.hpp>

COLLX_BEGIN_NAMESPACE

// Copies the root's x to every rank's x.
// Shape: the same number of elements on every rank.
// Cost: the root writes the buffer to shared memory once, the others read it once (docs/algorithms.md).
// Errors: as all_reduce; invalid_argument for a root that is no rank.
// Example: collx::broadcast(world, weights, {.root = 0});
COLLX_VERB_BY(broadcast, moving_fn)

COLLX_END_NAMESPACE
