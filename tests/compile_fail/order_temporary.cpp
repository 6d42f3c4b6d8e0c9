// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An algorithm refers to its order of ranks or its route: a temporary one would be gone when it is called.
// expect-re: (use of|uses|call to|invokes a) deleted function
// expect: order_view
// expect: route_view
#include <collx/algo/in_order.hpp>
#include <collx/algo/on_route.hpp>
#include <collx/algo/ring.hpp>

using namespace collx;

#ifdef COLLX_FAIL
const algo::in_order<algo::ring_all_reduce> a{rank_order{2, 1, 0}};
const algo::on_route<algo::ring_all_reduce> b{relay_route(3, {0, 1, 2}, {0, 2})};
#else
const rank_order order{2, 1, 0};
const relay_route route(3, {0, 1, 2}, {0, 2});
const algo::in_order<algo::ring_all_reduce> a{order};
const algo::on_route<algo::ring_all_reduce> b{route};
#endif
