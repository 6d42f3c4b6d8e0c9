// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The first program: a sum over all ranks. Run it alone, or as four processes: collx_run -n 4 01_hello_all_reduce
// collx-example: procs=4
#include <collx/collx.hpp>
#include <cstdio>
int main() {
    collx::communicator world;                          // alone, or one of many under collx_run
    std::vector<float> x(1 << 20, world.rank() + 1.0f); // any tensor will do
    collx::all_reduce(world, x);                        // the sum over all ranks, in place
    std::printf("rank %d of %d: x[0] = %g\n", world.rank(), world.size(), x[0]);
    return x[0] == world.size() * (world.size() + 1) / 2 ? 0 : 1;
}
