// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Another source of the same program: two sources that include collx must link.
#include <collx/collx.hpp>

long sum_of_one_alone() {
    collx::communicator world;
    long x = 1;
    collx::all_reduce(world, collx::value(x));
    return x;
}
