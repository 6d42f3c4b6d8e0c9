// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Conversions of values [cvt] and addresses [cvta, isspacep]. Narrow floats use the toolkit's own host functions.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <limits>

#include "decode.hpp"

namespace software_gpu {
namespace {

std::uint16_t half_of(float x) { return __half_as_ushort(__float2half_rn(x)); }
float of_half(std::uint16_t x) { return __half2float(__ushort_as_half(x)); }
std::uint16_t bfloat_of(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
float of_bfloat(std::uint16_t x) { return __bfloat162float(__ushort_as_bfloat16(x)); }
std::uint8_t e4m3_of(float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); }
std::uint8_t e5m2_of(float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2); }
std::uint16_t half_of_e4m3(std::uint8_t x) { return __nv_cvt_fp8_to_halfraw(x, __NV_E4M3).x; }
std::uint16_t half_of_e5m2(std::uint8_t x) { return __nv_cvt_fp8_to_halfraw(x, __NV_E5M2).x; }

// Rounds toward zero; a value out of range becomes the nearest in range, and NaN becomes 0.
template <class To, class From>
To truncated(From x) {
    if (std::isnan(x)) return 0;
    const From whole = std::trunc(x);
    if (whole < static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (whole >= std::ldexp(From{1}, std::numeric_limits<To>::digits)) return std::numeric_limits<To>::max();
    return static_cast<To>(whole);
}

template <class F>
handler of_any_integer(type t, F f) {
    if (t == type::b8 || t == type::u8) return f(std::uint8_t{});
    if (t == type::s8) return f(std::int8_t{});
    return of_integer(t, f);
}

handler plain(type to, type from, bool rounds_to_whole) {
    const bool from_float = from == type::f32 || from == type::f64, to_float = to == type::f32 || to == type::f64;
    if (from_float && to_float) {
        if (rounds_to_whole) return nullptr;
        if (from == to) return nullptr;
        return from == type::f32 ? handler(one<[](auto a) { return static_cast<double>(a); }, float, double>)
                                 : handler(one<[](auto a) { return static_cast<float>(a); }, double, float>);
    }
    if (from_float) {
        if (!rounds_to_whole) return nullptr;
        return of_integer(to, [&](auto x) -> handler {
            using To = decltype(x);
            return from == type::f32 ? handler(one<[](auto a) { return truncated<To>(a); }, float, To>)
                                     : handler(one<[](auto a) { return truncated<To>(a); }, double, To>);
        });
    }
    return of_any_integer(from, [&](auto x) -> handler {
        using From = decltype(x);
        if (to == type::f32) return one<[](auto a) { return static_cast<float>(a); }, From, float>;
        if (to == type::f64) return one<[](auto a) { return static_cast<double>(a); }, From, double>;
        return of_any_integer(to, [](auto y) -> handler { return one<[](auto a) { return a; }, From, decltype(y)>; });
    });
}

// Packs two floats into one register, the first into the upper half.
template <auto F, unsigned Width>
void packed(warp& w, const instruction& i, lanes m) {
    std::uint64_t* d = w.row(i.to[0]);
    const row_view a(w, i.from[0]), b(w, i.from[1]);
    each(m, [&](unsigned l) {
        d[l] = static_cast<std::uint64_t>(F(value_of<float>(a[l]))) << Width | F(value_of<float>(b[l]));
    });
}
template <auto F>
void unpacked_bytes(warp& w, const instruction& i, lanes m) {
    std::uint64_t* d = w.row(i.to[0]);
    const row_view a(w, i.from[0]);
    each(m, [&](unsigned l) {
        d[l] = static_cast<std::uint64_t>(F(static_cast<std::uint8_t>(a[l] >> 8))) << 16 |
               F(static_cast<std::uint8_t>(a[l]));
    });
}

handler narrow(const opcode& op, type to, type from) {
    if (from == type::f16 && to == type::f32) return one<[](auto a) { return of_half(a); }, std::uint16_t, float>;
    if (from == type::bf16 && to == type::f32) return one<[](auto a) { return of_bfloat(a); }, std::uint16_t, float>;
    if (!op.has("rn")) return nullptr;
    if (from == type::f32 && to == type::f16) return one<[](auto a) { return half_of(a); }, float, std::uint16_t>;
    if (from == type::f32 && to == type::bf16) return one<[](auto a) { return bfloat_of(a); }, float, std::uint16_t>;
    if (from == type::f32 && to == type::f16x2) return packed<half_of, 16>;
    if (from == type::f32 && to == type::bf16x2) return packed<bfloat_of, 16>;
    if (from == type::f32 && to == type::e4m3x2 && op.has("satfinite")) return packed<e4m3_of, 8>;
    if (from == type::f32 && to == type::e5m2x2 && op.has("satfinite")) return packed<e5m2_of, 8>;
    if (from == type::e4m3x2 && to == type::f16x2) return unpacked_bytes<half_of_e4m3>;
    if (from == type::e5m2x2 && to == type::f16x2) return unpacked_bytes<half_of_e5m2>;
    return nullptr;
}

// Shared memory has its own addresses; all other addresses are generic already.
template <int Sign>
void shared_address(warp& w, const instruction& i, lanes m) {
    std::uint64_t* d = w.row(i.to[0]);
    const auto base = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(w.of().shared()));
    const row_view a(w, i.from[0]);
    each(m, [&](unsigned l) {
        const std::uint64_t from = i.is_address ? w.address_of(l, i.at) : a[l];
        d[l] = Sign > 0 ? from + base : from - base;
    });
}
void same_address(warp& w, const instruction& i, lanes m) {
    std::uint64_t* d = w.row(i.to[0]);
    const row_view a(w, i.from[0]);
    each(m, [&](unsigned l) { d[l] = i.is_address ? w.address_of(l, i.at) : a[l]; });
}

} // namespace

handler conversion_of(const opcode& op, instruction& i) {
    if (op.name() == "cvta") {
        if (!op.has("shared")) return same_address;
        return op.has("to") ? handler(shared_address<-1>) : handler(shared_address<1>);
    }
    if (op.name() == "isspacep") {
        if (op.has("shared"))
            return [](warp& w, const instruction& x, lanes m) {
                const row_view a(w, x.from[0]);
                each(m, [&](unsigned l) { w.row(x.to[0])[l] = w.of().is_shared(a[l], 1); });
            };
        if (op.has("global"))
            return [](warp& w, const instruction& x, lanes m) {
                const row_view a(w, x.from[0]);
                each(m, [&](unsigned l) { w.row(x.to[0])[l] = w.of().of().holds(a[l], 1); });
            };
        return nullptr;
    }
    if (op.name() != "cvt" || op.types.size() != 2 || op.has("sat") || op.has("ftz")) return nullptr;
    const type to = op.types[0], from = op.types[1];
    if (const handler h = narrow(op, to, from)) return h;
    if (i.froms != 1) return nullptr;
    return plain(to, from, op.has("rzi"));
}

} // namespace software_gpu
