// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A span of time; std::chrono::seconds(5) and 5s convert to it. collx has its own type because nvcc reads std::chrono
// three times, 0.12 s in every .cu file, and because libstdc++'s <chrono> includes <sstream> in C++20, 0.2 s for every
// user. A program that writes 5s includes <chrono> itself.
#pragma once

#include <cstdint>
#include <type_traits>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// A std::chrono::duration with an integral count, whose unit is a whole number of nanoseconds.
template <class D>
concept whole_nanoseconds = requires(const D& d) {
    typename D::rep;
    requires std::is_integral_v<typename D::rep>;
    requires D::period::num* std::intmax_t{1'000'000'000} % D::period::den == 0;
    static_cast<std::int64_t>(d.count());
};

} // namespace detail

class duration {
public:
    constexpr duration() = default;
    template <detail::whole_nanoseconds D>
    constexpr duration(const D& d)
        : ns_(in_ns(d.count(), D::period::num * std::intmax_t{1'000'000'000} / D::period::den)) {}
    static constexpr duration from_ns(std::int64_t ns) {
        duration d;
        d.ns_ = ns;
        return d;
    }

    constexpr std::int64_t count() const { return ns_; } // nanoseconds
    // Converts to std::chrono::nanoseconds.
    template <detail::whole_nanoseconds D>
    requires(D::period::num == 1 && D::period::den == 1'000'000'000) constexpr operator D() const {
        return D(static_cast<typename D::rep>(ns_));
    }
    constexpr bool operator==(const duration&) const = default;

private:
    // Saturates: hours::max() means forever, too.
    template <class N>
    static constexpr std::int64_t in_ns(N n, std::intmax_t unit) {
        const std::int64_t most = INT64_MAX / unit;
        if (n > N(0) && static_cast<std::uint64_t>(n) > static_cast<std::uint64_t>(most)) return INT64_MAX;
        if (n < N(0) && static_cast<std::int64_t>(n) < -most) return INT64_MIN;
        return static_cast<std::int64_t>(n) * unit;
    }
    std::int64_t ns_ = 0;
};

COLLX_END_NAMESPACE
