// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Stores that go past the caches, for results too large to stay there. An ordinary store first fetches the line that it
// overwrites, and evicts an operand that is still needed. (2 processes, 16 MiB each: 8 GB/s with ordinary stores, 34
// with these.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <collx/core/shared_cache.hpp>
#include <collx/exec/loops.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

#if defined(__x86_64__)
inline constexpr bool has_streaming_stores = true;
typedef long long stream_pack __attribute__((vector_size(vector_bytes), may_alias));
COLLX_ALWAYS_INLINE void store_past_caches(stream_pack* p, stream_pack v) {
#if defined(__clang__)
    __builtin_nontemporal_store(v, p);
#elif defined(__AVX512F__)
    __builtin_ia32_movntdq512(p, v);
#elif defined(__AVX__)
    __builtin_ia32_movntdq256(p, v);
#else
    __builtin_ia32_movntdq(p, v);
#endif
}
// Orders these stores with later ones; nothing else does, not even a release.
COLLX_ALWAYS_INLINE void order_streaming_stores() { __builtin_ia32_sfence(); }
#else
inline constexpr bool has_streaming_stores = false;
typedef long long stream_pack __attribute__((vector_size(vector_bytes), may_alias));
COLLX_ALWAYS_INLINE void store_past_caches(stream_pack* p, stream_pack v) { *p = v; }
COLLX_ALWAYS_INLINE void order_streaming_stores() {}
#endif

inline void copy_unordered(void* to, const void* from, std::size_t n) {
    auto* out = static_cast<std::byte*>(to);
    const auto* in = static_cast<const std::byte*>(from);
    std::size_t head =
        (sizeof(stream_pack) - reinterpret_cast<std::uintptr_t>(out) % sizeof(stream_pack)) % sizeof(stream_pack);
    if (!has_streaming_stores || n < 4 * sizeof(stream_pack)) head = n;
    if (head != 0) std::memcpy(out, in, head);
    out += head;
    in += head;
    n -= head;
    constexpr std::size_t step = 4 * sizeof(stream_pack);
    for (; n >= step; out += step, in += step, n -= step) {
        stream_pack v[4];
        std::memcpy(v, in, sizeof v);
        for (int i = 0; i < 4; ++i) store_past_caches(reinterpret_cast<stream_pack*>(out) + i, v[i]);
    }
    if (n != 0) std::memcpy(out, in, n);
}

// The bytes of inputs and outputs together that stay in a cache of `cache_bytes`: five eighths of it, beside the rings,
// and at most what was measured. (Cache of 32 MiB, 2 ranks near: all_gather of 4 MiB takes 103 us past the caches and
// 90 through them, of 12 MiB 323 and 353; all_to_all of 4 MiB 123 and 119, of 7 MiB 222 and 255; broadcast of 8 MiB 161
// and 158, of 12 MiB 246 and 343.)
constexpr std::size_t most_kept_bytes(std::size_t cache_bytes) {
    constexpr std::size_t least = std::size_t{7} << 20, most = std::size_t{20} << 20;
    const std::size_t share = cache_bytes / 8 * 5;
    return share < least ? least : share > most ? most : share;
}

} // namespace detail

// Copies as memcpy does. A thread that synchronises with this one afterwards sees the copy.
inline void copy_past_caches(void* to, const void* from, std::size_t n) {
    detail::copy_unordered(to, from, n);
    detail::order_streaming_stores();
}

// As fold_for_others(), but all destinations are written past the caches. `also` (if not null), which others read soon,
// is written through them.
template <class Op, class T>
[[gnu::noinline]] void fold_past_caches(const Op& op, T* const* to, int destinations, T* also, const T* const* s,
                                        int sources, std::size_t n) {
    const auto send_past = [&](const T* result, std::size_t at, std::size_t m) {
        for (int d = 0; d < destinations; ++d) detail::copy_unordered(to[d] + at, result, m * sizeof(T));
    };
    const auto deliver = [&](const T* result, std::size_t at, std::size_t m) {
        write_for_others(also + at, result, m * sizeof(T));
        send_past(result, at, m);
    };
    T* const nothing_kept = nullptr;
    if (also == nullptr) fold_in_blocks<4096>(op, nothing_kept, s, sources, n, send_past);
    else fold_in_blocks<block_for_others>(op, nothing_kept, s, sources, n, deliver);
    detail::order_streaming_stores();
}

COLLX_END_NAMESPACE
