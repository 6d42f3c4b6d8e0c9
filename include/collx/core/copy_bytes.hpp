// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// memcpy and memmove without the slowdown of page aliases. If the destination lies less than 32 bytes further into its
// page than the source into its own, a load is taken to depend on the store before it and waits for it. A string copy
// (`rep movsb`), which glibc's memcpy uses from some KiB on, then copies byte by byte on AMD Zen 3 to 5 (glibc's bug
// 30994). Parts of a buffer lie this way whenever their size is a few elements more than a multiple of 4 KiB. (Zen 5,
// 16 KiB in the first-level cache, destination 4 bytes further: memcpy 4.6 us, copy_bytes 0.28; no alias: 0.15.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <collx/core/config.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

#if defined(__x86_64__)
inline constexpr bool has_page_aliases = true;
#else
inline constexpr bool has_page_aliases = false;
#endif

// Below this size memcpy uses ordinary loads and stores.
inline constexpr std::size_t least_aliased_bytes = 2048;

inline bool are_page_aliases(const void* to, const void* from) {
    const std::uintptr_t ahead = reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from);
    return (ahead & 4095) - 1 < 31;
}

typedef long long copied_pack __attribute__((vector_size(16), may_alias));

COLLX_ALWAYS_INLINE copied_pack load_pack(const std::byte* from) {
    copied_pack v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

// Copies from the end to the beginning, so that no load follows a store to its page alias. Requires: no overlap.
[[gnu::noinline]] inline void copy_downwards(void* to, const void* from, std::size_t n) {
    auto* const out = static_cast<std::byte*>(to);
    const auto* const in = static_cast<const std::byte*>(from);
    constexpr std::size_t block = 4 * sizeof(copied_pack);
    const std::size_t last = reinterpret_cast<std::uintptr_t>(out + n) % sizeof(copied_pack);
    n -= last;
    std::memcpy(out + n, in + n, last);
    for (; n >= block; n -= block) {
        const std::byte* const read = in + n - block;
        auto* const written = reinterpret_cast<copied_pack*>(out + n - block);
        const copied_pack a = load_pack(read), b = load_pack(read + 16), c = load_pack(read + 32),
                          d = load_pack(read + 48);
        written[3] = d;
        written[2] = c;
        written[1] = b;
        written[0] = a;
    }
    std::memcpy(out, in, n);
}

} // namespace detail

// Copies n bytes; the ranges may overlap, as in memmove.
COLLX_ALWAYS_INLINE void copy_bytes(void* to, const void* from, std::size_t n) {
    if (detail::has_page_aliases && n >= detail::least_aliased_bytes && detail::are_page_aliases(to, from)) {
        const auto a = reinterpret_cast<std::uintptr_t>(to), b = reinterpret_cast<std::uintptr_t>(from);
        if (a - b >= n && b - a >= n) return detail::copy_downwards(to, from, n);
    }
    std::memmove(to, from, n);
}

COLLX_END_NAMESPACE
