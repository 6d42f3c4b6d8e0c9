// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names and hashes of types, computed at compile time. Two ranks compare hashes to detect that they reduce different
// types, so the hash of an arithmetic type must not depend on the compiler. Arithmetic types hash by kind and width
// (`long` and `long long` are both "i64"), all others by the compiler's spelling, without what differs between
// compilers. It must not know what a type is used for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/core/config.hpp>
#include <collx/core/name_view.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

namespace spelling { // g++ leaves out the namespace of the function where a type has the same
template <class T>
constexpr name_view pretty_function() noexcept {
#if defined(_MSC_VER) && !defined(__clang__)
    return __FUNCSIG__;
#else
    return __PRETTY_FUNCTION__;
#endif
}
} // namespace spelling

// Every compiler puts fixed texts before and after the name. Their lengths come from a type of known spelling.
struct name_frame {
    std::size_t before, after;
};

constexpr name_frame measure_name_frame() noexcept {
    constexpr name_view text = spelling::pretty_function<double>();
    constexpr std::size_t at = text.find("double");
    static_assert(at != name_view::npos, "collx::type_name: this compiler's function names hold no type.");
    return {at, text.size() - at - 6};
}

template <class T>
constexpr name_view spelled_name() noexcept {
    constexpr name_frame frame = measure_name_frame();
    constexpr name_view text = spelling::pretty_function<T>();
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

namespace detail {

constexpr bool is_of_word(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// FNV-1a of a compiler's spelling of a type without what others spell differently: g++ has "collx::v0::wire<long
// unsigned int> >" and "plus<void>" where clang has "collx::wire<unsigned long>>" and "plus<>".
constexpr std::uint64_t spelling_hash(name_view text) noexcept {
    std::uint64_t hash = fnv1a("");
    int integer = 0; // the words of an integer type before this place, in any order: unsigned 1, short 2, int 4, long 8
    while (!text.empty() || integer != 0) {
        std::size_t n = 0;
        while (n < text.size() && is_of_word(text[n])) ++n;
        const name_view word = text.substr(0, n != 0 ? n : 1);
        text.remove_prefix(word.size());
        if (word == "v0" && text.starts_with("::")) text.remove_prefix(2);
        else if (word == "unsigned") integer |= 1;
        else if (word == "short") integer |= 2;
        else if (word == "int") integer |= 4;
        else if (word == "long") integer += 8;
        else if (word != " " && word != "void") {
            const char type = static_cast<char>(integer == 4 ? 4 : integer & ~4); // long int is long
            if (integer != 0) hash = fnv1a({&type, 1}, hash);
            integer = 0;
            hash = fnv1a(word, hash);
        }
    }
    return hash;
}

} // namespace detail

// The compiler's spelling of T, for messages. Two lambdas of one function may share it.
template <class T>
constexpr name_view type_name() noexcept {
    return detail::spelled_name<T>();
}

// A number by which two ranks check that they mean the same type.
// Ensures: equal for arithmetic types of the same kind and width, for collx's types and for most others, whatever the
//          compiler. Of lambdas, local types and some constants as template arguments compilers differ.
template <class T>
constexpr std::uint64_t type_hash() noexcept {
    if constexpr (std::is_arithmetic_v<T>) return fnv1a(detail::arithmetic_name<T>());
    else return detail::spelling_hash(detail::spelled_name<T>());
}

COLLX_END_NAMESPACE
