// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Element types and operators that are chosen at run time, and a buffer with such an element type. For interfaces of
// other libraries, bindings of other languages, and tools. comm/any.hpp has the calls on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <collx/core/buffer.hpp>
#include <collx/core/half.hpp>
#include <collx/core/type_name.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

enum class any_type : std::uint8_t {
    int8,
    uint8,
    int16,
    uint16,
    int32,
    uint32,
    int64,
    uint64,
    float16,
    bfloat16,
    float32,
    float64,
    boolean,
    complex64, // two floats
    complex128 // two doubles
};
// The number of element types.
inline constexpr int any_type_count = 15;

// The shipped operators without state. There is no average: divide a sum.
enum class any_op : std::uint8_t {
    plus,
    multiplies,
    min,
    max,
    bit_and,
    bit_or,
    bit_xor,
    logical_and,
    logical_or,
    logical_xor
};
// The number of operators.
inline constexpr int any_op_count = 10;

// The bytes of one element; 0 for a number that is none of these types.
constexpr std::size_t size_of(any_type t) {
    constexpr unsigned char sizes[any_type_count] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 8, 16};
    return static_cast<int>(t) < any_type_count ? sizes[static_cast<int>(t)] : 0;
}
constexpr const char* name_of(any_type t) {
    constexpr const char* names[any_type_count] = {"int8",    "uint8",   "int16",   "uint16",    "int32",
                                                   "uint32",  "int64",   "uint64",  "float16",   "bfloat16",
                                                   "float32", "float64", "boolean", "complex64", "complex128"};
    return static_cast<int>(t) < any_type_count ? names[static_cast<int>(t)] : "no element type";
}
constexpr const char* name_of(any_op op) {
    constexpr const char* names[any_op_count] = {"plus",   "multiplies", "min",         "max",        "bit_and",
                                                 "bit_or", "bit_xor",    "logical_and", "logical_or", "logical_xor"};
    return static_cast<int>(op) < any_op_count ? names[static_cast<int>(op)] : "no operator";
}

namespace detail {
template <class T>
constexpr int any_type_number() {
    using u = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<u, bool>) return static_cast<int>(any_type::boolean);
    else if constexpr (std::is_integral_v<u> && sizeof(u) <= 8)
        return (sizeof(u) == 1 ? 0 : sizeof(u) == 2 ? 2 : sizeof(u) == 4 ? 4 : 6) + (std::is_signed_v<u> ? 0 : 1);
    else if constexpr (std::is_same_v<u, f16>) return static_cast<int>(any_type::float16);
    else if constexpr (std::is_same_v<u, bf16>) return static_cast<int>(any_type::bfloat16);
    else if constexpr (std::is_same_v<u, float>) return static_cast<int>(any_type::float32);
    else if constexpr (std::is_same_v<u, double>) return static_cast<int>(any_type::float64);
    else if constexpr (type_name<u>() == name_view("std::complex<float>")) return static_cast<int>(any_type::complex64);
    else if constexpr (type_name<u>() == name_view("std::complex<double>"))
        return static_cast<int>(any_type::complex128);
    else return -1;
}
} // namespace detail

// The any_type of T.
template <class T>
requires(detail::any_type_number<T>() >=
         0) inline constexpr any_type any_type_of = static_cast<any_type>(detail::any_type_number<T>());

// `size` contiguous elements of `type` at `data`, aligned to their size (complex numbers: to half of it). Not owned.
struct any_buffer {
    void* data = nullptr;
    std::size_t size = 0;
    any_type type = any_type::uint8;
};

// Views a tensor as an any_buffer. Requires: contiguous, of one of these types, not const.
template <class X>
any_buffer as_any(X&& x) {
    require_output<X>();
    static_assert(buffer_t<X>::is_contiguous,
                  "collx: an any_buffer is contiguous memory. Copy this tensor into a vector.");
    const auto v = buffer(x);
    return {v.data(), v.size(), any_type_of<typename buffer_t<X>::value_type>};
}

COLLX_END_NAMESPACE
