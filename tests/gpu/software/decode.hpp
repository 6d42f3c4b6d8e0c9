// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Building blocks of handlers: functions of values, over a set of threads, chosen by type.
#pragma once

#include "block.hpp"

namespace software_gpu {

template <class T>
T value_of(std::uint64_t raw) {
    if constexpr (std::is_same_v<T, float>) return std::bit_cast<float>(static_cast<std::uint32_t>(raw));
    else if constexpr (std::is_same_v<T, double>) return std::bit_cast<double>(raw);
    else return static_cast<T>(raw);
}
template <class T>
std::uint64_t raw_of(T x) {
    if constexpr (std::is_same_v<T, float>) return std::bit_cast<std::uint32_t>(x);
    else if constexpr (std::is_same_v<T, double>) return std::bit_cast<std::uint64_t>(x);
    else if constexpr (std::is_same_v<T, bool>) return x ? 1 : 0;
    else return static_cast<std::make_unsigned_t<T>>(x);
}

// Stores F of one, two or three values of type T, as R.
template <auto F, class T, class R = T>
void one(warp& w, const instruction& i, lanes m) {
    std::uint64_t* d = w.row(i.to[0]);
    const row_view a(w, i.from[0]);
    each(m, [&](unsigned l) { d[l] = raw_of(static_cast<R>(F(value_of<T>(a[l])))); });
}
template <auto F, class T, class R = T>
void two(warp& w, const instruction& i, lanes m) {
    std::uint64_t* d = w.row(i.to[0]);
    const row_view a(w, i.from[0]), b(w, i.from[1]);
    each(m, [&](unsigned l) { d[l] = raw_of(static_cast<R>(F(value_of<T>(a[l]), value_of<T>(b[l])))); });
}
// The second operand is a number of bits, 32 bits wide whatever T is.
template <auto F, class T>
void shifted(warp& w, const instruction& i, lanes m) {
    std::uint64_t* d = w.row(i.to[0]);
    const row_view a(w, i.from[0]), by(w, i.from[1]);
    each(m, [&](unsigned l) { d[l] = raw_of(F(value_of<T>(a[l]), static_cast<std::uint32_t>(by[l]))); });
}
template <auto F, class T, class R = T>
void three(warp& w, const instruction& i, lanes m) {
    std::uint64_t* d = w.row(i.to[0]);
    const row_view a(w, i.from[0]), b(w, i.from[1]), c(w, i.from[2]);
    each(m, [&](unsigned l) {
        d[l] = raw_of(static_cast<R>(F(value_of<T>(a[l]), value_of<T>(b[l]), value_of<T>(c[l]))));
    });
}

// Returns f(a value of type t), which is a handler; null for types without one.
template <class F>
handler of_integer(type t, F f) {
    switch (t) {
        case type::b16:
        case type::u16: return f(std::uint16_t{});
        case type::s16: return f(std::int16_t{});
        case type::b32:
        case type::u32: return f(std::uint32_t{});
        case type::s32: return f(std::int32_t{});
        case type::b64:
        case type::u64: return f(std::uint64_t{});
        case type::s64: return f(std::int64_t{});
        default: return nullptr;
    }
}
template <class F>
handler of_number(type t, F f) {
    if (t == type::f32) return f(float{});
    if (t == type::f64) return f(double{});
    return of_integer(t, f);
}

// Each returns a handler for the instructions that it implements, and null for others.
handler arithmetic_of(const opcode&, instruction&); // arithmetic.cpp
handler conversion_of(const opcode&, instruction&); // conversion.cpp
handler access_of(const opcode&, instruction&);     // access.cpp
handler agreement_of(const opcode&, instruction&);  // agreement.cpp: a warp's threads together

} // namespace software_gpu
