// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Settings of gradient buckets (comm/bucketed.hpp).
#pragma once

#include <cstddef>

#include <collx/core/duration.hpp>

COLLX_BEGIN_NAMESPACE

// How tensors are put into buckets, and how their sums are processed.
struct bucket_options {
    std::size_t bytes = std::size_t{25} << 20;      // a bucket is closed once it has this many; tensors are not cut
    std::size_t first_bytes = std::size_t{1} << 20; // of the first bucket to go, so that it goes early
    bool average = false;                           // divides the sums by the number of ranks
    bool feedback = true;                           // adds to the next step what the wire type rounded off
    duration timeout{};                             // of each call; 0: as communicator::set_timeout() says
};

COLLX_END_NAMESPACE
