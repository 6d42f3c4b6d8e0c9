// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bulk conversions must give the bits of the scalar ones (half_test.cpp checks those), at every length and
// alignment.
#include <collx/core/convert.hpp>

#include <cmath>
#include <cstring>
#include <vector>

#include <catch2/catch.hpp>

namespace {

// All patterns, and floats around every value and every half-way point of both formats, with all kinds of NaN.
std::vector<float> difficult_floats() {
    std::vector<float> all;
    for (std::uint32_t high = 0; high < 0x10000; ++high)
        for (std::uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xefffu,
                                  0xf000u, 0xf001u, 0xffffu}) {
            const std::uint32_t bits = high << 16 | low;
            float x;
            std::memcpy(&x, &bits, sizeof x);
            all.push_back(x);
        }
    return all;
}

bool same_bytes(const void* a, const void* b, std::size_t n) { return std::memcmp(a, b, n) == 0; }

} // namespace

TEMPLATE_TEST_CASE("bulk and scalar conversion to float agree in every bit", "", collx::f16, collx::bf16) {
    std::vector<TestType> halves(0x10000);
    for (unsigned i = 0; i < halves.size(); ++i) halves[i] = TestType::from_bits(static_cast<std::uint16_t>(i));
    std::vector<float> bulk(halves.size()), scalar;
    collx::convert_n(bulk.data(), halves.data(), halves.size());
    for (TestType h : halves) scalar.push_back(h);
    unsigned wrong = 0;
    for (std::size_t i = 0; i < bulk.size(); ++i) wrong += !same_bytes(&bulk[i], &scalar[i], sizeof(float));
    CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("bulk and scalar conversion from float agree in every bit", "", collx::f16, collx::bf16) {
    const std::vector<float> floats = difficult_floats();
    std::vector<TestType> bulk(floats.size());
    collx::convert_n(bulk.data(), floats.data(), floats.size());
    unsigned wrong = 0;
    for (std::size_t i = 0; i < floats.size(); ++i) wrong += bulk[i].bits != TestType(floats[i]).bits;
    CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("any length, any alignment, and nothing beside it is written", "", collx::f16, collx::bf16) {
    for (std::size_t n = 0; n <= 33; ++n)
        for (std::size_t shift = 0; shift < 8; ++shift) {
            std::vector<TestType> halves(64, TestType(7));
            std::vector<float> floats(64, -1.0f);
            for (std::size_t i = 0; i < n; ++i) halves[shift + i] = TestType(static_cast<int>(i) + 1);
            collx::convert_n(floats.data() + 3, halves.data() + shift, n);
            std::vector<TestType> back(64, TestType(9));
            collx::convert_n(back.data() + shift, floats.data() + 3, n);
            bool right = floats[2] == -1.0f && floats[3 + n] == -1.0f && back[shift + n].bits == TestType(9).bits;
            for (std::size_t i = 0; i < n; ++i)
                right = right && floats[3 + i] == static_cast<float>(i + 1) &&
                        back[shift + i].bits == halves[shift + i].bits;
            CAPTURE(n, shift);
            CHECK(right);
        }
}

TEST_CASE("other pairs of types go one by one") {
    const std::vector<collx::f16> halves = {collx::f16(1.5f), collx::f16(-2)};
    std::vector<double> doubles(2);
    collx::convert_n(doubles.data(), halves.data(), 2);
    CHECK(doubles == std::vector<double>{1.5, -2});
    std::vector<collx::bf16> others(2);
    collx::convert_n(others.data(), halves.data(), 2);
    CHECK(others[0].bits == collx::bf16(1.5f).bits);
}
