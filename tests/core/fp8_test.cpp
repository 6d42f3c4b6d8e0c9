// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// All 256 patterns of both types, and floats between them, compared with the definition of rounding.
#include <collx/core/fp8.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include <collx/core/element.hpp>
#include <collx/core/op.hpp>

using namespace collx;

namespace {

// The finite values of a type in the order of their patterns, from 0 on.
template <class T>
std::vector<float> positive_values() {
    std::vector<float> v;
    for (int b = 0; b < 0x80; ++b)
        if (const float x = T::from_bits(static_cast<std::uint8_t>(b)); std::isfinite(x)) v.push_back(x);
    return v;
}

template <class T>
int wrong_roundings() {
    const auto v = positive_values<T>();
    int wrong = 0;
    for (std::size_t i = 0; i + 1 < v.size(); ++i) {
        wrong += !(v[i] < v[i + 1]);
        const float middle = (v[i] + v[i + 1]) / 2; // exact: needs one more bit
        const auto even = static_cast<std::uint8_t>(i % 2 == 0 ? i : i + 1);
        for (const float sign : {1.0f, -1.0f}) {
            const auto bits = [&](float x) { return T(sign * x).bits & 0x7f; };
            wrong += bits(v[i]) != static_cast<int>(i);
            wrong += bits(middle) != even;
            wrong += bits(std::nextafter(middle, 0.0f)) != static_cast<int>(i);
            wrong += bits(std::nextafter(middle, 1e9f)) != static_cast<int>(i + 1);
            wrong += (T(sign * v[i]).bits >> 7) != (sign < 0);
        }
    }
    return wrong;
}

} // namespace

TEST_CASE("8-bit floats round to nearest even and keep their sign") {
    CHECK(positive_values<e4m3>().size() == 127);
    CHECK(positive_values<e5m2>().size() == 124);
    CHECK(wrong_roundings<e4m3>() == 0);
    CHECK(wrong_roundings<e5m2>() == 0);
}

TEMPLATE_TEST_CASE("a double is rounded once, not by way of float", "", e4m3, e5m2) {
    const auto v = positive_values<TestType>();
    int wrong = 0;
    for (std::size_t i = 0; i + 1 < v.size(); ++i) {
        const double middle = (double(v[i]) + v[i + 1]) / 2;
        wrong += TestType(std::nextafter(middle, 0.0)).bits != i;
        wrong += TestType(std::nextafter(middle, 1e9)).bits != i + 1;
        wrong += TestType(-std::nextafter(middle, 1e9)).bits != i + 0x81;
        wrong += TestType(std::nextafter(static_cast<long double>(middle), 1e9L)).bits != i + 1;
    }
    CHECK(wrong == 0);
    CHECK(TestType(1e300).bits == TestType(1e30f).bits);
    CHECK(TestType(-1e300).bits == TestType(-1e30f).bits);
    CHECK(TestType(INT64_MIN).bits == TestType(-1e30f).bits);
    CHECK(float(TestType(-3)) == -3.0f);
}

TEST_CASE("8-bit floats have the values of the standard") {
    CHECK(float(e4m3::from_bits(0x7e)) == 448.0f);
    CHECK(float(e4m3::from_bits(0x08)) == 0x1p-6f);
    CHECK(float(e4m3::from_bits(0x01)) == 0x1p-9f);
    CHECK(float(e4m3(1.0f)) == 1.0f);
    CHECK(float(e5m2::from_bits(0x7b)) == 57344.0f);
    CHECK(float(e5m2::from_bits(0x04)) == 0x1p-14f);
    CHECK(float(e5m2::from_bits(0x01)) == 0x1p-16f);
    CHECK(std::isinf(float(e5m2::from_bits(0xfc))));
    CHECK(std::isnan(float(e4m3::from_bits(0x7f))));
    CHECK(std::isnan(float(e5m2::from_bits(0x7d))));
}

TEST_CASE("what is too large stays finite, a NaN stays one") {
    const float inf = std::numeric_limits<float>::infinity();
    CHECK(float(e4m3(1e9f)) == 448.0f);
    CHECK(float(e4m3(-inf)) == -448.0f);
    CHECK(float(e5m2(inf)) == 57344.0f);
    CHECK(float(e5m2(65000.0)) == 57344.0f);
    CHECK(std::isnan(float(e4m3(std::nanf("")))));
    CHECK(std::isnan(float(e5m2(-std::nanf("")))));
    CHECK(e4m3(1e-30f).bits == 0);
    CHECK(e4m3(std::numeric_limits<float>::denorm_min()).bits == 0);
}

TEST_CASE("8-bit floats are elements that add up as floats") {
    STATIC_REQUIRE(Element<e4m3>);
    STATIC_REQUIRE(std::is_same_v<accumulator_t<e5m2>, float>);
    STATIC_REQUIRE(ReduceOp<plus, e4m3>);
    STATIC_REQUIRE(ReduceOp<collx::max, e5m2>);
    CHECK(plus{}(accumulator_t<e4m3>(e4m3(0.5f)), accumulator_t<e4m3>(e4m3(300.0f))) == 300.0f + 0.5f - 12.0f);
}
