// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What may travel: the element types. An element is copied as bytes from one rank to another, so it must be trivially
// copyable, or its owner says that its bytes suffice (`enable_wire`). It must not know how bytes move, nor any foreign
// header: Eigen's matrices and every complex type are recognised by shape.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility> // declares std::tuple, which std::pair speaks of; <tuple> is included where one is made

#include <collx/core/config.hpp>
#include <collx/core/fp8.hpp>
#include <collx/core/half.hpp>
#include <collx/core/type_name.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// Opt in: "the bytes of a T are all there is to it", for a class whose copy constructor or assignment is not trivial.
// Requires: no pointers, no references, no resources inside.
// Example: template <> inline constexpr bool collx::enable_wire<my::rotation> = true;
template <class T>
inline constexpr bool enable_wire = false;

namespace detail {

// std::complex, cuda::std::complex and their like: two scalars, real() first.
template <class T>
concept complex_like = std::is_class_v<T> && requires(const T& z, typename T::value_type part) {
    requires std::is_arithmetic_v<typename T::value_type> || is_half_v<typename T::value_type>;
    requires sizeof(T) == 2 * sizeof(typename T::value_type);
    { z.real() } -> std::convertible_to<typename T::value_type>;
    { z.imag() } -> std::convertible_to<typename T::value_type>;
    T(part, part);
};

// Eigen::Matrix and Eigen::Array whose size is known: the scalars lie in the object itself. A Map or an expression has
// a size too, but is not its own plain object.
template <class T>
concept fixed_matrix_like = std::is_class_v<T> && requires {
    typename T::Scalar;
    typename T::PlainObject;
    requires std::is_same_v<typename T::PlainObject, T>;
    requires int(T::SizeAtCompileTime) > 0;
    requires sizeof(T) >= std::size_t(T::SizeAtCompileTime) * sizeof(typename T::Scalar);
};

} // namespace detail

// True where the bytes of a T mean the same on another rank.
template <class T>
inline constexpr bool is_wire_v = [] {
    if constexpr (enable_wire<T>) return true;
    else if constexpr (detail::fixed_matrix_like<T>) return is_wire_v<typename T::Scalar>;
    else if constexpr (std::is_pointer_v<T> || std::is_member_pointer_v<T> || std::is_null_pointer_v<T>)
        return false; // an address of this process
    else if constexpr (std::is_object_v<T> && !std::is_array_v<T>)
        return std::is_trivially_copyable_v<T> || detail::complex_like<T>;
    else return false;
}();

// The standard's pair and tuple have assignments that are not trivial, though their bytes suffice.
template <class A, class B>
inline constexpr bool enable_wire<std::pair<A, B>> = is_wire_v<A>&& is_wire_v<B>;
template <class... Ts>
inline constexpr bool enable_wire<std::tuple<Ts...>> = (is_wire_v<Ts> && ...);

// One element of a tensor: an object that can be copied as bytes.
template <class T>
concept Element = std::is_same_v<T, std::remove_cv_t<T>> && is_wire_v<T>;

// Refuses, with a sentence, a type that is no element. To a type with a destructor of its own the advice to send its
// bytes would be wrong: what it owns is elsewhere.
template <class T>
constexpr void require_element() {
    constexpr bool owns = std::is_object_v<T> && !std::is_trivially_destructible_v<T>;
    static_assert(Element<T> || !owns,
                  "collx: elements travel between ranks as bytes, and this type has a destructor: what it owns lies "
                  "elsewhere. Send its parts as buffers of their own, or objects by collx/interop/cereal.hpp.");
    static_assert(Element<T> || owns,
                  "collx: this element type cannot travel between ranks as bytes. Make it trivially copyable, or say "
                  "that its bytes suffice with collx::enable_wire<T> = true.");
}

// The type sums are kept in while they are computed; specialise `accumulator` for your own narrow types.
template <class T>
struct accumulator {
    using type = T;
};
template <class Format>
struct accumulator<basic_half<Format>> {
    using type = float; // a sum kept in bf16 stops growing at 256
};
template <class Format>
struct accumulator<basic_fp8<Format>> {
    using type = float;
};
// The type that sums of T are kept in.
template <class T>
using accumulator_t = typename accumulator<T>::type;

COLLX_END_NAMESPACE
