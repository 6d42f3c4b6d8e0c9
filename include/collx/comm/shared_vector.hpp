// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A std::vector in memory that peers may read and write directly: collectives on it make no copies. A separate header,
// because nvcc reads <vector> three times, 0.2 s in every .cu file, and collx needs none: a .cu file that has such
// vectors includes it.
//
//   auto g = collx::make_shared_vector<float>(world, n);
//   collx::all_reduce(world, g); // zero copy, if every rank passes such memory
#pragma once

#include <cstddef>
#include <vector>

#include <collx/comm/shared_memory.hpp>
#include <collx/core/buffer.hpp>

COLLX_BEGIN_NAMESPACE

template <class T>
using shared_vector = std::vector<T, shared_allocator<T>>;

// A shared vector of n elements, each a copy of `value`. Local: other ranks take no part.
// Errors: resource when shared memory is exhausted.
// Example: auto x = collx::make_shared_vector<float>(world, 1 << 20);
template <class T>
shared_vector<T> make_shared_vector(communicator& c, std::size_t n, const T& value = {}) {
    return shared_vector<T>(n, value, shared_allocator<T>(c));
}

template <class T>
struct buffer_traits<std::vector<T, shared_allocator<T>>> {
    static window_view<T> view(std::vector<T, shared_allocator<T>>& v) { return {v.data(), v.size()}; }
    static window_view<const T> view(const std::vector<T, shared_allocator<T>>& v) { return {v.data(), v.size()}; }
};

COLLX_END_NAMESPACE
