// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The smallest program that uses a collective; scripts/include_cost measures what it costs to compile.
#include <collx/collx.hpp>

#include <vector>

int main() {
    collx::communicator world;
    std::vector<float> x(1024, 1.0F);
    collx::all_reduce(world, x, collx::plus{});
    return x[0] == static_cast<float>(world.size()) ? 0 : 1;
}
