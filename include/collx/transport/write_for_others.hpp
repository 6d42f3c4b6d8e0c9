// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A copy into memory that another core has read and will read again: slots of channels, stages of windows.
//
// A store to a line that another core holds fetches the line first. The fetches follow one another as far as the
// processor looks ahead. A string copy (`rep movsb` on x86) declares that it overwrites whole lines, and fetches none.
// Some versions of memcpy use one from 2,112 bytes on (glibc before 2.40), others never. Between cores it pays off
// earlier. (Zen 5, a message of 1.5 KiB from core to core, one way: without a shared cache 0.59 us by memcpy of glibc
// 2.36 and 0.37 by a string copy, with one 0.106 and 0.091. 128 KiB that the other core has read: 15 us by a loop's
// stores and 3.7 by a string copy, with a shared cache 2.5 and 1.5.)
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/config.hpp>
#include <collx/core/copy_bytes.hpp>

// Sanitizers see what memcpy does, but not what assembler does.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COLLX_STRING_COPIES 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define COLLX_STRING_COPIES 0
#endif
#endif
#if !defined(COLLX_STRING_COPIES)
#if defined(__x86_64__)
#define COLLX_STRING_COPIES 1
#else
#define COLLX_STRING_COPIES 0
#endif
#endif

#if COLLX_STRING_COPIES
#include <cpuid.h>
#endif

COLLX_BEGIN_NAMESPACE

namespace detail {

// From 2,112 bytes to 16 KiB, memcpy of glibc 2.36 has its own string copies, which take 0.85 of the time with a shared
// cache. From some size above 1 MiB on, memcpy bypasses the caches.
constexpr bool is_for_a_string_copy(std::size_t n) {
    return n < 2112 || (n >= std::size_t{16} << 10 && n <= std::size_t{1} << 20);
}

#if COLLX_STRING_COPIES
// Whether string copies of a few lines start fast ("fast short rep mov", CPUID leaf 7, EDX bit 4). On other processors
// memcpy decides.
inline bool asks_for_string_copies() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 4 & 1) != 0;
}
inline const bool has_string_copies = asks_for_string_copies(); // false during static initialization
#endif

} // namespace detail

// Copies like memcpy; from `least` bytes on, by a string copy. Below 1,280 bytes a string copy costs messages and sums
// 5 to 10 ns more with a shared cache than it gains without one. It is used only where `to` begins a line: Zen 3
// reports that its string copies start fast, but is known to take many times as long elsewhere.
COLLX_ALWAYS_INLINE void write_for_others(void* to, const void* from, std::size_t n, std::size_t least = 1280) {
#if COLLX_STRING_COPIES
    if (n >= least && detail::is_for_a_string_copy(n) && reinterpret_cast<std::uintptr_t>(to) % 64 == 0 &&
        detail::has_string_copies && !detail::are_page_aliases(to, from)) {
        asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
        return;
    }
#else
    (void)least;
#endif
    copy_bytes(to, from, n);
}

COLLX_END_NAMESPACE
