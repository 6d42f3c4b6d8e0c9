// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Properties of numbers for the operators: bounds, one, and a minimum and maximum of floating-point values whose bits
// do not depend on the order of the operands. It must not know about operators.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include <collx/core/config.hpp>
#include <collx/core/element.hpp>
#include <collx/core/half.hpp>
#include <collx/core/vector_ext.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <class T>
concept numeric = std::is_arithmetic_v<T> || is_half_v<T> || complex_like<T>;
template <class T>
concept bounded = std::is_arithmetic_v<T> || is_half_v<T>;
template <class T>
inline constexpr bool is_float_v = std::is_floating_point_v<T> || is_half_v<T>;

// Variables, not functions: device code may use a host constant, but not call std::numeric_limits<float>::max().
template <class T>
constexpr T highest() {
    if constexpr (std::numeric_limits<T>::has_infinity) return std::numeric_limits<T>::infinity();
    else return std::numeric_limits<T>::max();
}
template <class T>
constexpr T lowest() {
    if constexpr (std::numeric_limits<T>::has_infinity) return -std::numeric_limits<T>::infinity();
    else return std::numeric_limits<T>::lowest();
}
template <class T>
inline constexpr T highest_v = highest<T>();
template <class T>
inline constexpr T lowest_v = lowest<T>();
template <class T>
inline constexpr T quiet_nan_v = std::numeric_limits<T>::quiet_NaN();

template <class T>
COLLX_HD constexpr T one() {
    if constexpr (complex_like<T>) return T(one<typename T::value_type>(), typename T::value_type{});
    else if constexpr (is_half_v<T>) return T(1.0f);
    else return T(1);
}

// Whether T is an integer or a short vector of integers. Arithmetic on them wraps.
template <class T>
inline constexpr bool wraps_v = std::is_integral_v<lane_t<T>> && !std::is_same_v<lane_t<T>, bool>;

// Converts a number, or a short vector of integers to one of other integers of that size.
COLLX_EXEC_CHECK_DISABLE
template <class To, class From>
COLLX_HD constexpr To cast_lanes(const From& x) {
    if constexpr (is_short_vector_v<From>) return reinterpret_cast<To>(x);
    else return static_cast<To>(x);
}

// Whether T is a floating-point number or a short vector of them.
template <class T>
inline constexpr bool floating_lanes_v = is_float_v<lane_t<T>>;

// The type that divides a T: the scalar of a complex number or a matrix, T itself for a number.
template <class T>
constexpr auto scalar_type() {
    if constexpr (is_half_v<T>) return std::type_identity<float>{};
    else if constexpr (std::is_arithmetic_v<T>) return std::type_identity<T>{};
    else if constexpr (requires { typename T::Scalar; }) return std::type_identity<typename T::Scalar>{};
    else if constexpr (requires { typename T::value_type; }) return std::type_identity<typename T::value_type>{};
    else return std::type_identity<int>{};
}
template <class T>
using scalar_of = typename decltype(scalar_type<T>())::type;

template <class T>
COLLX_HD constexpr bool is_nan(const T& x) {
    if constexpr (is_float_v<T>) return x != x;
    else return false;
}

template <class T>
COLLX_HD constexpr bool sign_bit(const T& x) {
    if constexpr (is_half_v<T>) return (x.bits & 0x8000u) != 0u;
    else if constexpr (sizeof(T) == 4) return (__builtin_bit_cast(std::uint32_t, x) >> 31) != 0u;
    else if constexpr (sizeof(T) == 8) return (__builtin_bit_cast(std::uint64_t, x) >> 63) != 0u;
    else return __builtin_signbit(x);
}

// Selects the smaller, or the larger, of two values. Equal values can differ only in the sign of zero, so their bits
// can be joined: the smaller zero is negative if either is, the larger one if both are.
struct smaller {
    template <class V>
    static auto first(const V& a, const V& b) {
        return a < b;
    }
    template <class Bits>
    static Bits join(const Bits& chosen, const Bits& other, const Bits& equal) {
        return chosen | (other & equal);
    }
    static constexpr bool negative_zero = true;
};
struct larger {
    template <class V>
    static auto first(const V& a, const V& b) {
        return b < a;
    }
    template <class Bits>
    static Bits join(const Bits& chosen, const Bits& other, const Bits& equal) {
        return chosen & (other | ~equal);
    }
    static constexpr bool negative_zero = false;
};

#if defined(__CUDA_ARCH__)
// select_float in one instruction instead of four branches; only the bits of a NaN differ.
template <class Pick>
__device__ inline float select_by_hardware(float a, float b) {
    float x;
    if constexpr (Pick::negative_zero) asm("min.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    else asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
}
#endif

// Minimum or maximum. A NaN wins, -0 < +0, and (a, b) and (b, a) give the same bits.
template <class Pick, class T>
requires(!is_short_vector_v<T>) COLLX_HD constexpr T select_float(const T& a, const T& b) {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<T, float>)
        if (!__builtin_is_constant_evaluated()) return select_by_hardware<Pick>(a, b);
#endif
    if (is_nan(a) || is_nan(b)) {
        constexpr T nan = quiet_nan_v<T>;
        return nan;
    }
    if (a == b) return sign_bit(a) == Pick::negative_zero ? a : b;
    return (a < b) == Pick::negative_zero ? a : b;
}

template <class Pick, class V>
requires is_short_vector_v<V>
inline V select_float(const V& a, const V& b) {
    using mask = decltype(a < b);
    const mask chosen = reinterpret_cast<mask>(Pick::first(a, b) ? a : b);
    const V joined = reinterpret_cast<V>(Pick::join(chosen, reinterpret_cast<mask>(a), reinterpret_cast<mask>(a == b)));
    const V nan = V{} + quiet_nan_v<lane_t<V>>;
    return ((a != a) | (b != b)) ? nan : joined;
}

} // namespace detail

COLLX_END_NAMESPACE
