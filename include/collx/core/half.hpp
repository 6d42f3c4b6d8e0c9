// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The two 16-bit floating-point types of machine learning as plain two-byte structs, so that a CPU-only build needs no
// CUDA header. `f16` has the bits of IEEE 754 binary16 (and of CUDA's __half), `bf16` those of bfloat16 (the upper half
// of a float, __nv_bfloat16). All arithmetic goes through float: `a + b` is a float, and storing it rounds once.
// It must not know about buffers.
// In a kernel the device converts, to the same bits except for a NaN, which stays a NaN but loses its sign and payload.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include <collx/core/config.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// float -> binary16, round to nearest even. A NaN keeps its sign and upper payload and becomes quiet.
COLLX_HD constexpr std::uint16_t f16_bits_from_float(float value) noexcept {
    const std::uint32_t x = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t sign = (x >> 16) & 0x8000u;
    const std::uint32_t magnitude = x & 0x7fffffffu;
    std::uint32_t half = 0;
    if (magnitude > 0x7f800000u) {
        half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    } else if (magnitude >= 0x47800000u) { // 2^16 and up; what lies below rounds to infinity by carry
        half = 0x7c00u;
    } else if (magnitude >= 0x38800000u) { // 2^-14: the normal numbers
        const std::uint32_t rebiased = magnitude - (112u << 23);
        half = (rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13;
    } else if (magnitude > 0x33000000u) { // above 2^-25, which is a tie and rounds to zero
        const std::uint32_t shift = 126u - (magnitude >> 23);
        const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
        const std::uint32_t rest = mantissa & ((1u << shift) - 1u);
        const std::uint32_t tie = 1u << (shift - 1u);
        half = mantissa >> shift;
        half += (rest > tie || (rest == tie && (half & 1u) != 0u)) ? 1u : 0u;
    }
    return static_cast<std::uint16_t>(sign | half);
}

// binary16 -> float, exact. A signalling NaN becomes quiet, as the hardware instruction does.
COLLX_HD constexpr float float_from_f16_bits(std::uint16_t bits) noexcept {
    const std::uint32_t sign = (bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fu;
    const std::uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 0u) {
        const float tiny = static_cast<float>(mantissa) * 0x1p-24f;
        return sign != 0u ? -tiny : tiny;
    }
    std::uint32_t x = ((exponent + 112u) << 23) | (mantissa << 13);
    if (exponent == 31u) x = 0x7f800000u | (mantissa << 13) | (mantissa != 0u ? 0x400000u : 0u);
    return __builtin_bit_cast(float, sign | x);
}

// float -> bfloat16, round to nearest even. A NaN keeps its sign and upper payload and becomes quiet.
COLLX_HD constexpr std::uint16_t bf16_bits_from_float(float value) noexcept {
    const std::uint32_t x = __builtin_bit_cast(std::uint32_t, value);
    if ((x & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((x >> 16) | 0x40u);
    return static_cast<std::uint16_t>((x + 0x7fffu + ((x >> 16) & 1u)) >> 16);
}

COLLX_HD constexpr float float_from_bf16_bits(std::uint16_t bits) noexcept {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
}

// double or long double -> float rounded to odd: the low bit is set where digits were cut off, so that a second
// rounding to fewer bits gives the same result as one rounding of the double.
// Source: S. Boldo, G. Melquiond, "When double rounding is odd" (2005).
template <class Wide>
COLLX_HD constexpr float round_to_odd(Wide value) noexcept {
    const bool is_nan = value != value;
    const bool is_huge = value >= 0x1.fffffep127 || value <= -0x1.fffffep127; // infinite in 16 bits either way
    if (is_nan || is_huge) {
        const float magnitude = is_nan ? __builtin_nanf("") : __builtin_inff();
        bool negative = false;
        if constexpr (sizeof(Wide) == 8) negative = (__builtin_bit_cast(std::uint64_t, value) >> 63) != 0u;
        else negative = __builtin_signbit(value) != 0;
        return negative ? -magnitude : magnitude;
    }
    const float near = static_cast<float>(value);
    const Wide back = static_cast<Wide>(near);
    if (back == value) return near;
    const bool away = value < 0 ? back < value : back > value;
    std::uint32_t bits = __builtin_bit_cast(std::uint32_t, near);
    bits -= away ? 1u : 0u;
    return __builtin_bit_cast(float, bits | 1u);
}

template <class Integer>
COLLX_HD constexpr float round_to_odd_integer(Integer value) noexcept {
    const bool negative = value < Integer(0);
    double scale = 1;
    std::uint64_t magnitude = static_cast<std::uint64_t>(value);
    if constexpr (sizeof(Integer) > 8) { // 128 bits, where std::is_integral includes them
        auto all = static_cast<std::make_unsigned_t<Integer>>(value);
        for (all = negative ? 0 - all : all; (all >> 64) != 0; scale *= 2) all = (all >> 1) | (all & 1);
        magnitude = static_cast<std::uint64_t>(all);
    } else {
        magnitude = negative ? std::uint64_t(0) - magnitude : magnitude;
    }
    if ((magnitude >> 53) != 0u) {
        magnitude = (magnitude >> 11) | ((magnitude & 0x7ffu) != 0u ? 1u : 0u);
        scale *= 2048;
    }
    const double exact = static_cast<double>(magnitude) * scale;
    return round_to_odd(negative ? -exact : exact);
}

} // namespace detail

// The template of f16 and bf16. `Format` supplies the two conversions of the bits.
// A float converts implicitly (storing a result of float arithmetic), any other arithmetic type only explicitly.
template <class Format>
struct basic_half {
    using format = Format;
    static constexpr int exponent_bits = Format::exponent_bits;

    std::uint16_t bits;

    basic_half() = default;

    template <class Float>
    requires std::is_same_v<Float, float> COLLX_HD constexpr basic_half(Float value) noexcept
        : bits(Format::bits_from_float(value)) {}
    COLLX_HD constexpr explicit basic_half(double value) noexcept
        : bits(Format::bits_from_float(detail::round_to_odd(value))) {}
    template <class Wide>
    requires std::is_same_v<Wide, long double> COLLX_HD constexpr explicit basic_half(Wide value) noexcept
        : bits(Format::bits_from_float(detail::round_to_odd(value))) {}
    template <class Integer>
    requires std::is_integral_v<Integer> COLLX_HD constexpr explicit basic_half(Integer value) noexcept
        : bits(Format::bits_from_float(detail::round_to_odd_integer(value))) {}

    COLLX_HD static constexpr basic_half from_bits(std::uint16_t pattern) noexcept {
        basic_half half{};
        half.bits = pattern;
        return half;
    }

    COLLX_HD constexpr operator float() const noexcept { return Format::float_from_bits(bits); }

    COLLX_HD constexpr basic_half operator-() const noexcept {
        return from_bits(static_cast<std::uint16_t>(bits ^ 0x8000u));
    }

    COLLX_HD constexpr basic_half& operator+=(float other) noexcept { return *this = float(*this) + other; }
    COLLX_HD constexpr basic_half& operator-=(float other) noexcept { return *this = float(*this) - other; }
    COLLX_HD constexpr basic_half& operator*=(float other) noexcept { return *this = float(*this) * other; }
    COLLX_HD constexpr basic_half& operator/=(float other) noexcept { return *this = float(*this) / other; }
};

#if defined(__CUDA_ARCH__)
namespace detail::hardware {

__device__ inline std::uint16_t f16_bits(float x) {
    std::uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
__device__ inline std::uint16_t bf16_bits(float x) {
    std::uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
__device__ inline float from_f16(std::uint16_t bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
// Two at once: the bits of `low` are the lower ones.
__device__ inline std::uint32_t two_f16(float low, float high) {
    std::uint32_t bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
__device__ inline std::uint32_t two_bf16(float low, float high) {
    std::uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

} // namespace detail::hardware
#endif

// The format of f16: IEEE 754 binary16, 5 bits of exponent and 11 digits.
struct binary16 {
    COLLX_HD static constexpr std::uint16_t bits_from_float(float x) noexcept {
#if defined(__CUDA_ARCH__)
        if (!__builtin_is_constant_evaluated()) return detail::hardware::f16_bits(x);
#endif
        return detail::f16_bits_from_float(x);
    }
    COLLX_HD static constexpr float float_from_bits(std::uint16_t b) noexcept {
#if defined(__CUDA_ARCH__)
        if (!__builtin_is_constant_evaluated()) return detail::hardware::from_f16(b);
#endif
        return detail::float_from_f16_bits(b);
    }
    COLLX_HD static void two_from_floats(std::uint16_t (&bits)[2], float low, float high) noexcept {
#if defined(__CUDA_ARCH__)
        const std::uint32_t both = detail::hardware::two_f16(low, high);
        bits[0] = static_cast<std::uint16_t>(both);
        bits[1] = static_cast<std::uint16_t>(both >> 16);
#else
        bits[0] = bits_from_float(low);
        bits[1] = bits_from_float(high);
#endif
    }
    static constexpr std::uint16_t max_bits = 0x7bff, infinity_bits = 0x7c00, quiet_nan_bits = 0x7e00;
    static constexpr std::uint16_t min_bits = 0x0400, epsilon_bits = 0x1400;
    static constexpr int exponent_bits = 5, digits = 11, max_exponent = 16, min_exponent = -13;
};

// The format of bf16: the upper half of a float, 8 bits of exponent and 8 digits.
struct bfloat16 {
    COLLX_HD static constexpr std::uint16_t bits_from_float(float x) noexcept {
#if defined(__CUDA_ARCH__)
        if (!__builtin_is_constant_evaluated()) return detail::hardware::bf16_bits(x);
#endif
        return detail::bf16_bits_from_float(x);
    }
    COLLX_HD static void two_from_floats(std::uint16_t (&bits)[2], float low, float high) noexcept {
#if defined(__CUDA_ARCH__)
        const std::uint32_t both = detail::hardware::two_bf16(low, high);
        bits[0] = static_cast<std::uint16_t>(both);
        bits[1] = static_cast<std::uint16_t>(both >> 16);
#else
        bits[0] = bits_from_float(low);
        bits[1] = bits_from_float(high);
#endif
    }
    COLLX_HD static constexpr float float_from_bits(std::uint16_t b) noexcept {
        return detail::float_from_bf16_bits(b);
    }
    // Decodes the two numbers of one word of memory, the lower half first.
    COLLX_HD static void floats_from_word(float (&x)[2], std::uint32_t both) noexcept {
        x[0] = __builtin_bit_cast(float, both << 16);
        x[1] = __builtin_bit_cast(float, both & 0xffff0000u);
    }
    static constexpr std::uint16_t max_bits = 0x7f7f, infinity_bits = 0x7f80, quiet_nan_bits = 0x7fc0;
    static constexpr std::uint16_t min_bits = 0x0080, epsilon_bits = 0x3c00;
    static constexpr int exponent_bits = 8, digits = 8, max_exponent = 128, min_exponent = -125;
};

// 16-bit floating-point numbers, as wire types and elements; sums are kept in float.
using f16 = basic_half<binary16>;
using bf16 = basic_half<bfloat16>;

static_assert(sizeof(f16) == 2 && alignof(f16) == 2 && std::is_trivial_v<f16> && std::is_standard_layout_v<f16>);
static_assert(sizeof(bf16) == 2 && alignof(bf16) == 2 && std::is_trivial_v<bf16> && std::is_standard_layout_v<bf16>);

// Whether T is f16 or bf16.
template <class T>
inline constexpr bool is_half_v = false;
template <class Format>
inline constexpr bool is_half_v<basic_half<Format>> = true;

COLLX_END_NAMESPACE

// The standard allows a program to describe its own numeric types here.
template <class Format>
struct std::numeric_limits<collx::basic_half<Format>> {
    using half = collx::basic_half<Format>;
    static constexpr bool is_specialized = true, is_signed = true, is_integer = false, is_exact = false;
    static constexpr bool has_infinity = true, has_quiet_NaN = true, has_signaling_NaN = true, is_iec559 = true;
    static constexpr bool is_bounded = true, is_modulo = false;
    static constexpr int radix = 2, digits = Format::digits, digits10 = (Format::digits - 1) * 30103 / 100000;
    static constexpr int max_digits10 = Format::digits * 30103 / 100000 + 2;
    static constexpr int max_exponent = Format::max_exponent, min_exponent = Format::min_exponent;
    static constexpr int max_exponent10 = Format::max_exponent * 30103 / 100000;
    static constexpr int min_exponent10 = (Format::min_exponent - 1) * 30103 / 100000;
    static constexpr std::float_denorm_style has_denorm = std::denorm_present;
    static constexpr std::float_round_style round_style = std::round_to_nearest;
    static constexpr bool has_denorm_loss = false, traps = false, tinyness_before = false;
    COLLX_HD static constexpr half min() noexcept { return half::from_bits(Format::min_bits); }
    COLLX_HD static constexpr half max() noexcept { return half::from_bits(Format::max_bits); }
    COLLX_HD static constexpr half lowest() noexcept { return -max(); }
    COLLX_HD static constexpr half epsilon() noexcept { return half::from_bits(Format::epsilon_bits); }
    COLLX_HD static constexpr half infinity() noexcept { return half::from_bits(Format::infinity_bits); }
    COLLX_HD static constexpr half quiet_NaN() noexcept { return half::from_bits(Format::quiet_nan_bits); }
    COLLX_HD static constexpr half signaling_NaN() noexcept { return half::from_bits(Format::infinity_bits | 1); }
    COLLX_HD static constexpr half round_error() noexcept { return half(0.5f); }
    COLLX_HD static constexpr half denorm_min() noexcept { return half::from_bits(1); }
};
