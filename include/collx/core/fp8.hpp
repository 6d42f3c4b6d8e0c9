// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The two 8-bit floating-point types as plain one-byte structs: e4m3 (four exponent bits, finite up to 448, no
// infinity) and e5m2 (five, up to 57344), with the bits of the OCP standard and of CUDA's __nv_fp8_e4m3 and e5m2.
// Arithmetic goes through float. Conversion from float rounds to nearest even and stays finite: larger values and
// infinity become the largest number, as CUDA's conversions do by default. A NaN stays a NaN. In a kernel the device
// converts where it can (compute capability 8.9), to the same bits except for a NaN's sign.
// Source: "OCP 8-bit Floating Point Specification", revision 1.0 (2023).
#pragma once

#include <cstdint>
#include <type_traits>

#include <collx/core/config.hpp>
#include <collx/core/half.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Rounds to 8 bits with `mantissa` bits below the exponent, whose bias is `bias`; larger results become max_bits.
COLLX_HD constexpr std::uint8_t fp8_bits_from_float(float value, int mantissa, int bias,
                                                    std::uint32_t max_bits) noexcept {
    const std::uint32_t x = __builtin_bit_cast(std::uint32_t, value);
    const auto sign = static_cast<std::uint8_t>((x >> 24) & 0x80u);
    const std::uint32_t magnitude = x & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
    const int exponent = static_cast<int>(magnitude >> 23) - 127, least = 1 - bias;
    // Values below half of the smallest number round to zero; so do float's own denormals.
    if (exponent < least - mantissa - 1) return sign;
    const int below = exponent < least ? least - exponent : 0, shift = 23 - mantissa + below;
    const std::uint32_t digits = (magnitude & 0x7fffffu) | 0x800000u;
    const std::uint32_t rest = digits & ((1u << shift) - 1u), tie = 1u << (shift - 1);
    std::uint32_t bits = digits >> shift;
    bits += (rest > tie || (rest == tie && (bits & 1u) != 0u)) ? 1u : 0u;
    // The leading one of a normal number adds one to the exponent field; so does a carry from rounding.
    if (exponent >= least) bits += static_cast<std::uint32_t>(exponent - least) << mantissa;
    return static_cast<std::uint8_t>(sign | (bits > max_bits ? max_bits : bits));
}

COLLX_HD constexpr float float_from_fp8_bits(std::uint8_t bits, int mantissa, int bias) noexcept {
    const std::uint32_t sign = (bits & 0x80u) << 24u;
    const std::uint32_t field = (bits & 0x7fu) >> mantissa, digits = bits & ((1u << mantissa) - 1u);
    if (field == 0) {
        // digits * 2^(1 - bias - mantissa), by the exponent of a float
        const auto scale = static_cast<std::uint32_t>(127 + 1 - bias - mantissa) << 23;
        const float tiny = static_cast<float>(digits) * __builtin_bit_cast(float, scale);
        return sign != 0u ? -tiny : tiny;
    }
    const std::uint32_t x = (field + 127u - static_cast<std::uint32_t>(bias)) << 23 | digits << (23 - mantissa);
    return __builtin_bit_cast(float, sign | x);
}

} // namespace detail

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define COLLX_FP8_HARDWARE 1
namespace detail::hardware {

// Exact: each 8-bit number has an equal f16.
__device__ inline float from_f16_bits(std::uint16_t bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

} // namespace detail::hardware
#endif

// Encodes and decodes the numbers of a format. Device instructions convert two numbers at a time, the first one in the
// lower bits, and decode to f16.
struct e4m3_format {
    COLLX_HD static constexpr std::uint8_t encode(float x) noexcept {
        return detail::fp8_bits_from_float(x, 3, 7, 0x7eu);
    }
    COLLX_HD static constexpr float decode(std::uint8_t b) noexcept {
        return (b & 0x7fu) == 0x7fu ? __builtin_nanf("") : detail::float_from_fp8_bits(b, 3, 7);
    }
#if defined(COLLX_FP8_HARDWARE)
    __device__ static std::uint16_t encode_two(float low, float high) {
        std::uint16_t bits;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
        return bits;
    }
    __device__ static std::uint32_t decode_two(std::uint16_t bits) {
        std::uint32_t both;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"(bits));
        return both;
    }
#endif
};

// The same with five bits of exponent and two of mantissa: more range, less precision; has infinities.
struct e5m2_format {
    COLLX_HD static constexpr std::uint8_t encode(float x) noexcept {
        return detail::fp8_bits_from_float(x, 2, 15, 0x7bu);
    }
    COLLX_HD static constexpr float decode(std::uint8_t b) noexcept {
        if ((b & 0x7fu) > 0x7cu) return __builtin_nanf("");
        if ((b & 0x7fu) == 0x7cu) return (b & 0x80u) != 0u ? -__builtin_inff() : __builtin_inff();
        return detail::float_from_fp8_bits(b, 2, 15);
    }
#if defined(COLLX_FP8_HARDWARE)
    __device__ static std::uint16_t encode_two(float low, float high) {
        std::uint16_t bits;
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
        return bits;
    }
    __device__ static std::uint32_t decode_two(std::uint16_t bits) {
        std::uint32_t both;
        asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(both) : "h"(bits));
        return both;
    }
#endif
};

// Converts one number or two, by device instructions where there are some.
template <class Numbers>
struct fp8_format {
    COLLX_HD static constexpr std::uint8_t bits_from_float(float x) noexcept {
#if defined(COLLX_FP8_HARDWARE)
        if (!__builtin_is_constant_evaluated()) return static_cast<std::uint8_t>(Numbers::encode_two(x, 0.0f));
#endif
        return Numbers::encode(x);
    }
    COLLX_HD static constexpr float float_from_bits(std::uint8_t b) noexcept {
#if defined(COLLX_FP8_HARDWARE)
        if (!__builtin_is_constant_evaluated())
            return detail::hardware::from_f16_bits(static_cast<std::uint16_t>(Numbers::decode_two(b)));
#endif
        return Numbers::decode(b);
    }
    COLLX_HD static void two_from_floats(std::uint8_t (&bits)[2], float low, float high) noexcept {
#if defined(COLLX_FP8_HARDWARE)
        const std::uint16_t both = Numbers::encode_two(low, high);
        bits[0] = static_cast<std::uint8_t>(both);
        bits[1] = static_cast<std::uint8_t>(both >> 8);
#else
        bits[0] = bits_from_float(low);
        bits[1] = bits_from_float(high);
#endif
    }
    COLLX_HD static void floats_from_two(float (&x)[2], std::uint8_t low, std::uint8_t high) noexcept {
#if defined(COLLX_FP8_HARDWARE)
        const std::uint32_t both =
            Numbers::decode_two(static_cast<std::uint16_t>(low | static_cast<unsigned>(high) << 8));
        x[0] = detail::hardware::from_f16_bits(static_cast<std::uint16_t>(both));
        x[1] = detail::hardware::from_f16_bits(static_cast<std::uint16_t>(both >> 16));
#else
        x[0] = float_from_bits(low);
        x[1] = float_from_bits(high);
#endif
    }
};
#undef COLLX_FP8_HARDWARE

// The template of e4m3 and e5m2. As in basic_half, float converts implicitly, other arithmetic types only explicitly.
template <class Format>
struct basic_fp8 {
    using format = fp8_format<Format>;
    std::uint8_t bits;

    basic_fp8() = default;

    template <class Float>
    requires std::is_same_v<Float, float> COLLX_HD constexpr basic_fp8(Float value) noexcept
        : bits(format::bits_from_float(value)) {}
    template <class Number>
    requires(std::is_arithmetic_v<Number> && !std::is_same_v<Number, float>)
        COLLX_HD constexpr explicit basic_fp8(Number value) noexcept
        : bits(format::bits_from_float(rounded(value))) {}

    COLLX_HD static constexpr basic_fp8 from_bits(std::uint8_t pattern) noexcept {
        basic_fp8 x{};
        x.bits = pattern;
        return x;
    }
    COLLX_HD constexpr operator float() const noexcept { return format::float_from_bits(bits); }

private:
    // Rounds to odd, so that the value is not rounded to the nearest twice.
    template <class Number>
    COLLX_HD static constexpr float rounded(Number value) noexcept {
        if constexpr (std::is_floating_point_v<Number>) return detail::round_to_odd(value);
        else return detail::round_to_odd_integer(value);
    }
};

// 8-bit floating-point numbers, as wire types and elements; sums are kept in float.
using e4m3 = basic_fp8<e4m3_format>;
using e5m2 = basic_fp8<e5m2_format>;

// Whether T is one of the 8-bit floating-point types.
template <class T>
inline constexpr bool is_fp8_v = false;
template <class Format>
inline constexpr bool is_fp8_v<basic_fp8<Format>> = true;

static_assert(sizeof(e4m3) == 1 && std::is_trivial_v<e4m3> && std::is_standard_layout_v<e4m3>);

COLLX_END_NAMESPACE
