// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: needs=rapidcheck
// arg_min, arg_max and top_k compared with a serial search, for random values that are split into contributions and
// merged in random order.
#include <collx/core/op.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <catch2/catch.hpp>
#include <rapidcheck.h>

namespace {

using entry = collx::indexed<float, std::int32_t>;

// Few distinct values, so that there are ties, and some NaNs.
float value_from(int code) {
    if (code % 7 == 0) return std::numeric_limits<float>::quiet_NaN();
    if (code % 11 == 0) return -std::numeric_limits<float>::infinity();
    return static_cast<float>(code % 5);
}

std::vector<entry> entries_from(const std::vector<std::uint8_t>& codes) {
    std::vector<entry> all;
    for (std::size_t i = 0; i < codes.size(); ++i) all.push_back({value_from(codes[i]), static_cast<std::int32_t>(i)});
    return all;
}

// The order: a NaN first, then the better value, then the lower index.
bool better(const entry& a, const entry& b, bool largest) {
    if (std::isnan(a.value) != std::isnan(b.value)) return std::isnan(a.value);
    if (!std::isnan(a.value) && a.value != b.value) return largest ? a.value > b.value : a.value < b.value;
    return a.index < b.index;
}

// Reduces in a random order and grouping.
template <class T, class Op>
T reduce_somehow(std::vector<T> parts, Op op) {
    while (parts.size() > 1) {
        const auto i = *rc::gen::inRange<std::size_t>(0, parts.size());
        const T a = parts[i];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i));
        T& b = parts[*rc::gen::inRange<std::size_t>(0, parts.size())];
        b = op(a, b);
    }
    return parts.front();
}

} // namespace

TEST_CASE("arg_min and arg_max find what a serial search finds, in any order") {
    CHECK(rc::check("arg", [](const std::vector<std::uint8_t>& codes) {
        RC_PRE(!codes.empty());
        const auto all = entries_from(codes);
        const auto largest =
            *std::min_element(all.begin(), all.end(), [](auto& a, auto& b) { return better(a, b, true); });
        const auto smallest =
            *std::min_element(all.begin(), all.end(), [](auto& a, auto& b) { return better(a, b, false); });
        RC_ASSERT(reduce_somehow(all, collx::arg_max{}).index == largest.index);
        RC_ASSERT(reduce_somehow(all, collx::arg_min{}).index == smallest.index);
    }));
}

TEST_CASE("ties go to the lowest index, zeros of either sign are equal, and a NaN is found") {
    const auto nan = std::numeric_limits<double>::quiet_NaN();
    using place = collx::indexed<double>;
    const place first{2, 0}, second{2, 1}, zero{0.0, 2}, minus_zero{-0.0, 3}, bad{nan, 4}, worse{nan, 5};
    CHECK(collx::arg_max{}(second, first).index == 0);
    CHECK(collx::arg_min{}(second, first).index == 0);
    CHECK(collx::arg_min{}(minus_zero, zero).index == 2);
    CHECK(collx::arg_max{}(zero, minus_zero).index == 2);
    CHECK(collx::arg_max{}(first, bad).index == 4);
    CHECK(collx::arg_min{}(bad, first).index == 4);
    CHECK(collx::arg_min{}(worse, bad).index == 4);
}

TEST_CASE("pairs, 16-bit values and integers work alike") {
    CHECK(collx::arg_max{}(std::pair(3, 7), std::pair(5, 9)) == std::pair(5, 9));
    CHECK(collx::arg_min{}(std::pair(3, 7), std::pair(3, 2)).second == 2);
    using half_entry = collx::indexed<collx::bf16, std::uint16_t>;
    CHECK(collx::arg_min{}(half_entry{collx::bf16(2), 1}, half_entry{collx::bf16(1), 9}).index == 9);
    STATIC_REQUIRE(collx::arg_max{}(collx::indexed{1, 0}, collx::indexed{2, 1}).index == 1);
    STATIC_REQUIRE(sizeof(collx::indexed<float, std::int32_t>) == 8);
    STATIC_REQUIRE(collx::Element<collx::indexed<float>>);
    STATIC_REQUIRE_FALSE(collx::ReduceOp<collx::arg_max, float>);
}

TEMPLATE_TEST_CASE("their identities lose against everything", "", (collx::indexed<float>), (std::pair<int, int>),
                   (collx::indexed<collx::f16, std::int32_t>)) {
    const auto any = [](auto value, auto index) { return TestType{value, index}; };
    using parts = collx::detail::entry_parts<TestType>;
    using value = typename parts::value_type;
    using limits = std::numeric_limits<value>;
    for (const value v : {limits::lowest(), limits::max(), value(0)}) {
        const TestType x = any(v, typename parts::index_type(5));
        const auto least = collx::identity<collx::arg_max, TestType>(),
                   most = collx::identity<collx::arg_min, TestType>();
        CHECK(parts::index(collx::arg_max{}(x, least)) == 5);
        CHECK(parts::index(collx::arg_max{}(least, x)) == 5);
        CHECK(parts::index(collx::arg_min{}(x, most)) == 5);
        CHECK(parts::index(collx::arg_min{}(most, x)) == 5);
    }
}

TEST_CASE("top_k finds what a serial sort finds, however the values are dealt out and merged") {
    CHECK(rc::check("top_k", [](const std::vector<std::uint8_t>& codes) {
        constexpr int k = 4;
        using state = collx::top_k_state<float, k, std::int32_t>;
        auto all = entries_from(codes);
        std::vector<state> parts(3);
        for (const entry& e : all) parts[*rc::gen::inRange<std::size_t>(0, 3)].insert(e.value, e.index);
        const state result = reduce_somehow(parts, collx::top_k<k>{});
        std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return better(a, b, true); });
        const int wanted = static_cast<int>(std::min<std::size_t>(k, all.size()));
        RC_ASSERT(result.size() == wanted);
        for (int i = 0; i < wanted; ++i) RC_ASSERT(result.entries[i].index == all[static_cast<std::size_t>(i)].index);
    }));
}

TEST_CASE("top_k's lists: empty ones change nothing, -infinity is an entry like others") {
    using state = collx::top_k_state<float, 2>;
    STATIC_REQUIRE(state{}.size() == 0);
    STATIC_REQUIRE(collx::Element<state>);
    constexpr state one = [] {
        state s;
        s.insert(-std::numeric_limits<float>::infinity(), 3);
        return s;
    }();
    STATIC_REQUIRE(one.size() == 1);
    CHECK(collx::top_k<2>{}(one, collx::identity<collx::top_k<2>, state>()) == one);
    CHECK(collx::top_k<2>{}(state{}, one) == one);
    STATIC_REQUIRE(collx::is_commutative_v<collx::top_k<2>, state>);
    STATIC_REQUIRE(collx::is_exact_v<collx::top_k<2>, state>);
}
