// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// welford and online_softmax compared with two-pass formulas in long double, merged in trees of every shape.
#include <collx/core/op.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

namespace {

template <class T>
bool same_bits(const T& a, const T& b) {
    return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// Deterministic values around `centre`.
std::vector<double> samples(std::size_t n, double centre) {
    std::vector<double> values;
    std::uint32_t x = 12345;
    for (std::size_t i = 0; i < n; ++i) {
        x = x * 1664525u + 1013904223u;
        values.push_back(centre + static_cast<double>(x >> 8) / (1 << 24) - 0.5);
    }
    return values;
}

template <class State, class T, class Op>
State left_to_right(const std::vector<T>& values, Op op) {
    State state = collx::identity<Op, State>();
    for (const T& x : values) state = op(state, State::of(x));
    return state;
}

template <class State, class T, class Op>
State halves(const T* first, std::size_t n, Op op) {
    if (n == 1) return State::of(*first);
    return op(halves<State>(first, n / 2, op), halves<State>(first + n / 2, n - n / 2, op));
}

} // namespace

TEST_CASE("welford has the mean and variance of all values, whatever the tree") {
    using state = collx::welford_state<double>;
    for (const std::size_t n : {1u, 2u, 3u, 10u, 1000u}) {
        const auto values = samples(n, 1e6); // far from zero, where the naive formula loses all precision
        long double mean = 0, m2 = 0;
        for (double x : values) mean += x;
        mean /= static_cast<long double>(n);
        for (double x : values) m2 += (x - mean) * (x - mean);
        for (const state& s :
             {left_to_right<state>(values, collx::welford{}), halves<state>(values.data(), n, collx::welford{})}) {
            CAPTURE(n);
            CHECK(s.count == n);
            CHECK(s.mean == Approx(static_cast<double>(mean)).epsilon(1e-14));
            CHECK(s.m2 == Approx(static_cast<double>(m2)).epsilon(1e-6).margin(1e-9));
            CHECK(s.variance() == Approx(static_cast<double>(m2 / n)).epsilon(1e-6).margin(1e-9));
            if (n > 1)
                CHECK(s.sample_variance() == Approx(static_cast<double>(m2 / (n - 1))).epsilon(1e-6).margin(1e-9));
        }
    }
}

TEST_CASE("welford's operands may be swapped without changing a bit, and the empty state changes nothing") {
    using state = collx::welford_state<float>;
    const auto values = samples(20, 3.0);
    std::vector<state> states;
    for (std::size_t i = 0; i < values.size(); ++i) {
        state s{};
        for (std::size_t k = 0; k <= i % 5; ++k)
            s = collx::welford{}(s, state::of(static_cast<float>(values[i]) * (k + 1)));
        states.push_back(s);
    }
    const auto nothing = collx::identity<collx::welford, state>();
    for (const state& a : states) {
        CHECK(same_bits(collx::welford{}(a, nothing), a));
        CHECK(same_bits(collx::welford{}(nothing, a), a));
        for (const state& b : states) CHECK(same_bits(collx::welford{}(a, b), collx::welford{}(b, a)));
    }
    // A one-sided formula would be wrong for equal counts.
    unsigned wrong = 0;
    for (double x : samples(100, 0.5))
        for (double y : samples(100, 0.7)) {
            const state a = state::of(static_cast<float>(x)), b = state::of(static_cast<float>(y) / 3);
            wrong += !same_bits(collx::welford{}(a, b), collx::welford{}(b, a));
        }
    CHECK(wrong == 0);
    CHECK(same_bits(collx::welford{}(nothing, nothing), nothing));
    CHECK(collx::welford{}(state::of(INFINITY), nothing).mean == INFINITY);
    CHECK(nothing.variance() == 0.0f);
    CHECK(nothing.sample_variance() == 0.0f);
    STATIC_REQUIRE(collx::welford{}(state::of(1), state::of(3)).mean == 2.0f);
    STATIC_REQUIRE(collx::welford{}(state::of(1), state::of(3)).m2 == 2.0f);
}

TEST_CASE("online_softmax has the maximum and the sum of exponentials, whatever the tree and the size of the values") {
    using state = collx::softmax_state<double>;
    for (const double centre : {0.0, 1e4, -1e4}) { // exp(1e4) itself would overflow
        auto values = samples(500, centre);
        for (double& x : values) x = centre + (x - centre) * 20;
        const double max = *std::max_element(values.begin(), values.end());
        long double sum = 0;
        for (double x : values) sum += std::exp(static_cast<long double>(x) - max);
        for (const state& s : {left_to_right<state>(values, collx::online_softmax{}),
                               halves<state>(values.data(), values.size(), collx::online_softmax{})}) {
            CHECK(s.max == max);
            CHECK(s.sum == Approx(static_cast<double>(sum)).epsilon(1e-12));
        }
    }
}

TEST_CASE("online_softmax: swapped operands, nothing, infinities and NaN") {
    using state = collx::softmax_state<float>;
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const collx::online_softmax op;
    const state nothing = collx::identity<collx::online_softmax, state>();
    for (const float a : {0.0f, 1.5f, -80.0f, 88.0f, -0.0f})
        for (const float b : {0.0f, 2.5f, -3.0f, 100.0f, -0.0f}) {
            const state x = op(state::of(a), state::of(b)), y = op(state::of(b), state::of(a));
            CHECK(same_bits(x, y));
            CHECK(same_bits(op(x, nothing), x));
            CHECK(same_bits(op(nothing, x), x));
        }
    // Masked-out logits: -infinity adds nothing to a finite value, and inf - inf is not computed.
    CHECK(op(state::of(-infinity), state::of(1)).sum == 1.0f);
    CHECK(op(nothing, nothing).sum == 0.0f);
    CHECK(op(state::of(-infinity), state::of(-infinity)).max == -infinity);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(std::isnan(op(state::of(nan), state::of(1)).max));
    CHECK(std::isnan(op(state::of(1), state::of(nan)).sum));
}

TEMPLATE_TEST_CASE("both work for every floating-point type", "", float, double, long double) {
    CHECK(collx::welford{}(collx::welford_state<TestType>::of(1), collx::welford_state<TestType>::of(2)).mean ==
          TestType(1.5));
    const auto s =
        collx::online_softmax{}(collx::softmax_state<TestType>::of(0), collx::softmax_state<TestType>::of(1));
    CHECK(static_cast<double>(s.sum) == Approx(1 + std::exp(-1.0)));
    STATIC_REQUIRE(collx::Element<collx::welford_state<TestType>>);
    STATIC_REQUIRE(collx::is_commutative_v<collx::online_softmax, collx::softmax_state<TestType>>);
    STATIC_REQUIRE_FALSE(collx::is_exact_v<collx::welford, collx::welford_state<TestType>>);
}
