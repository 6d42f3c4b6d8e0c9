// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program that uses collx, and a library that does so, too: second.cpp. One has the compiled form and one the
// header-only one.
#include <collx/collx.hpp>

#include <cstdio>

long sum_of_one_alone();

int main() {
    try {
        const long by_library = sum_of_one_alone();
        collx::communicator world;
        int x = 1;
        collx::all_reduce(world, collx::value(x));
        return by_library == world.size() && x == world.size() ? 0 : 1;
    } catch (const collx::error& e) {
        std::printf("%s\n", e.what());
        return 2;
    }
}
