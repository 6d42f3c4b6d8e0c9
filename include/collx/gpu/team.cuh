// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gpu_team: a fused team on the current CUDA device. Include it in .cu files. The verbs of collx/comm take a team; its
// members are the same verbs and compile faster.
#pragma once

#include <collx/exec/fused.cuh>
#include <collx/gpu/fused_team.hpp>

COLLX_BEGIN_NAMESPACE

// A fused team on the current CUDA device: one kernel moves the data of all ranks.
using gpu_team = fused_team<device::cuda_machine>;

COLLX_END_NAMESPACE
