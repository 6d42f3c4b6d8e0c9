// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bulk conversion between the 16-bit types and float: leaf loops on short vectors, because GCC 12 at -O2 vectorises no
// loop by itself and one element at a time is several times slower. The bits are those of half.hpp, NaNs included.
// f16 uses the processor's instructions where the translation unit is compiled for them (-mf16c), integer arithmetic
// elsewhere. It must not know about buffers or operators.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/config.hpp>
#include <collx/core/half.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// Converts n elements; source and destination do not overlap and need no alignment.
// This template goes one by one; the overloads below are the fast ones.
template <class To, class From>
inline void convert_n(To* dst, const From* src, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) dst[i] = static_cast<To>(src[i]);
}

#if defined(__GNUC__) && !defined(__CUDACC__)

namespace detail {

// Eight elements at a time: one 16-byte vector of patterns and as many vectors of 32-bit lanes as the registers ask
// for. (Wider vectors than the processor has would compile, into one element at a time.)
#if defined(__AVX2__)
inline constexpr int register_bytes = 32;
#else
inline constexpr int register_bytes = 16;
#endif
inline constexpr int convert_block = 8;
inline constexpr int convert_parts = 4 * convert_block / register_bytes;

typedef std::uint16_t patterns16 __attribute__((vector_size(16)));
typedef std::int32_t patterns32 __attribute__((vector_size(register_bytes)));
typedef std::uint32_t unsigned32 __attribute__((vector_size(register_bytes)));
typedef float floats32 __attribute__((vector_size(register_bytes)));

COLLX_ALWAYS_INLINE void unpack(const void* src, unsigned32 (&parts)[convert_parts]) {
    patterns16 packed;
    __builtin_memcpy(&packed, src, sizeof packed);
#if defined(__AVX2__)
    parts[0] = __builtin_convertvector(packed, unsigned32);
#else
    constexpr patterns16 zero = {};
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    parts[0] = (unsigned32)__builtin_shufflevector(packed, zero, 0, 8, 1, 9, 2, 10, 3, 11);
    parts[1] = (unsigned32)__builtin_shufflevector(packed, zero, 4, 12, 5, 13, 6, 14, 7, 15);
#else
    parts[0] = (unsigned32)__builtin_shufflevector(zero, packed, 0, 8, 1, 9, 2, 10, 3, 11);
    parts[1] = (unsigned32)__builtin_shufflevector(zero, packed, 4, 12, 5, 13, 6, 14, 7, 15);
#endif
#endif
}

// Keeps the low 16 bits of each lane.
COLLX_ALWAYS_INLINE void pack(void* dst, const unsigned32 (&parts)[convert_parts]) {
#if defined(__AVX2__)
    const patterns16 packed = __builtin_convertvector(parts[0], patterns16);
#else
    constexpr int low = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : 1;
    const patterns16 packed = __builtin_shufflevector((patterns16)parts[0], (patterns16)parts[1], low, low + 2, low + 4,
                                                      low + 6, low + 8, low + 10, low + 12, low + 14);
#endif
    __builtin_memcpy(dst, &packed, sizeof packed);
}

// Comparisons give masks of all ones, so `&` with a mask selects.
COLLX_ALWAYS_INLINE void widen_f16(floats32& wide, const unsigned32& patterns) {
    const patterns32 h = (patterns32)patterns;
    const patterns32 sign = (h & 0x8000) << 16;
    const patterns32 magnitude = h & 0x7fff;
    const patterns32 normal = (magnitude << 13) + (112 << 23);
    // No denormal float takes part, so the processor may be set to flush them.
    const patterns32 tiny = (patterns32)(__builtin_convertvector(magnitude, floats32) * 0x1p-24f);
    const patterns32 special = (magnitude << 13) | 0x7f800000 | ((magnitude > 0x7c00) & 0x400000);
    const patterns32 is_tiny = magnitude < 0x400;
    const patterns32 is_special = magnitude >= 0x7c00;
    wide = (floats32)(sign | (is_tiny & tiny) | (is_special & special) | (~(is_tiny | is_special) & normal));
}

COLLX_ALWAYS_INLINE void narrow_f16(unsigned32& patterns, const floats32& wide) {
    const patterns32 x = (patterns32)wide;
    const patterns32 magnitude = x & 0x7fffffff;
    const patterns32 sign = (patterns32)((unsigned32)x >> 16) & 0x8000;
    const patterns32 rebiased = magnitude - (112 << 23);
    const patterns32 normal = (rebiased + 0xfff + ((rebiased >> 13) & 1)) >> 13;
    // One half has steps of 2^-24, the step of the denormal results: adding it rounds to them.
    const patterns32 tiny = (patterns32)((floats32)magnitude + 0.5f) - 0x3f000000;
    const patterns32 nan = ((magnitude >> 13) & 0x3ff) | 0x7e00;
    const patterns32 is_nan = magnitude > 0x7f800000;
    const patterns32 is_tiny = magnitude < 0x38800000;
    const patterns32 is_huge = (magnitude >= 0x47800000) & ~is_nan;
    const patterns32 is_normal = ~(is_tiny | is_huge | is_nan);
    patterns = (unsigned32)(sign | (is_tiny & tiny) | (is_huge & 0x7c00) | (is_nan & nan) | (is_normal & normal));
}

COLLX_ALWAYS_INLINE void narrow_bf16(unsigned32& patterns, const floats32& wide) {
    const unsigned32 x = (unsigned32)wide;
    const unsigned32 is_nan = (unsigned32)(((patterns32)x & 0x7fffffff) > 0x7f800000);
    const unsigned32 rounded = (x + 0x7fff + ((x >> 16) & 1)) >> 16;
    const unsigned32 nan = (x >> 16) | 0x40;
    patterns = (is_nan & nan) | (~is_nan & rounded);
}

#if defined(__F16C__)
typedef short f16c_patterns __attribute__((vector_size(16)));
typedef float f16c_floats __attribute__((vector_size(32)));
#endif

template <class Half>
COLLX_ALWAYS_INLINE void widen_block(float* dst, const Half* src) {
#if defined(__F16C__)
    if constexpr (Half::exponent_bits == 5) {
        f16c_patterns packed;
        __builtin_memcpy(&packed, src, sizeof packed);
        const f16c_floats wide = __builtin_ia32_vcvtph2ps256(packed);
        __builtin_memcpy(dst, &wide, sizeof wide);
        return;
    }
#endif
    unsigned32 parts[convert_parts];
    unpack(src, parts);
    for (int p = 0; p < convert_parts; ++p) {
        floats32 wide;
        if constexpr (Half::exponent_bits == 8) wide = (floats32)(parts[p] << 16);
        else widen_f16(wide, parts[p]);
        __builtin_memcpy(dst + p * (convert_block / convert_parts), &wide, sizeof wide);
    }
}

template <class Half>
COLLX_ALWAYS_INLINE void narrow_block(Half* dst, const float* src) {
#if defined(__F16C__)
    if constexpr (Half::exponent_bits == 5) {
        f16c_floats wide;
        __builtin_memcpy(&wide, src, sizeof wide);
        const f16c_patterns packed = __builtin_ia32_vcvtps2ph256(wide, 0); // 0: to nearest even
        __builtin_memcpy(dst, &packed, sizeof packed);
        return;
    }
#endif
    unsigned32 parts[convert_parts];
    for (int p = 0; p < convert_parts; ++p) {
        floats32 wide;
        __builtin_memcpy(&wide, src + p * (convert_block / convert_parts), sizeof wide);
        if constexpr (Half::exponent_bits == 8) narrow_bf16(parts[p], wide);
        else narrow_f16(parts[p], wide);
    }
    pack(dst, parts);
}

template <class Half>
inline void widen_n(float* dst, const Half* src, std::size_t n) {
    const std::size_t whole = n - n % convert_block;
    for (std::size_t i = 0; i < whole; i += convert_block) widen_block(dst + i, src + i);
    for (std::size_t i = whole; i < n; ++i) dst[i] = static_cast<float>(src[i]);
}
template <class Half>
inline void narrow_n(Half* dst, const float* src, std::size_t n) {
    const std::size_t whole = n - n % convert_block;
    for (std::size_t i = 0; i < whole; i += convert_block) narrow_block(dst + i, src + i);
    for (std::size_t i = whole; i < n; ++i) dst[i] = Half(src[i]);
}

} // namespace detail

inline void convert_n(float* dst, const f16* src, std::size_t n) { detail::widen_n(dst, src, n); }
inline void convert_n(float* dst, const bf16* src, std::size_t n) { detail::widen_n(dst, src, n); }
inline void convert_n(f16* dst, const float* src, std::size_t n) { detail::narrow_n(dst, src, n); }
inline void convert_n(bf16* dst, const float* src, std::size_t n) { detail::narrow_n(dst, src, n); }

#endif

COLLX_END_NAMESPACE
