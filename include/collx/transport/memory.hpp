// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transport of threads: one anonymous mapping that all ranks of a process see. The reference model; shm.hpp differs
// only in where the mapping comes from.
#pragma once

#include <collx/core/pointers.hpp>

#include <collx/core/system_limits.hpp>
#include <collx/transport/arena.hpp>

COLLX_BEGIN_NAMESPACE

inline constexpr std::size_t default_arena_bytes = std::size_t{256}
                                                   << 30; // address space; only touched pages cost memory

// Channels grow with the square of the number of ranks: hundreds of ranks on one host need more room.
constexpr std::size_t arena_bytes_for(int ranks) {
    return ranks <= 256 ? default_arena_bytes : 32 * default_arena_bytes;
}

// Makes an arena of this process. bytes: address space; halved until it is available.
[[gnu::cold]] inline counted_ptr<arena> make_memory_arena(int ranks, std::size_t bytes = default_arena_bytes) {
    constexpr std::size_t least_bytes = std::size_t{64} << 20;
    for (;; bytes /= 2) { // a limited address space (ulimit -v) gets a smaller arena
        void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED && bytes / 2 >= least_bytes) continue;
        if (p == MAP_FAILED) break;
        auto a = make_counted<arena>(p, bytes, -1);
        a->format(ranks);
        return a;
    }
    fail(errc::resource, -1, -1, detail::remedy_for_mapping(errno), "cannot map shared memory: %s",
         std::strerror(errno));
}

COLLX_END_NAMESPACE
