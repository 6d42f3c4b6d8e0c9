// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Binomial trees for 1 to 17 ranks, and what they declare.
#include <collx/algo/binomial.hpp>

#include "support/prove.hpp"

COLLX_PROVE(collx::binomial_all_reduce);

static_assert(collx::facts_of(collx::binomial_all_reduce{}, 8).rounds == 6);
