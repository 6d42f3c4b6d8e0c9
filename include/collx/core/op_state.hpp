// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operators on running statistics: an element is the state of a partial result, and the operator merges two states.
// welford merges counts, means and sums of squared deviations; online_softmax merges a maximum and a sum of
// exponentials relative to it. Swapping the operands gives the same bits; only the grouping changes the rounding. It
// must not know about buffers.
#pragma once

#include <cstdint>
#include <type_traits>

#include <collx/core/config.hpp>
#include <collx/core/scalar.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// The number of values, their mean, and the sum of their squared deviations from it.
template <class T>
requires std::is_floating_point_v<T>
struct welford_state {
    std::uint64_t count;
    T mean;
    T m2;

    COLLX_HD static constexpr welford_state of(T value) { return {1, value, T(0)}; }
    COLLX_HD constexpr T variance() const { return count > 0 ? m2 / static_cast<T>(count) : T(0); }
    COLLX_HD constexpr T sample_variance() const { return count > 1 ? m2 / static_cast<T>(count - 1) : T(0); }
};

// Merges two welford_states.
// Source: T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample
//         variances" (1979); B. P. Welford (1962) for one value at a time.
struct welford {
    template <class T>
    COLLX_HD constexpr welford_state<T> operator()(const welford_state<T>& a, const welford_state<T>& b) const {
        const bool swapped = a.count < b.count;
        const welford_state<T>& large = swapped ? b : a;
        const welford_state<T>& small = swapped ? a : b;
        if (small.count == 0) return large;
        const std::uint64_t count = large.count + small.count;
        const T weight = static_cast<T>(small.count) / static_cast<T>(count);
        const T delta = small.mean - large.mean;
        // For equal counts the formula must be symmetric in every bit; halves are exact.
        const T mean = large.count == small.count ? large.mean / 2 + small.mean / 2 : large.mean + delta * weight;
        const T between = (delta * delta) * (static_cast<T>(large.count) * weight);
        return {count, mean, (large.m2 + small.m2) + between};
    }
    template <class S>
    requires std::is_same_v<S, welford_state<decltype(S::mean)>> COLLX_HD static constexpr S identity() {
        return S{0, 0, 0};
    }
    static constexpr bool is_commutative = true;
};

// The largest of some numbers x, and the sum of exp(x - max): log-sum-exp and softmax without overflow, in one pass.
template <class T>
requires std::is_floating_point_v<T>
struct softmax_state {
    T max;
    T sum;

    COLLX_HD static constexpr softmax_state of(T value) { return {value, T(1)}; }
};

namespace detail {

// <cmath> costs 0.16 s; the function is built into the compilers.
template <class T>
COLLX_HD inline T exponential(T x) {
#if defined(__CUDA_ARCH__)
    return exp(x);
#else
    if constexpr (std::is_same_v<T, float>) return __builtin_expf(x);
    else if constexpr (std::is_same_v<T, double>) return __builtin_exp(x);
    else return __builtin_expl(x);
#endif
}

} // namespace detail

// Merges two softmax_states. A NaN in either operand makes the result NaN.
// Source: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax" (2018).
struct online_softmax {
    template <class T>
    COLLX_HD softmax_state<T> operator()(const softmax_state<T>& a, const softmax_state<T>& b) const {
        // This includes two maxima of -infinity, and so avoids inf - inf. Zeros may differ in their signs.
        if (a.max == b.max) return {detail::select_float<detail::larger>(a.max, b.max), a.sum + b.sum};
        if (a.max < b.max) return {b.max, b.sum + a.sum * detail::exponential(a.max - b.max)};
        if (b.max < a.max) return {a.max, a.sum + b.sum * detail::exponential(b.max - a.max)};
        constexpr T nan = detail::quiet_nan_v<T>;
        return {nan, nan};
    }
    template <class S>
    requires std::is_same_v<S, softmax_state<decltype(S::max)>> COLLX_HD static constexpr S identity() {
        constexpr auto lowest = detail::lowest_v<decltype(S::max)>;
        return S{lowest, 0};
    }
    static constexpr bool is_commutative = true;
};

COLLX_END_NAMESPACE
