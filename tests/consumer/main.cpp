// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A user's first program: two ranks (threads) add their numbers.
#include <collx/collx.hpp>

#include <atomic>
#include <cstdio>

int main() {
    std::atomic<int> right{0};
    collx::run_threads(2, [&](collx::communicator& world) {
        int x = world.rank() + 1;
        collx::all_reduce(world, collx::value(x));
        if (x == 3) ++right;
    });
    std::printf("collx %s: %d of 2 ranks have the sum\n", COLLX_VERSION_STRING, right.load());
    return right == 2 ? 0 : 1;
}
