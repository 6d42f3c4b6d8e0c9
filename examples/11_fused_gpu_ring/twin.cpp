// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs the kernel's code on host threads, for machines without a GPU and for sanitizers.
#include <cstdio>

#include <collx/testing/twin.hpp>

#include "ring.hpp"

void lesson::mean_on_twin(host_data& data) {
    collx::device::exchange_shape shape;
    shape.ranks = ranks;
    shape.lanes = 2;
    collx::fused_team<collx::device::twin_machine> team(shape);
    mean_of_ranks(team, data);
    std::printf("no GPU: the kernel's code on %d host threads\n", ranks * shape.lanes);
}
