// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The size of the last-level cache that a core shares with its neighbours. Read from the processor: sysconf() of glibc
// before 2.37 gives the total of all such caches of an AMD processor.
#pragma once

#include <cstddef>

#include <collx/version.hpp>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

COLLX_BEGIN_NAMESPACE
namespace detail {

// The size in bytes; 0 if unknown.
inline std::size_t ask_for_shared_cache() {
#if defined(__x86_64__)
    // Deterministic cache parameters: one subleaf for each cache, the last-level cache last. (Intel SDM, CPUID leaf 4;
    // AMD APM volume 3, function 8000_001D, of the same layout.)
    constexpr unsigned leaves[] = {0x4, 0x8000001d};
    for (const unsigned leaf : leaves) {
        std::size_t bytes = 0;
        for (unsigned k = 0; k < 8; ++k) {
            unsigned a = 0, b = 0, sets = 0, d = 0;
            if (__get_cpuid_count(leaf, k, &a, &b, &sets, &d) == 0 || (a & 31) == 0) break;
            const std::size_t ways = (b >> 22) + 1, partitions = (b >> 12 & 0x3ff) + 1, line = (b & 0xfff) + 1;
            if ((a & 31) != 2) bytes = ways * partitions * line * (std::size_t{sets} + 1); // not an instruction cache
        }
        if (bytes != 0) return bytes;
    }
#endif
    return 0;
}
inline const std::size_t shared_cache_bytes = ask_for_shared_cache(); // may be 0 during static initialisation

} // namespace detail
COLLX_END_NAMESPACE
