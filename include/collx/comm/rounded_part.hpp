// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Numbers rounded to a smaller type for the wire, with one scale for all of them where that type has less range. The
// sender keeps the rounding errors and may add them to the next numbers (error feedback). For bucketed.hpp.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// W: type on the wire. Wide: float or double, the type of the numbers and of the scale, which stands before them.
template <class W, class Wide>
struct rounded_part {
    static constexpr std::size_t bytes(std::size_t n) { return (sizeof(Wide) + n * sizeof(W) + 7) / 8 * 8; }

    // Writes x, and leaves in x what was rounded off. If not all numbers are finite, writes NaN, and leaves 0 in x.
    static void round(Wide* x, std::size_t n, std::byte* to) {
        const Wide scale = scale_for(x, n);
        std::memcpy(to, &scale, sizeof scale);
        to += sizeof scale;
        for (std::size_t i = 0; i < n; ++i) {
            const W rounded = to_wire(x[i] / scale);
            std::memcpy(to + i * sizeof(W), &rounded, sizeof rounded);
            const Wide left = x[i] - from_wire(rounded) * scale;
            x[i] = std::isfinite(left) ? left : Wide(0);
        }
    }
    // Calls f(i, number i).
    template <class F>
    static void read(const std::byte* from, std::size_t n, F&& f) {
        Wide scale;
        std::memcpy(&scale, from, sizeof scale);
        from += sizeof scale;
        for (std::size_t i = 0; i < n; ++i) {
            W v;
            std::memcpy(&v, from + i * sizeof(W), sizeof v);
            f(i, from_wire(v) * scale);
        }
    }

private:
    static W to_wire(Wide x) { return static_cast<W>(static_cast<float>(x)); }
    static Wide from_wire(W x) { return static_cast<Wide>(static_cast<float>(x)); }
    static constexpr bool has_float_range =
        sizeof(W) > 1 && std::numeric_limits<W>::max_exponent >= std::numeric_limits<float>::max_exponent;
    static Wide largest() {
        if constexpr (sizeof(W) == 1) return from_wire(W(1e30f)); // e4m3 and e5m2 saturate
        else return static_cast<Wide>(std::numeric_limits<W>::max());
    }
    static Wide scale_for(const Wide* x, std::size_t n) {
        Wide most = 0;
        bool is_finite = true;
        for (std::size_t i = 0; i < n; ++i) {
            is_finite &= std::isfinite(x[i]);
            most = std::abs(x[i]) > most ? std::abs(x[i]) : most;
        }
        if (!is_finite) return std::numeric_limits<Wide>::quiet_NaN();
        if (most == 0 || (has_float_range && most <= largest())) return 1;
        const Wide scale = most / largest(), least = std::numeric_limits<Wide>::min();
        if (!std::isfinite(scale * largest())) return std::nextafter(scale, Wide(0)); // it was rounded up
        return scale > least ? scale : least;
    }
};

} // namespace detail
COLLX_END_NAMESPACE
