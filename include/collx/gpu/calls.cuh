// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls on device memory through an ordinary communicator, one device per rank. Include it in .cu files beside
// collx.hpp: the verbs then take device_view, thrust::device_vector and on_device(x), and a stream.
//
//   collx::communicator world;
//   collx::all_reduce(world, gradient, collx::plus{}, {.stream = stream});
#pragma once

#include <collx/exec/device/cuda_runtime.cuh>
#include <collx/gpu/calls.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

template <>
struct default_runtime<void> {
    using type = device::cuda_runtime;
};

} // namespace detail
COLLX_END_NAMESPACE
