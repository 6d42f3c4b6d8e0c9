// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The arithmetic operators: values by type, special values in every order and grouping, vectors and scalars.
#include <collx/core/op.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

namespace {

template <class T>
bool same_bits(const T& a, const T& b) {
    return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class T>
T from_pattern(std::uint64_t pattern) {
    T x;
    std::memcpy(&x, &pattern, sizeof x);
    return x;
}

// Zeros, infinities, bounds and NaNs of both signs with different payloads.
template <class T>
std::vector<T> special_values() {
    using limits = std::numeric_limits<T>;
    std::uint64_t nan_bits = 0;
    const T nan = limits::quiet_NaN();
    std::memcpy(&nan_bits, &nan, sizeof nan);
    return {T(0),
            -T(0),
            T(1),
            -T(1),
            limits::max(),
            limits::lowest(),
            limits::denorm_min(),
            limits::infinity(),
            -limits::infinity(),
            nan,
            -nan,
            from_pattern<T>(nan_bits | 5)};
}

// Limits, small numbers, and numbers of every width.
template <class T>
std::vector<T> varied_integers() {
    std::vector<T> values = {
        T(0), T(1), T(2), T(-1), T(-2), std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest()};
    std::uint64_t x = 88172645463325252u;
    while (values.size() < 64) {
        // G. Marsaglia, "Xorshift RNGs" (2003)
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        values.push_back(static_cast<T>(x >> (x % 61)));
    }
    return values;
}

// The values of x[first] op ... op x[last - 1] for every way to set parentheses.
template <class T, class Op>
std::vector<T> all_groupings(const std::vector<T>& x, std::size_t first, std::size_t last, Op op) {
    if (last - first == 1) return {x[first]};
    std::vector<T> results;
    for (std::size_t cut = first + 1; cut < last; ++cut)
        for (const T& left : all_groupings(x, first, cut, op))
            for (const T& right : all_groupings(x, cut, last, op)) results.push_back(op(left, right));
    return results;
}

// The number of triples of special values whose result depends on order or grouping.
template <class T, class Op>
unsigned order_dependent_results(Op op) {
    const std::vector<T> values = special_values<T>();
    unsigned wrong = 0;
    for (std::size_t a = 0; a < values.size(); ++a)
        for (std::size_t b = a; b < values.size(); ++b)
            for (std::size_t c = b; c < values.size(); ++c) {
                std::vector<std::size_t> order = {a, b, c};
                T reference = op(op(values[a], values[b]), values[c]);
                do {
                    const std::vector<T> operands = {values[order[0]], values[order[1]], values[order[2]]};
                    for (const T& result : all_groupings(operands, 0, 3, op)) wrong += !same_bits(result, reference);
                } while (std::next_permutation(order.begin(), order.end()));
            }
    return wrong;
}

// A user's number type that has only + and <.
struct money {
    int cents;
    friend money operator+(money a, money b) { return {a.cents + b.cents}; }
    friend bool operator<(money a, money b) { return a.cents < b.cents; }
};

} // namespace

TEMPLATE_TEST_CASE("integer operators agree with their definitions, and wrap around", "", std::int8_t, std::uint8_t,
                   std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t) {
    unsigned wrong = 0;
    const std::vector<TestType> values = varied_integers<TestType>();
    for (const TestType a : values)
        for (const TestType b : values) {
            // The low bits of a 64-bit unsigned result are the wrapped result of any narrower type.
            const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
            wrong += collx::plus{}(a, b) != static_cast<TestType>(x + y);
            wrong += collx::multiplies{}(a, b) != static_cast<TestType>(x * y);
            wrong += collx::min{}(a, b) != std::min(a, b);
            wrong += collx::max{}(a, b) != std::max(a, b);
            wrong += collx::bit_and{}(a, b) != static_cast<TestType>(a & b);
            wrong += collx::bit_or{}(a, b) != static_cast<TestType>(a | b);
            wrong += collx::bit_xor{}(a, b) != static_cast<TestType>(a ^ b);
            wrong += collx::logical_and{}(a, b) != TestType(a != 0 && b != 0);
            wrong += collx::logical_or{}(a, b) != TestType(a != 0 || b != 0);
            wrong += collx::logical_xor{}(a, b) != TestType((a != 0) != (b != 0));
        }
    CHECK(wrong == 0);
    constexpr auto most = std::numeric_limits<TestType>::max();
    STATIC_REQUIRE(collx::plus{}(most, TestType(1)) == std::numeric_limits<TestType>::lowest());
    STATIC_REQUIRE(collx::multiplies{}(most, most) == TestType(1));
}

TEMPLATE_TEST_CASE("minimum and maximum do not depend on the order, in any bit", "", float, double, collx::f16,
                   collx::bf16) {
    CHECK(order_dependent_results<TestType>(collx::min{}) == 0);
    CHECK(order_dependent_results<TestType>(collx::max{}) == 0);
}

TEMPLATE_TEST_CASE("a NaN wins in minimum and maximum, and -0 is less than +0", "", float, double, long double,
                   collx::f16, collx::bf16) {
    using limits = std::numeric_limits<TestType>;
    const TestType zero(0), minus_zero = -zero, one(1);
    for (const TestType other : {zero, one, TestType(-limits::infinity()), limits::infinity()}) {
        for (const TestType result :
             {collx::min{}(other, limits::quiet_NaN()), collx::min{}(limits::quiet_NaN(), other),
              collx::max{}(other, limits::quiet_NaN()), collx::max{}(limits::quiet_NaN(), other)})
            CHECK(result != result);
    }
    CHECK(std::signbit(static_cast<double>(collx::min{}(zero, minus_zero))));
    CHECK(std::signbit(static_cast<double>(collx::min{}(minus_zero, zero))));
    CHECK_FALSE(std::signbit(static_cast<double>(collx::max{}(zero, minus_zero))));
    CHECK_FALSE(std::signbit(static_cast<double>(collx::max{}(minus_zero, zero))));
    CHECK(collx::min{}(one, zero) == zero);
    CHECK(collx::max{}(one, zero) == one);
    CHECK(collx::min{}(TestType(-limits::infinity()), one) == -limits::infinity());
    CHECK(collx::max{}(one, limits::infinity()) == limits::infinity());
}

TEST_CASE("the NaN that comes out is the one quiet NaN of the type") {
    const float payload = from_pattern<float>(0xffc00123u);
    CHECK(same_bits(collx::min{}(payload, 1.0f), std::numeric_limits<float>::quiet_NaN()));
    CHECK(collx::max{}(collx::bf16::from_bits(0x7fc1), collx::bf16(1)).bits == 0x7fc0);
    CHECK(collx::min{}(collx::f16(1), collx::f16::from_bits(0xfe01)).bits == 0x7e00);
}

TEMPLATE_TEST_CASE("short vectors give the bits of the scalars for every pair of special values", "", float, double) {
    using vector = collx::short_vector_t<TestType, 16>;
    constexpr int lanes = 16 / sizeof(TestType);
    const std::vector<TestType> values = special_values<TestType>();
    unsigned wrong = 0;
    for (const TestType& a : values)
        for (const TestType& b : values) {
            vector va = {}, vb = {};
            va[lanes - 1] = a;
            vb[lanes - 1] = b;
            va[0] = TestType(2);
            vb[0] = TestType(3);
            const auto compare = [&](auto op) {
                const vector result = op(va, vb);
                const TestType last = result[lanes - 1], first = result[0];
                wrong += !same_bits(last, op(a, b)) || !same_bits(first, op(TestType(2), TestType(3)));
            };
            compare(collx::min{});
            compare(collx::max{});
            if (a == a && b == b) { // the payload of a sum of NaNs is unspecified
                compare(collx::plus{});
                compare(collx::multiplies{});
            }
        }
    CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("short vectors of integers give the bits of the scalars", "", std::int8_t, std::uint8_t,
                   std::int16_t, std::int32_t, std::uint32_t, std::int64_t) {
    using vector = collx::short_vector_t<TestType, 16>;
    constexpr std::size_t lanes = 16 / sizeof(TestType);
    const std::vector<TestType> values = varied_integers<TestType>();
    unsigned wrong = 0;
    for (std::size_t shift = 0; shift < values.size(); ++shift)
        for (std::size_t i = 0; i + lanes <= values.size(); i += lanes) {
            TestType a[lanes], b[lanes];
            for (std::size_t k = 0; k < lanes; ++k) {
                a[k] = values[i + k];
                b[k] = values[(i + k + shift) % values.size()];
            }
            vector va, vb;
            std::memcpy(&va, a, sizeof va);
            std::memcpy(&vb, b, sizeof vb);
            const auto compare = [&](auto op) {
                const vector result = op(va, vb);
                for (std::size_t k = 0; k < lanes; ++k) wrong += TestType(result[k]) != op(a[k], b[k]);
            };
            compare(collx::plus{});
            compare(collx::multiplies{});
            compare(collx::min{});
            compare(collx::max{});
            compare(collx::bit_and{});
            compare(collx::bit_or{});
            compare(collx::bit_xor{});
        }
    CHECK(wrong == 0);
}

TEST_CASE("bools have bit and logical operators, minimum and maximum") {
    for (const bool a : {false, true})
        for (const bool b : {false, true}) {
            CHECK(collx::logical_and{}(a, b) == (a && b));
            CHECK(collx::logical_or{}(a, b) == (a || b));
            CHECK(collx::logical_xor{}(a, b) == (a != b));
            CHECK(collx::bit_xor{}(a, b) == (a != b));
            CHECK(collx::min{}(a, b) == (a && b));
            CHECK(collx::max{}(a, b) == (a || b));
        }
}

TEST_CASE("16-bit types and complex numbers are summed and multiplied") {
    CHECK(collx::plus{}(collx::bf16(1.5f), collx::bf16(2)).bits == collx::bf16(3.5f).bits);
    CHECK(collx::multiplies{}(collx::f16(3), collx::f16(-2)).bits == collx::f16(-6).bits);
    using complex = std::complex<float>;
    CHECK(collx::plus{}(complex(1, 2), complex(3, 4)) == complex(4, 6));
    CHECK(collx::multiplies{}(complex(0, 1), complex(0, 1)) == complex(-1, 0));
}

TEST_CASE("a sum kept in bf16 stops growing at 256, one kept in its accumulator does not") {
    collx::bf16 narrow(0);
    collx::accumulator_t<collx::bf16> wide = 0;
    for (int i = 0; i < 1000; ++i) {
        narrow = collx::plus{}(narrow, collx::bf16(1));
        wide = collx::plus{}(wide, 1.0f);
    }
    CHECK(float(narrow) == 256.0f);
    CHECK(wide == 1000.0f);
}

TEST_CASE("a user's class needs only the operator in question") {
    CHECK(collx::plus{}(money{1}, money{2}).cents == 3);
    CHECK(collx::min{}(money{5}, money{2}).cents == 2);
    CHECK(collx::max{}(money{5}, money{2}).cents == 5);
    STATIC_REQUIRE(collx::ReduceOp<collx::plus, money>);
    STATIC_REQUIRE_FALSE(collx::ReduceOp<collx::multiplies, money>);
    STATIC_REQUIRE_FALSE(collx::ReduceOp<collx::bit_and, float>);
    STATIC_REQUIRE_FALSE(collx::ReduceOp<collx::min, std::complex<float>>);
}

TEST_CASE("average divides once, at the end") {
    const collx::hook_context four{4, 0};
    CHECK(collx::average{}(1.0, 2.0) == 3.0);
    CHECK(collx::average{}.post(10.0, four) == 2.5);
    CHECK(collx::average{}.post(10, four) == 2);
    CHECK(collx::average{}.post(-10, four) == -2);
#ifdef __SIZEOF_INT128__
    __extension__ typedef __int128 wide; // the library's traits treat it as an integer with -std=gnu++20 only
    CHECK(bool(collx::average{}.post(wide(1) << 100, four) == wide(1) << 98));
    CHECK(bool(collx::average{}.post(-(wide(1) << 100), four) == -(wide(1) << 98)));
#endif
    CHECK(collx::average{}.post(std::uint64_t(1) << 63, four) == std::uint64_t(1) << 61);
    CHECK(collx::average{}.post(std::int8_t(100), {200, 0}) == 0); // 200 is not an int8
    CHECK(float(collx::average{}.post(collx::f16(10), four)) == 2.5f);
    CHECK(collx::average{}.post(std::complex<float>(8, 4), four) == std::complex<float>(2, 1));
    const collx::short_vector_t<float, 16> sums = {4, 8, 12, 16};
    const auto means = collx::average{}.post(sums, four);
    for (int i = 0; i < 4; ++i) CHECK(means[i] == i + 1.0f);
}

TEST_CASE("premultiplied_sum scales contributions before the sum") {
    const collx::premultiplied_sum half(0.5f);
    CHECK(half.pre(3.0f) == 1.5f);
    CHECK(half.pre(10) == 5);
    CHECK(float(half.pre(collx::bf16(3))) == 1.5f);
    CHECK(half(half.pre(3.0f), half.pre(1.0f)) == 2.0f);
    const auto scaled = half.pre(collx::short_vector_t<float, 16>{2, 4, 6, 8});
    CHECK(scaled[3] == 4.0f);
}

TEMPLATE_TEST_CASE("identities change nothing", "", int, std::uint8_t, std::int64_t, float, double, collx::f16,
                   collx::bf16) {
    const auto neutral = [](auto op, TestType x) {
        const auto e = collx::identity<decltype(op), TestType>();
        CHECK(op(e, x) == x);
        CHECK(op(x, e) == x);
    };
    for (const TestType x : {TestType(0), TestType(1), TestType(77), std::numeric_limits<TestType>::max(),
                             std::numeric_limits<TestType>::lowest()}) {
        neutral(collx::plus{}, x);
        neutral(collx::multiplies{}, x);
        neutral(collx::min{}, x);
        neutral(collx::max{}, x);
        neutral(collx::average{}, x);
        if constexpr (std::is_integral_v<TestType>) {
            neutral(collx::bit_and{}, x);
            neutral(collx::bit_or{}, x);
            neutral(collx::bit_xor{}, x);
        }
    }
    if constexpr (!std::is_integral_v<TestType>) {
        using limits = std::numeric_limits<TestType>;
        CHECK(collx::identity<collx::min, TestType>() == limits::infinity());
        CHECK(collx::identity<collx::max, TestType>() == -limits::infinity());
    }
}

TEST_CASE("identities of bool and complex") {
    STATIC_REQUIRE(collx::identity<collx::logical_and, bool>());
    STATIC_REQUIRE_FALSE(collx::identity<collx::logical_or, bool>());
    STATIC_REQUIRE_FALSE(collx::identity<collx::logical_xor, bool>());
    STATIC_REQUIRE(collx::identity<collx::bit_and, bool>());
    STATIC_REQUIRE(collx::identity<collx::min, bool>());
    STATIC_REQUIRE_FALSE(collx::identity<collx::max, bool>());
    CHECK(collx::identity<collx::multiplies, std::complex<float>>() == std::complex<float>(1, 0));
    STATIC_REQUIRE_FALSE(collx::has_identity_v<collx::min, money>);
    STATIC_REQUIRE_FALSE(collx::has_identity_v<collx::plus, money>);
}
