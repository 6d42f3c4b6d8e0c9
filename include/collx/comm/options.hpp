// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The options of a call: designated initialisers, any subset, no template cost.
//   collx::all_reduce(world, gradient, {.timeout = 5s});
#pragma once

#include <collx/core/duration.hpp>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// The options of a call on host memory.
struct call_options {
    // The limit for the call as a whole, from its first wait on, even while something moves. 0: only the communicator's
    // limit, which counts while nothing moves (communicator::set_timeout()).
    duration timeout{};
    // The root of a rooted collective.
    int root = 0;
};

// The same for calls on device memory.
//   collx::all_reduce(world, gradient, {.stream = stream});
struct device_call_options {
    void* stream = nullptr; // a cudaStream_t; null: the default stream of the current device
    // The limit for one wait inside a kernel. 0: the communicator's.
    duration timeout{};
    // The root of a rooted collective.
    int root = 0;
};

COLLX_END_NAMESPACE
