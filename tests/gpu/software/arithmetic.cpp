// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arithmetic, logic, comparisons, moves [sections 9.7.1 to 9.7.9].
#include <chrono>
#include <cmath>
#include <limits>
#include <map>

#include "decode.hpp"

namespace software_gpu {
namespace {

template <class T>
using wide = std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>,
                                std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;
template <class T>
using widest = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
template <class T>
using bits = std::make_unsigned_t<T>;

// Wraps around as the hardware does; for signed integers C++ leaves that undefined.
template <class T>
T plus(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return a + b;
    else return static_cast<T>(static_cast<bits<T>>(a) + static_cast<bits<T>>(b));
}
template <class T>
T minus(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return a - b;
    else return static_cast<T>(static_cast<bits<T>>(a) - static_cast<bits<T>>(b));
}
template <class T>
T low_product(T a, T b) {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}
template <class T>
T high_product(T a, T b) {
    return static_cast<T>((static_cast<widest<T>>(a) * static_cast<widest<T>>(b)) >> (8 * sizeof(T)));
}
template <class T>
T quotient(T a, T b) { // x / 0 is all ones, as on the devices
    if constexpr (!std::is_floating_point_v<T>) {
        if (b == 0) return static_cast<T>(~bits<T>{0});
        if constexpr (std::is_signed_v<T>)
            if (b == -1) return static_cast<T>(-static_cast<bits<T>>(a));
    }
    return static_cast<T>(a / b);
}
template <class T>
T remainder(T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>)
        if (b == -1) return 0;
    return static_cast<T>(a % b);
}
// A number wins against NaN unless KeepsNan (.NaN); -0 is less than +0.
template <class T, bool Smaller, bool KeepsNan>
T extreme(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(a) || std::isnan(b)) {
            if (KeepsNan || (std::isnan(a) && std::isnan(b))) return std::numeric_limits<T>::quiet_NaN();
            return std::isnan(a) ? b : a;
        }
        if (a == b) return std::signbit(a) == Smaller ? a : b;
    }
    return (b < a) == Smaller ? b : a;
}

handler comparison(std::string_view how, type t) {
    // Ordered comparisons are false with NaN. C++'s != is true with NaN, which is what "neu" means.
    const auto of = [&]<class F>(F) {
        return of_number(t, [](auto x) -> handler { return two<F{}, decltype(x), bool>; });
    };
    if (how == "eq") return of([](auto a, auto b) { return a == b; });
    if (how == "ne") return of([](auto a, auto b) { return a < b || a > b; });
    if (how == "lt" || how == "lo") return of([](auto a, auto b) { return a < b; });
    if (how == "le" || how == "ls") return of([](auto a, auto b) { return a <= b; });
    if (how == "gt" || how == "hi") return of([](auto a, auto b) { return a > b; });
    if (how == "ge" || how == "hs") return of([](auto a, auto b) { return a >= b; });
    if (how == "equ") return of([](auto a, auto b) { return !(a < b || a > b); });
    if (how == "neu") return of([](auto a, auto b) { return a != b; });
    if (how == "ltu") return of([](auto a, auto b) { return !(a >= b); });
    if (how == "leu") return of([](auto a, auto b) { return !(a > b); });
    if (how == "gtu") return of([](auto a, auto b) { return !(a <= b); });
    if (how == "geu") return of([](auto a, auto b) { return !(a < b); });
    if (how == "nan") return of([](auto a, auto b) { return a != a || b != b; });
    if (how == "num") return of([](auto a, auto b) { return a == a && b == b; });
    return nullptr;
}
// Whether only p is written, unlike in setp.lt.and.u32 p|q, a, b, c.
bool is_plain_comparison(const opcode& op, const instruction& i) {
    return op.words.size() >= 3 && i.tos == 1 && i.froms == 2 && !op.has("ftz");
}

// ------------------------------------------------------------------------------------------ moves
std::uint64_t hardware_value(warp& w, unsigned lane, special s) {
    const thread& t = w.at(lane);
    const launch& what = w.of().of().what;
    const extent here = w.of().index();
    const std::uint64_t bit = std::uint64_t{1} << lane, all = 0xffffffff;
    switch (s) {
        case special::tid_x: return t.id.x;
        case special::tid_y: return t.id.y;
        case special::tid_z: return t.id.z;
        case special::ntid_x: return what.block.x;
        case special::ntid_y: return what.block.y;
        case special::ntid_z: return what.block.z;
        case special::ctaid_x: return here.x;
        case special::ctaid_y: return here.y;
        case special::ctaid_z: return here.z;
        case special::nctaid_x: return what.grid.x;
        case special::nctaid_y: return what.grid.y;
        case special::nctaid_z: return what.grid.z;
        case special::laneid: return lane;
        case special::warpid: return t.number / warp_size;
        case special::nwarpid: return w.of().warps().size();
        case special::smid: return w.of().number() % what.resident;
        case special::nsmid: return what.resident;
        case special::lanemask_eq: return bit;
        case special::lanemask_lt: return bit - 1;
        case special::lanemask_le: return (bit << 1) - 1;
        case special::lanemask_gt: return all & ~((bit << 1) - 1);
        case special::lanemask_ge: return all & ~(bit - 1);
        case special::dynamic_shared: return what.dynamic_shared_bytes;
        default: break;
    }
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

handler move_of(const opcode& op, instruction& i) {
    if (i.hardware != special::none)
        return [](warp& w, const instruction& x, lanes m) {
            std::uint64_t* d = w.row(x.to[0]);
            each(m, [&](unsigned l) { d[l] = hardware_value(w, l, x.hardware); });
        };
    if (i.is_address)
        return [](warp& w, const instruction& x, lanes m) {
            std::uint64_t* d = w.row(x.to[0]);
            each(m, [&](unsigned l) { d[l] = w.address_of(l, x.at); });
        };
    if (i.tos > 1) // splits a value into parts
        return [](warp& w, const instruction& x, lanes m) {
            const row_view a(w, x.from[0]);
            const unsigned width = static_cast<unsigned>(8 * bytes_of(x.kind) / x.tos);
            const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
            each(m, [&](unsigned l) {
                const std::uint64_t all = a[l];
                for (unsigned k = 0; k < x.tos; ++k)
                    if (x.to[k] >= 0) w.row(x.to[k])[l] = all >> (k * width) & mask;
            });
        };
    if (i.froms > 1) // joins parts into a value
        return [](warp& w, const instruction& x, lanes m) {
            std::uint64_t* d = w.row(x.to[0]);
            const unsigned width = static_cast<unsigned>(8 * bytes_of(x.kind) / x.froms);
            const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
            each(m, [&](unsigned l) {
                std::uint64_t all = 0;
                for (unsigned k = 0; k < x.froms; ++k) all |= (row_view(w, x.from[k])[l] & mask) << (k * width);
                d[l] = all;
            });
        };
    if (op.last_type() == type::pred) return one<[](std::uint64_t a) { return (a & 1) != 0; }, std::uint64_t, bool>;
    return of_number(op.last_type(), [](auto x) -> handler { return one<[](auto a) { return a; }, decltype(x)>; });
}

std::uint32_t permuted(std::uint64_t a, std::uint64_t b, std::uint64_t how) {
    const std::uint64_t all = (b & 0xffffffff) << 32 | (a & 0xffffffff);
    std::uint32_t r = 0;
    for (unsigned k = 0; k < 4; ++k) {
        const auto pick = static_cast<unsigned>(how >> (4 * k) & 0xf);
        auto byte = static_cast<std::uint32_t>(all >> (8 * (pick & 7)) & 0xff);
        if ((pick & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
        r |= byte << (8 * k);
    }
    return r;
}
template <class T>
T inserted(T a, T b, std::uint64_t at, std::uint64_t length) {
    at &= 0xff;
    length &= 0xff;
    T r = b;
    for (std::uint64_t k = 0; k < length && at + k < 8 * sizeof(T); ++k) {
        const T bit = static_cast<T>(T{1} << (at + k));
        r = static_cast<T>((a >> k & 1) != 0 ? r | bit : r & ~bit);
    }
    return r;
}
template <class T>
T extracted(T a, std::uint64_t at, std::uint64_t length) {
    at &= 0xff;
    length &= 0xff;
    constexpr std::uint64_t width = 8 * sizeof(T), top = width - 1;
    using U = bits<T>;
    const U raw = static_cast<U>(a);
    U r = 0;
    const std::uint64_t last = std::min(at + length - 1, top);
    const bool sign = std::is_signed_v<T> && length != 0 && (raw >> last & 1) != 0;
    for (std::uint64_t k = 0; k < width; ++k) {
        const bool bit = k < length && at + k < width ? (raw >> (at + k) & 1) != 0 : sign;
        r = static_cast<U>(r | (bit ? U{1} << k : U{0}));
    }
    return static_cast<T>(r);
}
// Shifts may move out all bits: the result is 0, or copies of the sign.
template <class T>
T left(T a, std::uint32_t by) {
    return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(static_cast<bits<T>>(a) << by);
}
template <class T>
T right(T a, std::uint32_t by) {
    return by >= 8 * sizeof(T) ? static_cast<T>(a < 0 ? -1 : 0) : static_cast<T>(a >> by);
}
std::uint32_t looked_up(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint64_t table) {
    std::uint32_t r = 0;
    for (unsigned k = 0; k < 8; ++k)
        if ((table >> k & 1) != 0) r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return r;
}

// Instructions with operands of several types.
handler mixed_of(const opcode& op, type t) {
    const std::string_view name = op.name();
    if (name == "selp")
        return [](warp& w, const instruction& i, lanes m) {
            std::uint64_t* d = w.row(i.to[0]);
            const row_view a(w, i.from[0]), b(w, i.from[1]), p(w, i.from[2]);
            const std::size_t bytes = bytes_of(i.kind);
            const std::uint64_t mask = bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * bytes)) - 1;
            each(m, [&](unsigned l) { d[l] = ((p[l] & 1) != 0 ? a[l] : b[l]) & mask; });
        };
    if (name == "shl") return of_integer(t, [](auto x) -> handler { return shifted<left<decltype(x)>, decltype(x)>; });
    if (name == "shr") return of_integer(t, [](auto x) -> handler { return shifted<right<decltype(x)>, decltype(x)>; });
    if (name == "bfi")
        return of_integer(t, [](auto x) -> handler {
            using T = bits<decltype(x)>;
            return [](warp& w, const instruction& i, lanes m) {
                std::uint64_t* d = w.row(i.to[0]);
                const row_view a(w, i.from[0]), b(w, i.from[1]), at(w, i.from[2]), n(w, i.from[3]);
                each(m, [&](unsigned l) { d[l] = inserted(static_cast<T>(a[l]), static_cast<T>(b[l]), at[l], n[l]); });
            };
        });
    if (name == "bfe")
        return of_integer(t, [](auto x) -> handler {
            using T = decltype(x);
            return [](warp& w, const instruction& i, lanes m) {
                std::uint64_t* d = w.row(i.to[0]);
                const row_view a(w, i.from[0]), at(w, i.from[1]), n(w, i.from[2]);
                each(m, [&](unsigned l) { d[l] = raw_of(extracted(value_of<T>(a[l]), at[l], n[l])); });
            };
        });
    if (name == "prmt" && op.words.size() == 2)
        return three<[](auto a, auto b, auto c) { return permuted(a, b, c); }, std::uint32_t>;
    if (name == "lop3" && op.words.size() == 2)
        return [](warp& w, const instruction& i, lanes m) {
            std::uint64_t* d = w.row(i.to[0]);
            const row_view a(w, i.from[0]), b(w, i.from[1]), c(w, i.from[2]);
            each(m, [&](unsigned l) {
                d[l] = looked_up(static_cast<std::uint32_t>(a[l]), static_cast<std::uint32_t>(b[l]),
                                 static_cast<std::uint32_t>(c[l]), i.from[3].constant);
            });
        };
    if (name == "shf" && op.has("wrap"))
        return op.has("l") ? handler(three<[](auto lo, auto hi, auto n) {
            return static_cast<std::uint32_t>((std::uint64_t{hi} << 32 | lo) << (n & 31) >> 32);
        },
                                           std::uint32_t>)
                           : handler(three<[](auto lo, auto hi, auto n) {
                                 return static_cast<std::uint32_t>((std::uint64_t{hi} << 32 | lo) >> (n & 31));
                             },
                                           std::uint32_t>);
    if (name == "bmsk")
        return two<[](auto at, auto n) -> std::uint32_t {
            const std::uint64_t ones = n >= 32 ? 0xffffffffu : (std::uint64_t{1} << n) - 1;
            return at >= 32 ? 0 : static_cast<std::uint32_t>(ones << at);
        },
                   std::uint32_t>;
    if (name == "clz")
        return t == type::b64 ? handler(one<[](auto a) { return std::countl_zero(a); }, std::uint64_t, std::uint32_t>)
                              : handler(one<[](auto a) { return std::countl_zero(a); }, std::uint32_t>);
    if (name == "popc")
        return t == type::b64 ? handler(one<[](auto a) { return std::popcount(a); }, std::uint64_t, std::uint32_t>)
                              : handler(one<[](auto a) { return std::popcount(a); }, std::uint32_t>);
    if (name == "brev" && t == type::b32)
        return one<[](auto a) {
            std::uint32_t r = 0;
            for (unsigned k = 0; k < 32; ++k) r |= (a >> k & 1) << (31 - k);
            return r;
        },
                   std::uint32_t>;
    if (name == "bfind" && !op.has("shiftamt") && (t == type::u32 || t == type::u64))
        return t == type::u64
                   ? handler(one<[](auto a) { return a == 0 ? -1 : 63 - std::countl_zero(a); }, std::uint64_t,
                                 std::uint32_t>)
                   : handler(one<[](auto a) { return a == 0 ? -1 : 31 - std::countl_zero(a); }, std::uint32_t>);
    return nullptr;
}

handler product_of(const opcode& op, type t) {
    const bool adds = op.name() == "mad";
    if (op.name() == "fma" || (adds && (t == type::f32 || t == type::f64)))
        return of_number(t, [](auto x) -> handler {
            using T = decltype(x);
            if constexpr (std::is_floating_point_v<T>)
                return three<[](auto a, auto b, auto c) { return std::fma(a, b, c); }, T>;
            return nullptr;
        });
    if (op.has("wide"))
        return of_integer(t, [&](auto x) -> handler {
            using T = decltype(x);
            using W = wide<T>;
            if constexpr (sizeof(T) < 8) {
                if (adds)
                    return [](warp& w, const instruction& i, lanes m) {
                        std::uint64_t* d = w.row(i.to[0]);
                        const row_view a(w, i.from[0]), b(w, i.from[1]), c(w, i.from[2]);
                        each(m, [&](unsigned l) {
                            d[l] =
                                raw_of(plus(low_product<W>(value_of<T>(a[l]), value_of<T>(b[l])), value_of<W>(c[l])));
                        });
                    };
                return two<[](auto a, auto b) { return low_product<W>(a, b); }, T, W>;
            }
            return nullptr;
        });
    if (op.has("hi"))
        return of_integer(t, [&](auto x) -> handler {
            if (adds) return three<[](auto a, auto b, auto c) { return plus(high_product(a, b), c); }, decltype(x)>;
            return two<[](auto a, auto b) { return high_product(a, b); }, decltype(x)>;
        });
    if (op.has("lo"))
        return of_integer(t, [&](auto x) -> handler {
            if (adds) return three<[](auto a, auto b, auto c) { return plus(low_product(a, b), c); }, decltype(x)>;
            return two<[](auto a, auto b) { return low_product(a, b); }, decltype(x)>;
        });
    return of_number(t, [](auto x) -> handler {
        if constexpr (std::is_floating_point_v<decltype(x)>)
            return two<[](auto a, auto b) { return a * b; }, decltype(x)>;
        return nullptr;
    });
}

handler logic_of(std::string_view name, type t) {
    const auto of = [&]<class F>(F) -> handler {
        if (t == type::pred) return two<[](auto a, auto b) { return (F{}(a, b) & 1) != 0; }, std::uint64_t, bool>;
        return of_integer(t, [](auto x) -> handler { return two<F{}, decltype(x)>; });
    };
    if (name == "and") return of([](auto a, auto b) { return a & b; });
    if (name == "or") return of([](auto a, auto b) { return a | b; });
    if (name == "xor") return of([](auto a, auto b) { return a ^ b; });
    if (name == "not" && t == type::pred) return one<[](auto a) { return (a & 1) == 0; }, std::uint64_t, bool>;
    if (name == "not")
        return of_integer(t, [](auto x) -> handler { return one<[](auto a) { return ~a; }, decltype(x)>; });
    return nullptr;
}

} // namespace

handler arithmetic_of(const opcode& op, instruction& i) {
    const std::string_view name = op.name();
    const type t = op.last_type();
    // Flushing, saturation, carries and other roundings are not implemented.
    for (const char* word : {"ftz", "sat", "cc", "rz", "rm", "rp", "approx", "full"})
        if (name != "cvt" && op.has(word) && !(op.has("approx") && t == type::f32)) return nullptr;
    if (name == "mov") return move_of(op, i);
    if (name == "setp") return is_plain_comparison(op, i) ? comparison(op.words[1], t) : nullptr;
    if (name == "add") return of_number(t, [](auto x) -> handler { return two<plus<decltype(x)>, decltype(x)>; });
    if (name == "sub") return of_number(t, [](auto x) -> handler { return two<minus<decltype(x)>, decltype(x)>; });
    if (name == "div") return of_number(t, [](auto x) -> handler { return two<quotient<decltype(x)>, decltype(x)>; });
    if (name == "rem")
        return of_integer(
            t, [](auto x) -> handler { return two<[](auto a, auto b) { return remainder(a, b); }, decltype(x)>; });
    if (name == "min" || name == "max") {
        const bool keeps = op.has("NaN");
        const auto of = [&]<bool Smaller>(std::bool_constant<Smaller>) {
            return of_number(t, [&](auto x) -> handler {
                using T = decltype(x);
                return keeps ? handler(two<extreme<T, Smaller, true>, T>) : handler(two<extreme<T, Smaller, false>, T>);
            });
        };
        return name == "min" ? of(std::true_type{}) : of(std::false_type{});
    }
    if (name == "neg")
        return of_number(t, [](auto x) -> handler {
            return one<[](auto a) {
                return minus(std::is_floating_point_v<decltype(a)> ? static_cast<decltype(a)>(-0.0) : decltype(a){}, a);
            },
                       decltype(x)>;
        });
    if (name == "abs")
        return of_number(t, [](auto x) -> handler {
            return one<[](auto a) { return a < 0 ? minus(decltype(a){}, a) : a; }, decltype(x)>;
        });
    if (name == "sqrt" && t == type::f32) return one<[](auto a) { return std::sqrt(a); }, float>;
    if (name == "rcp" && t == type::f32) return one<[](auto a) { return 1.0f / a; }, float>;
    if (name == "ex2" && t == type::f32) return one<[](auto a) { return std::exp2(a); }, float>;
    if (name == "lg2" && t == type::f32) return one<[](auto a) { return std::log2(a); }, float>;
    if (name == "mul" || name == "mad" || name == "fma") return product_of(op, t);
    if (const handler h = logic_of(name, t)) return h;
    return mixed_of(op, t);
}

} // namespace software_gpu
