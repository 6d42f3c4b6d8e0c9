// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copies a run of elements, by all threads of a kernel. Where both places agree modulo 16 a thread moves 16 bytes at a
// time, four of them under way; else units of the elements' alignment, as many as have 64 bytes. Knows no step and no
// view.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/exec/device/operands.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// The end of a copy that may lie in any memory of a kernel. All other ends are in global memory, whose loads and stores
// need not look where an address belongs.
enum class anywhere : unsigned char { none, source, target };

namespace detail {

template <class Env, anywhere End, class Unit>
COLLX_HD inline Unit load_end(const Unit* p) {
    if constexpr (End == anywhere::source) return Env::load_anywhere(p);
    else return Env::load(p);
}
template <class Env, anywhere End, class Unit>
COLLX_HD inline void store_end(Unit* p, const Unit& x) {
    if constexpr (End == anywhere::target) Env::store_anywhere(p, x);
    else Env::store(p, x);
}

// Copies n units as thread `me` of `step`; U are loaded before the first is stored. Units beyond n are left out.
template <int U, class Env, anywhere End, class Unit>
COLLX_HD inline void copy_units(Unit* to, const Unit* from, std::size_t n, std::size_t me, std::size_t step) {
    COLLX_ROLLED
    for (std::size_t i = me; i < n; i += U * step) {
        Unit x[U]{};
        COLLX_UNROLL
        for (int u = 0; u < U; ++u)
            if (i + static_cast<unsigned>(u) * step < n)
                x[u] = load_end<Env, End>(from + i + static_cast<unsigned>(u) * step);
        COLLX_UNROLL
        for (int u = 0; u < U; ++u)
            if (i + static_cast<unsigned>(u) * step < n)
                store_end<Env, End>(to + i + static_cast<unsigned>(u) * step, x[u]);
    }
}

} // namespace detail

// Copies n elements by all threads together, of which this one is number `me` of `step`. Requires: the two runs do not
// overlap. Cost: each byte is loaded and stored once.
template <class Env, anywhere End = anywhere::none, class T>
COLLX_HD inline void copy_run(T* to, const T* from, std::size_t n, std::size_t me, std::size_t step) {
    constexpr std::size_t unit_size = alignof(T) < 16 ? alignof(T) : 16, pack_size = sizeof(words16);
    using unit = typename detail::unit_of<unit_size, std::uint32_t>::type;
    auto* t = reinterpret_cast<unit*>(to);
    const auto* f = reinterpret_cast<const unit*>(from);
    const std::size_t units = n * (sizeof(T) / unit_size);
    const auto offset = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % pack_size; };
    std::size_t begin = 0, end = 0; // the units that go by packs
    if (unit_size < pack_size && offset(to) == offset(from)) {
        begin = (pack_size - offset(to)) % pack_size / unit_size;
        begin = begin < units ? begin : units;
        end = units - (units - begin) % (pack_size / unit_size);
        detail::copy_units<4, Env, End>(reinterpret_cast<words16*>(t + begin),
                                        reinterpret_cast<const words16*>(f + begin),
                                        (end - begin) * unit_size / pack_size, me, step);
    }
    constexpr int U = narrow_unroll(unit_size);
    COLLX_ROLLED
    for (int side = 0; side < 2; ++side) {
        const std::size_t first = side == 0 ? 0 : end, count = side == 0 ? begin : units - end;
        detail::copy_units<U, Env, End>(t + first, f + first, count, me, step);
    }
}

} // namespace device
COLLX_END_NAMESPACE
