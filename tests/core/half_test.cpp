// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// f16 and bf16 compared with a table of their values, built from the definition of the formats and not from the code
// under test: every pattern, and every place where rounding changes from one value to the next.
#include <collx/core/half.hpp>

#include <cmath>
#include <cstring>
#include <limits>

#include <catch2/catch.hpp>

namespace {

template <class Half>
struct format;
template <>
struct format<collx::f16> {
    static constexpr int exponent_bits = 5, mantissa_bits = 10;
};
template <>
struct format<collx::bf16> {
    static constexpr int exponent_bits = 8, mantissa_bits = 7;
};

// The value of a non-negative finite pattern, by the definition of the IEEE interchange format.
template <class Half>
double value_of(unsigned pattern) {
    constexpr int bias = (1 << (format<Half>::exponent_bits - 1)) - 1;
    constexpr int width = format<Half>::mantissa_bits;
    const int exponent = static_cast<int>(pattern >> width);
    const double mantissa = pattern & ((1u << width) - 1);
    return exponent == 0 ? std::ldexp(mantissa, 1 - bias - width)
                         : std::ldexp(mantissa + (1 << width), exponent - bias - width);
}

template <class Half>
constexpr unsigned infinity_pattern = ((1u << format<Half>::exponent_bits) - 1) << format<Half>::mantissa_bits;

std::uint32_t bits_of(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

} // namespace

TEMPLATE_TEST_CASE("every pattern has the value its format defines, and comes back", "", collx::f16, collx::bf16) {
    unsigned wrong_values = 0, wrong_round_trips = 0;
    for (unsigned pattern = 0; pattern < 0x10000; ++pattern) {
        const auto half = TestType::from_bits(static_cast<std::uint16_t>(pattern));
        const unsigned magnitude = pattern & 0x7fff;
        const bool negative = pattern != magnitude;
        const float x = half;
        if (magnitude > infinity_pattern<TestType>) {
            wrong_values += !std::isnan(x) || std::signbit(x) != negative;
            wrong_round_trips += !std::isnan(float(TestType(x)));
            // A quiet NaN keeps all bits.
            const unsigned quiet_bit = 1u << (format<TestType>::mantissa_bits - 1);
            if ((magnitude & quiet_bit) != 0) wrong_round_trips += TestType(x).bits != pattern;
        } else {
            const double wanted = magnitude == infinity_pattern<TestType> ? std::numeric_limits<double>::infinity()
                                                                          : value_of<TestType>(magnitude);
            wrong_values += x != (negative ? -wanted : wanted) || std::signbit(x) != negative;
            wrong_round_trips += TestType(x).bits != pattern || TestType(double(x)).bits != pattern;
        }
    }
    CHECK(wrong_values == 0);
    CHECK(wrong_round_trips == 0);
}

TEMPLATE_TEST_CASE("rounding turns exactly half-way, and there to the even pattern", "", collx::f16, collx::bf16) {
    unsigned wrong = 0;
    for (unsigned low = 0; low < infinity_pattern<TestType>; ++low) {
        const unsigned high = low + 1; // infinity stands for the next power of two
        const unsigned even = low % 2 == 0 ? low : high;
        const double half_way =
            high == infinity_pattern<TestType>
                ? value_of<TestType>(low) + (value_of<TestType>(low) - value_of<TestType>(low - 1)) / 2
                : (value_of<TestType>(low) + value_of<TestType>(high)) / 2;
        const double sides[] = {std::nextafter(half_way, 0.0), half_way, std::nextafter(half_way, 1e300)};
        const unsigned wanted[] = {low, even, high};
        for (int s = 0; s < 3; ++s)
            for (const unsigned sign : {0u, 0x8000u})
                wrong += TestType(sign != 0 ? -sides[s] : sides[s]).bits != (wanted[s] | sign);

        const auto near = static_cast<float>(half_way);
        if (static_cast<double>(near) != half_way) continue; // smaller than the smallest float
        const float float_sides[] = {std::nextafter(near, 0.0f), near, std::nextafter(near, INFINITY)};
        for (int s = 0; s < 3; ++s)
            for (const unsigned sign : {0u, 0x8000u})
                wrong += TestType(sign != 0 ? -float_sides[s] : float_sides[s]).bits != (wanted[s] | sign);
    }
    CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("a double is rounded once, not by way of float", "", collx::f16, collx::bf16) {
    // Above a tie by less than a float resolves: converted through float it would be the tie, and round down to even.
    const double tie = 1.0 + std::ldexp(1.0, -format<TestType>::mantissa_bits - 1);
    const double above = tie + std::ldexp(1.0, -40);
    CHECK(static_cast<float>(above) == static_cast<float>(tie));
    CHECK(TestType(tie).bits == TestType(1.0f).bits);
    CHECK(TestType(above).bits == TestType(1.0f).bits + 1);
    CHECK(TestType(-above).bits == TestType(-1.0f).bits + 1);
    CHECK(TestType(1e300).bits == infinity_pattern<TestType>);
    CHECK(TestType(-1e300).bits == (infinity_pattern<TestType> | 0x8000));
    CHECK(TestType(1e-300).bits == 0);
    CHECK(TestType(-1e-300).bits == 0x8000);
    CHECK(std::isnan(float(TestType(std::nan("")))));
    const long double wide_tie = tie, wide_above = wide_tie + std::ldexp(1.0L, -60);
    CHECK(TestType(wide_tie).bits == TestType(1.0f).bits);
    CHECK(TestType(wide_above).bits == TestType(1.0f).bits + 1);
    CHECK(TestType(-wide_above).bits == ((TestType(1.0f).bits + 1) | 0x8000));
    CHECK(TestType(1e3000L).bits == infinity_pattern<TestType>);
    CHECK(TestType(-1e3000L).bits == (infinity_pattern<TestType> | 0x8000));
    CHECK(std::isnan(float(TestType(-std::nanl("")))));
}

TEMPLATE_TEST_CASE("integers are rounded once too", "", collx::f16, collx::bf16) {
    for (int i = -3000; i <= 3000; ++i) CHECK(TestType(i).bits == TestType(float(i)).bits);
    // 2^62 + a tie of the format + 1: a double cannot hold the last bit.
    const long long tie = (1LL << 62) + (1LL << (61 - format<TestType>::mantissa_bits));
    CHECK(TestType(tie + 1).bits == TestType(tie + (1LL << 40)).bits);
    CHECK(TestType(-(tie + 1)).bits == (TestType(tie + 1).bits | 0x8000));
    if (format<TestType>::exponent_bits == 8) CHECK(TestType(tie + 1).bits == TestType(tie).bits + 1);
    CHECK(TestType(std::numeric_limits<long long>::min()).bits == TestType(-0x1p63).bits);
    CHECK(TestType(std::numeric_limits<std::uint64_t>::max()).bits == TestType(0x1p64).bits);
}

TEMPLATE_TEST_CASE("arithmetic and comparison are those of float", "", collx::f16, collx::bf16) {
    const TestType two(2), three(3);
    STATIC_REQUIRE(std::is_same_v<decltype(two + three), float>);
    CHECK(two + three == 5.0f);
    CHECK(two < three);
    CHECK(two == TestType(2.0f));
    CHECK(two != three);
    TestType x = two * three; // storing the float result rounds it
    x += 1.0f;
    x -= two;
    x *= three;
    x /= 5.0f;
    CHECK(float(x) == 3.0f);
    CHECK((-x).bits == (x.bits ^ 0x8000));
    CHECK((-TestType(0)).bits == 0x8000);
    const auto nan = std::numeric_limits<TestType>::quiet_NaN();
    CHECK(nan != nan);
    CHECK_FALSE(nan < two);
}

TEMPLATE_TEST_CASE("only a float converts without being named", "", collx::f16, collx::bf16) {
    STATIC_REQUIRE(std::is_convertible_v<float, TestType>);
    STATIC_REQUIRE_FALSE(std::is_convertible_v<double, TestType>);
    STATIC_REQUIRE_FALSE(std::is_convertible_v<int, TestType>);
    STATIC_REQUIRE(std::is_constructible_v<TestType, double>);
    STATIC_REQUIRE(std::is_constructible_v<TestType, unsigned long>);
    STATIC_REQUIRE_FALSE(std::is_convertible_v<collx::f16, collx::bf16>);
    STATIC_REQUIRE_FALSE(std::is_convertible_v<collx::bf16, collx::f16>);
}

TEMPLATE_TEST_CASE("the limits are those of the format", "", collx::f16, collx::bf16) {
    using limits = std::numeric_limits<TestType>;
    CHECK(limits::infinity().bits == infinity_pattern<TestType>);
    CHECK(limits::max().bits == infinity_pattern<TestType> - 1);
    CHECK(limits::lowest().bits == (limits::max().bits | 0x8000));
    CHECK(float(limits::min()) == std::ldexp(1.0f, limits::min_exponent - 1));
    CHECK(float(limits::epsilon()) == std::ldexp(1.0f, 1 - limits::digits));
    CHECK(double(float(limits::denorm_min())) == value_of<TestType>(1));
    CHECK(limits::digits == format<TestType>::mantissa_bits + 1);
    CHECK(float(limits::max()) == std::ldexp(2.0f - limits::epsilon(), limits::max_exponent - 1));
    CHECK(std::isnan(float(limits::quiet_NaN())));
    CHECK(std::isnan(float(limits::signaling_NaN())));
    CHECK(limits::signaling_NaN().bits < limits::quiet_NaN().bits);
    CHECK(std::pow(10.0, limits::max_exponent10) <= float(limits::max()));
    CHECK(std::pow(10.0, limits::max_exponent10 + 1) > float(limits::max()));
    CHECK(std::pow(10.0, limits::min_exponent10) >= float(limits::min()));
    CHECK(std::pow(10.0, limits::min_exponent10 - 1) < float(limits::min()));
    CHECK((limits::has_denorm == std::denorm_present && limits::round_style == std::round_to_nearest));
    CHECK(float(limits::round_error()) == 0.5f);
    CHECK(bits_of(limits::quiet_NaN()) == bits_of(std::numeric_limits<float>::quiet_NaN()));
}

TEST_CASE("constants of 16-bit types are constants") {
    STATIC_REQUIRE(collx::f16(1.5f).bits == 0x3e00);
    STATIC_REQUIRE(collx::f16(65519.996f).bits == 0x7bff);
    STATIC_REQUIRE(collx::f16(65520.0f).bits == 0x7c00);
    STATIC_REQUIRE(collx::bf16(1.0).bits == 0x3f80);
    STATIC_REQUIRE(float(collx::bf16(3)) == 3.0f);
}
