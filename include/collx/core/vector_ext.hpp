// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The compiler's short vectors (`__attribute__((vector_size(N)))`, GCC and clang). They need no include and give
// full-speed loops at -O2, where GCC 12 vectorises no loop by itself. The operators of op.hpp take them like numbers,
// element by element. It must not know about operators or buffers.
#pragma once

#include <type_traits>
#include <utility>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// Whether T can be the element of a short vector.
template <class T>
inline constexpr bool is_lane_v = (std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8) ||
                                  std::is_same_v<T, float> || std::is_same_v<T, double>;

// The vector of `Bytes` bytes whose lanes are T.
template <class T, unsigned Bytes>
requires is_lane_v<T>
struct short_vector {
    typedef T type __attribute__((vector_size(Bytes)));
};
// The type of short_vector.
template <class T, unsigned Bytes>
using short_vector_t = typename short_vector<T, Bytes>::type;

// True for short vectors. No other types can be subscripted and are neither class, union, array nor pointer.
template <class T>
inline constexpr bool is_short_vector_v = [] {
    if constexpr (std::is_class_v<T> || std::is_union_v<T> || std::is_array_v<T> || std::is_pointer_v<T>) return false;
    else return requires(T v) {
            v[0];
        };
}();

// The element of a short vector as a member type; see lane_t.
template <class V>
struct lane {
    using type = V;
};
template <class V>
requires is_short_vector_v<V>
struct lane<V> {
    using type = std::remove_cvref_t<decltype(std::declval<V&>()[0])>;
};
// The element of a short vector; any other type is its own lane.
template <class V>
using lane_t = typename lane<V>::type;

namespace detail {

// The type for arithmetic that wraps. Signed overflow is undefined, also where small integers are multiplied as int.
template <class T>
struct wrapping {
    using type = unsigned;
};
template <class T>
requires(std::is_integral_v<T> && sizeof(T) >= sizeof(unsigned)) struct wrapping<T> {
    using type = std::make_unsigned_t<T>;
};
template <class V>
requires is_short_vector_v<V>
struct wrapping<V> {
    using type = short_vector_t<std::make_unsigned_t<lane_t<V>>, sizeof(V)>;
};
template <class T>
using wrapping_t = typename wrapping<T>::type;

} // namespace detail

COLLX_END_NAMESPACE
