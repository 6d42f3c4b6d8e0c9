// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The shipped reduction operators: empty function objects that combine two elements. They take numbers, f16 and bf16,
// user classes that have the operator, and the compiler's short vectors (element by element, same rules).
// Rules for all of them, so that every rank can rely on them:
//   integers   wrap around, signed ones too;
//   min, max   a NaN wins and becomes the one quiet NaN of its type; -0 is less than +0. So the bits of the result do
//              not depend on the order and grouping. (Under -ffast-math the compiler drops both rules.)
//   plus, ...  of floating-point numbers round: their bits depend on the grouping, and NaN payloads on the order too.
// It must not know about buffers or algorithms; op_traits.hpp says what an algorithm may ask of an operator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/core/config.hpp>
#include <collx/core/element.hpp>
#include <collx/core/op_hooks.hpp>
#include <collx/core/op_select.hpp>
#include <collx/core/op_state.hpp>
#include <collx/core/op_traits.hpp>
#include <collx/core/scalar.hpp>
#include <collx/core/vector_ext.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// Sum. Refused for bool, whose sum would wrap at one and so be the parity.
struct plus {
    COLLX_EXEC_CHECK_DISABLE
    template <class T>
    requires requires(const T& a) { a + a; }
    COLLX_HD constexpr T operator()(const T& a, const T& b) const {
        static_assert(!std::is_same_v<T, bool>,
                      "collx::plus: the sum of bools is not a bool. Use collx::logical_or for 'any', "
                      "collx::logical_and for 'all', collx::bit_xor for parity, or an integer type to count.");
        if constexpr (detail::wraps_v<T>) {
            using unsigned_t = detail::wrapping_t<T>;
            return detail::cast_lanes<T>(detail::cast_lanes<unsigned_t>(a) + detail::cast_lanes<unsigned_t>(b));
        } else {
            return static_cast<T>(a + b);
        }
    }
    template <class T>
    requires detail::numeric<T> COLLX_HD static constexpr T identity() { return T{}; }
    static constexpr bool is_commutative = true; // by convention `+` of a user's class is, too
    template <class T>
    static constexpr bool is_exact_for = std::is_integral_v<T>;
    template <class T>
    static constexpr bool is_vectorisable_for = is_lane_v<T>;
};

// Product. Commutative for numbers only: a product of matrices is not.
struct multiplies {
    COLLX_EXEC_CHECK_DISABLE
    template <class T>
    requires requires(const T& a) { a* a; }
    COLLX_HD constexpr T operator()(const T& a, const T& b) const {
        if constexpr (detail::wraps_v<T>) {
            using unsigned_t = detail::wrapping_t<T>;
            return detail::cast_lanes<T>(detail::cast_lanes<unsigned_t>(a) * detail::cast_lanes<unsigned_t>(b));
        } else {
            return static_cast<T>(a * b);
        }
    }
    template <class T>
    requires detail::numeric<T> COLLX_HD static constexpr T identity() { return detail::one<T>(); }
    template <class T>
    static constexpr bool is_commutative_for = detail::numeric<T>;
    template <class T>
    static constexpr bool is_exact_for = std::is_integral_v<T>;
    template <class T>
    static constexpr bool is_vectorisable_for = is_lane_v<T>;
};

namespace detail {
// Types of which `<` finds neither smaller only if both are the same: then min(a, b) is min(b, a). A class may compare
// a part of itself; a floating-point number in it has two zeros.
template <class T>
inline constexpr bool is_ordered_whole_v = !std::is_class_v<T> && !std::is_union_v<T> && !std::is_floating_point_v<T>;
template <class A, class B>
inline constexpr bool is_ordered_whole_v<std::pair<A, B>> = is_ordered_whole_v<A>&& is_ordered_whole_v<B>;
template <class... Ts>
inline constexpr bool is_ordered_whole_v<std::tuple<Ts...>> = (is_ordered_whole_v<Ts> && ...);
} // namespace detail

// Smallest. For a class with `<`, the left operand is kept where neither is smaller, so ranks are combined in order; if
// only equal values are, say collx::commutative(collx::min{}).
struct min {
    COLLX_EXEC_CHECK_DISABLE
    template <class T>
    requires requires(const T& a) { a < a; }
    COLLX_HD constexpr T operator()(const T& a, const T& b) const {
        if constexpr (detail::floating_lanes_v<T>) return detail::select_float<detail::smaller>(a, b);
        else if constexpr (is_short_vector_v<T>) return a < b ? a : b;
        else return b < a ? b : a;
    }
    template <class T>
    requires detail::bounded<T> COLLX_HD static constexpr T identity() { return detail::highest_v<T>; }
    template <class T>
    static constexpr bool is_commutative_for = detail::is_float_v<accumulator_t<T>> || detail::is_ordered_whole_v<T>;
    template <class T>
    static constexpr bool is_exact_for = detail::bounded<T>;
    template <class T>
    static constexpr bool is_vectorisable_for = is_lane_v<T>;
};

// Largest, with the rules of min.
struct max {
    COLLX_EXEC_CHECK_DISABLE
    template <class T>
    requires requires(const T& a) { a < a; }
    COLLX_HD constexpr T operator()(const T& a, const T& b) const {
        if constexpr (detail::floating_lanes_v<T>) return detail::select_float<detail::larger>(a, b);
        else if constexpr (is_short_vector_v<T>) return a < b ? b : a;
        else return a < b ? b : a;
    }
    template <class T>
    requires detail::bounded<T> COLLX_HD static constexpr T identity() { return detail::lowest_v<T>; }
    template <class T>
    static constexpr bool is_commutative_for = detail::is_float_v<accumulator_t<T>> || detail::is_ordered_whole_v<T>;
    template <class T>
    static constexpr bool is_exact_for = detail::bounded<T>;
    template <class T>
    static constexpr bool is_vectorisable_for = is_lane_v<T>;
};

namespace detail {

// The properties that the three bit operators share.
struct bit_op {
    static constexpr bool is_commutative = true;
    static constexpr bool is_exact = true;
    template <class T>
    static constexpr bool is_vectorisable_for = is_lane_v<T>&& std::is_integral_v<T>;
};

struct logical_op {
    static constexpr bool is_commutative = true;
    static constexpr bool is_exact = true;
};

} // namespace detail

// a & b, bit by bit. Identity: all bits set.
struct bit_and : detail::bit_op {
    COLLX_EXEC_CHECK_DISABLE
    template <class T>
    requires requires(const T& a) { a& a; }
    COLLX_HD constexpr T operator()(const T& a, const T& b) const { return static_cast<T>(a & b); }
    template <class T>
    requires std::is_integral_v<T> COLLX_HD static constexpr T identity() {
        if constexpr (std::is_same_v<T, bool>) return true;
        else return static_cast<T>(~T(0));
    }
};

// a | b, bit by bit. Identity: 0.
struct bit_or : detail::bit_op {
    COLLX_EXEC_CHECK_DISABLE
    template <class T>
    requires requires(const T& a) { a | a; }
    COLLX_HD constexpr T operator()(const T& a, const T& b) const { return static_cast<T>(a | b); }
    template <class T>
    requires std::is_integral_v<T> COLLX_HD static constexpr T identity() { return T(0); }
};

// a ^ b, bit by bit. Identity: 0.
struct bit_xor : detail::bit_op {
    COLLX_EXEC_CHECK_DISABLE
    template <class T>
    requires requires(const T& a) { a ^ a; }
    COLLX_HD constexpr T operator()(const T& a, const T& b) const { return static_cast<T>(a ^ b); }
    template <class T>
    requires std::is_integral_v<T> COLLX_HD static constexpr T identity() { return T(0); }
};

// Whether both operands are true. The result is T(true) or T(false), whatever true values the operands have.
struct logical_and : detail::logical_op {
    COLLX_EXEC_CHECK_DISABLE
    template <class T>
    requires(requires(const T& a) { static_cast<bool>(a); } && !is_short_vector_v<T>) COLLX_HD constexpr T
    operator()(const T& a, const T& b) const {
        return static_cast<T>(static_cast<bool>(a) && static_cast<bool>(b));
    }
    template <class T>
    requires std::is_arithmetic_v<T> COLLX_HD static constexpr T identity() { return T(1); }
};

// Whether either operand is true; the result is T(true) or T(false).
struct logical_or : detail::logical_op {
    COLLX_EXEC_CHECK_DISABLE
    template <class T>
    requires(requires(const T& a) { static_cast<bool>(a); } && !is_short_vector_v<T>) COLLX_HD constexpr T
    operator()(const T& a, const T& b) const {
        return static_cast<T>(static_cast<bool>(a) || static_cast<bool>(b));
    }
    template <class T>
    requires std::is_arithmetic_v<T> COLLX_HD static constexpr T identity() { return T(0); }
};

// Whether exactly one operand is true; over many operands, in any grouping, their parity.
struct logical_xor : detail::logical_op {
    COLLX_EXEC_CHECK_DISABLE
    template <class T>
    requires(requires(const T& a) { static_cast<bool>(a); } && !is_short_vector_v<T>) COLLX_HD constexpr T
    operator()(const T& a, const T& b) const {
        return static_cast<T>(static_cast<bool>(a) != static_cast<bool>(b));
    }
    template <class T>
    requires std::is_arithmetic_v<T> COLLX_HD static constexpr T identity() { return T(0); }
};

// Mean over ranks: the sum is divided once at the end. A sum of integers wraps before it is divided, and the quotient
// is rounded towards zero.
struct average : plus {
    COLLX_EXEC_CHECK_DISABLE
    template <class T>
    requires requires(const T& a) { a + a; }
    COLLX_HD constexpr T post(const T& sum, hook_context context) const {
        if constexpr (std::is_integral_v<T>) {
            using word = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
            using wide = std::conditional_t<(sizeof(T) > sizeof(word)), T, word>;
            return static_cast<T>(static_cast<wide>(sum) / static_cast<wide>(context.nranks));
        } else if constexpr (is_short_vector_v<T>) {
            T quotient = sum;
            for (std::size_t i = 0; i < sizeof(T) / sizeof(lane_t<T>); ++i)
                quotient[i] = post(sum[i] + lane_t<T>{}, context);
            return quotient;
        } else {
            return static_cast<T>(sum / static_cast<detail::scalar_of<T>>(context.nranks));
        }
    }
};

// Sum of scaled contributions: each rank multiplies its own by its own `scale`, which may differ between ranks.
template <class Scale>
struct premultiplied_sum : plus {
    Scale scale;

    COLLX_HD constexpr explicit premultiplied_sum(Scale factor) : scale(factor) {}

    COLLX_EXEC_CHECK_DISABLE
    template <class T>
    requires requires(const T& x, const Scale& s) { static_cast<T>(x * s); }
    COLLX_HD constexpr T pre(const T& x) const { return static_cast<T>(x * scale); }
};

COLLX_END_NAMESPACE
