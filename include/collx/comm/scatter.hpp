// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// scatter, scatter_v: every rank receives its part of the root's buffer.
#pragma once

#include <collx/comm/verb_fronts.hpp>

COLLX_BEGIN_NAMESPACE

// Gives every rank its part of the root's buffer.
// Shape: the root's `in` has n m elements, `out` has m on every rank; other ranks may pass an empty `in`.
// Cost: n - 1 messages from the root.
// Errors: as gather.
// Example: collx::scatter(world, all, mine, {.root = 0});
COLLX_VERB_BY(scatter, moving_fn)

// The same with parts of different sizes.
// Shape: rank r's part has counts[r] elements at offsets[r] of the root's buffer, by default one after the other. Only
//     the root's tables are used; the other ranks may pass empty ones.
// Errors: as gather.
// Example: collx::scatter_v(world, all, mine, counts, {.root = 1});
COLLX_VERB_BY(scatter_v, moving_v_fn)

COLLX_END_NAMESPACE
