// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: collx: gradients are floating-point numbers, and the wire type is a smaller one.
#include <collx/collx.hpp>
#include <collx/comm/bucketed.hpp>

struct pair_of_floats {
    float x, y;
};

int main() {
    collx::communicator world;
#ifdef COLLX_FAIL
    collx::bucketed<pair_of_floats> gradients(world);
#else
    collx::bucketed<double, float> gradients(world);
#endif
}
