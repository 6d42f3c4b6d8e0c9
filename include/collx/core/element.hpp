// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element types. An element is copied as bytes from one rank to another. So it must be trivially copyable, or its owner
// declares that its bytes suffice (`enable_wire`). It must not know how bytes move, nor any foreign header: Eigen's
// matrices and every complex type are recognised by their members.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility> // declares std::tuple, which std::pair names; <tuple> is included where one is made

#include <collx/core/config.hpp>
#include <collx/core/fp8.hpp>
#include <collx/core/half.hpp>
#include <collx/core/type_name.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// Specialise as true if the bytes of a T are its whole value though its copy constructor or assignment is not trivial.
// Requires: no pointers, no references, no resources inside.
// Example: template <> inline constexpr bool collx::enable_wire<my::rotation> = true;
template <class T>
inline constexpr bool enable_wire = false;

namespace detail {

// std::complex, cuda::std::complex and similar types: two scalars, real() first.
template <class T>
concept complex_like = std::is_class_v<T> && requires(const T& z, typename T::value_type part) {
    requires std::is_arithmetic_v<typename T::value_type> || is_half_v<typename T::value_type>;
    requires sizeof(T) == 2 * sizeof(typename T::value_type);
    { z.real() } -> std::convertible_to<typename T::value_type>;
    { z.imag() } -> std::convertible_to<typename T::value_type>;
    T(part, part);
};

// Eigen::Matrix and Eigen::Array of fixed size: the scalars lie in the object itself. A Map or an expression has a size
// too, but its PlainObject is another type.
template <class T>
concept fixed_matrix_like = std::is_class_v<T> && requires {
    typename T::Scalar;
    typename T::PlainObject;
    requires std::is_same_v<typename T::PlainObject, T>;
    requires int(T::SizeAtCompileTime) > 0;
    requires sizeof(T) >= std::size_t(T::SizeAtCompileTime) * sizeof(typename T::Scalar);
};

// A pointer in a class: std::string_view, std::span, std::reference_wrapper, std::initializer_list, a view of collx. A
// class that holds a few elements itself looks the same if it is made from a pointer and a size: its owner says
// enable_wire.
template <class T>
concept refers_elsewhere = std::is_class_v<T> && sizeof(T) <= 2 * sizeof(void*) &&
                           (
                               requires(const T& t) {
                                   requires std::is_pointer_v<decltype(t.data())>;
                                   requires std::is_constructible_v<T, decltype(t.data()), std::size_t>;
                                   { t.size() } -> std::convertible_to<std::size_t>;
                               } ||
                               requires(const T& t) {
                                   typename T::type;
                                   requires std::is_same_v<decltype(t.get()), typename T::type&>;
                               } ||
                               requires(const T& t) {
                                   requires std::is_same_v<typename T::iterator, const typename T::value_type*>;
                                   requires std::is_same_v<typename T::reference, const typename T::value_type&>;
                                   { t.begin() } -> std::same_as<typename T::iterator>;
                               });

} // namespace detail

// True if the bytes of a T mean the same on another rank.
template <class T>
inline constexpr bool is_wire_v = [] {
    if constexpr (enable_wire<T>) return true;
    else if constexpr (detail::fixed_matrix_like<T>) return is_wire_v<typename T::Scalar>;
    else if constexpr (std::is_pointer_v<T> || std::is_member_pointer_v<T> || std::is_null_pointer_v<T>)
        return false; // an address is valid in one process only
    else if constexpr (detail::refers_elsewhere<T>) return false;
    else if constexpr (std::is_object_v<T> && !std::is_array_v<T>)
        return std::is_trivially_copyable_v<T> || detail::complex_like<T>;
    else return false;
}();

// The assignments of std::pair and std::tuple are not trivial, but their bytes suffice.
template <class A, class B>
inline constexpr bool enable_wire<std::pair<A, B>> = is_wire_v<A>&& is_wire_v<B>;
template <class... Ts>
inline constexpr bool enable_wire<std::tuple<Ts...>> = (is_wire_v<Ts> && ...);

// One element of a tensor: an object that can be copied as bytes.
template <class T>
concept Element = std::is_same_v<T, std::remove_cv_t<T>> && is_wire_v<T>;

// Refuses, with a message, a type that is no element. A type with a destructor gets another message, because sending
// its bytes would be wrong: what it owns is elsewhere.
template <class T>
constexpr void require_element() {
    constexpr bool owns = std::is_object_v<T> && !std::is_trivially_destructible_v<T>;
    constexpr bool refers = detail::refers_elsewhere<T> && !Element<T>;
    static_assert(
        !refers, "collx: elements travel between ranks as bytes, and this type is an address in this process's "
                 "memory. Send what it refers to: a buffer of its own, or std::vector<char> for texts. If it holds all "
                 "elements itself, say so with collx::enable_wire<T> = true.");
    static_assert(Element<T> || !owns,
                  "collx: elements travel between ranks as bytes, and this type has a destructor: what it owns lies "
                  "elsewhere. Send its parts as buffers of their own, or objects by collx/interop/cereal.hpp.");
    static_assert(Element<T> || owns || refers,
                  "collx: this element type cannot travel between ranks as bytes. Make it trivially copyable, or say "
                  "that its bytes suffice with collx::enable_wire<T> = true.");
}

// The type in which sums of T are computed; specialise `accumulator` for your own narrow types.
template <class T>
struct accumulator {
    using type = T;
};
template <class Format>
struct accumulator<basic_half<Format>> {
    using type = float; // a sum of ones in bf16 stops growing at 256
};
template <class Format>
struct accumulator<basic_fp8<Format>> {
    using type = float;
};
// The type in which sums of T are computed.
template <class T>
using accumulator_t = typename accumulator<T>::type;

COLLX_END_NAMESPACE
