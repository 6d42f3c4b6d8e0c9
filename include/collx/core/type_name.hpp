// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names and hashes of types, computed at compile time. Two ranks compare hashes to detect that they reduce different
// types, so the hash of an arithmetic type must not depend on the compiler. Arithmetic types hash by kind and width
// (`long` and `long long` are both "i64"), all others by the compiler's spelling.
// It must not know what a type is used for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/core/config.hpp>
#include <collx/core/name_view.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

template <class T>
constexpr name_view pretty_function() noexcept {
#if defined(_MSC_VER) && !defined(__clang__)
    return __FUNCSIG__;
#else
    return __PRETTY_FUNCTION__;
#endif
}

// Every compiler puts fixed texts before and after the name. Their lengths come from a type of known spelling.
struct name_frame {
    std::size_t before, after;
};

constexpr name_frame measure_name_frame() noexcept {
    constexpr name_view text = pretty_function<double>();
    constexpr std::size_t at = text.find("double");
    static_assert(at != name_view::npos, "collx::type_name: this compiler's function names hold no type.");
    return {at, text.size() - at - 6};
}

template <class T>
constexpr name_view spelled_name() noexcept {
    constexpr name_frame frame = measure_name_frame();
    constexpr name_view text = pretty_function<T>();
    return text.substr(frame.before, text.size() - frame.before - frame.after);
}

template <class T>
constexpr name_view arithmetic_name() noexcept {
    constexpr name_view names[3][5] = {
        {"i8", "i16", "i32", "i64", "i128"}, {"u8", "u16", "u32", "u64", "u128"}, {"f8", "f16", "f32", "f64", "f128"}};
    constexpr int row = std::is_floating_point_v<T> ? 2 : (std::is_unsigned_v<T> ? 1 : 0);
    constexpr int column = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : sizeof(T) == 8 ? 3 : 4;
    return std::is_same_v<T, bool> ? name_view("bool") : names[row][column];
}

} // namespace detail

// 64-bit FNV-1a. Source: G. Fowler, L. C. Noll, K.-P. Vo, D. Eastlake, RFC 9923.
constexpr std::uint64_t fnv1a(name_view text, std::uint64_t hash = 0xcbf29ce484222325u) noexcept {
    for (char c : text) {
        hash ^= static_cast<unsigned char>(c);
        hash *= 0x100000001b3u;
    }
    return hash;
}

// The compiler's spelling of T, for messages. Two lambdas of one function may share it.
template <class T>
constexpr name_view type_name() noexcept {
    return detail::spelled_name<T>();
}

// A number by which two ranks check that they mean the same type.
// Ensures: equal for arithmetic types of the same kind and width whatever the compiler; for other types equal for equal
//          spelling, so ranks built by different compilers may differ on templates of such types.
template <class T>
constexpr std::uint64_t type_hash() noexcept {
    if constexpr (std::is_arithmetic_v<T>) return fnv1a(detail::arithmetic_name<T>());
    else return fnv1a(detail::spelled_name<T>());
}

COLLX_END_NAMESPACE
