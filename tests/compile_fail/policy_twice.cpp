// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two policies of one kind: one of them would be passed over.
// expect: collx: two algorithms for one collective are bound. Bind one of the two.
// expect: collx: two piece policies are bound. Bind one of the two.
// expect: collx: two wire<> policies are bound. Bind one of the two.
#include <collx/algo/linear.hpp>
#include <collx/algo/ring.hpp>
#include <collx/core/half.hpp>
#include <collx/plan/policy.hpp>

using namespace collx;

#ifdef COLLX_FAIL
policy_set<algo::ring_all_reduce, algo::linear_all_reduce> a{{}, {}};
policy_set<piece, piece> b{{}, {}};
policy_set<wire<bf16>, wire<f16>> c{{}, {}};
#else
policy_set<algo::ring_all_reduce, piece, algo::linear_broadcast, wire<bf16>> a{{}, {}, {}, {}};
#endif
