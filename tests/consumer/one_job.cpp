// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A rank of a job that the environment describes.
#include <collx/collx.hpp>

#include <cstdio>

int main() {
    try {
        collx::communicator world;
        int x = 1;
        collx::all_reduce(world, collx::value(x));
        return x == world.size() ? 0 : 1;
    } catch (const collx::error& e) {
        std::printf("%s\n", e.what());
        return 2;
    }
}
