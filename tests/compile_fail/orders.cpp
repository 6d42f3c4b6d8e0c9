// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A scan in another order of ranks.
// expect: collx: in_order changes the order of the ranks, and a scan is of the ranks before each, in theirs.
// expect: Run the scan without in_order.
#include <collx/algo/in_order.hpp>
#include <collx/algo/ring.hpp>
#include <collx/algo/scan.hpp>

using namespace collx;

const rank_order order{2, 1, 0};

#ifdef COLLX_FAIL
const algo::in_order<algo::chain_scan> a{order};
const algo::in_order<algo::chain_exclusive_scan> b{order};
#else
const algo::in_order<algo::ring_all_reduce> a{order};
#endif
