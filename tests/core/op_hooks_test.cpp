// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Hooks and wrappers: which hooks an operator has, in which order they apply, what a wrapper passes on.
#include <collx/core/op.hpp>
#include <collx/core/op_hooks.hpp>

#include <catch2/catch.hpp>

using namespace collx;

namespace {

struct halves { // with its own hooks: pre without context, post with context
    constexpr int operator()(int a, int b) const { return a + b; }
    constexpr int pre(int x) const { return x / 2; }
    constexpr int post(int x, hook_context c) const { return x + c.nranks; }
};
struct places { // a pre hook that takes the context
    constexpr long operator()(long a, long b) const { return a + b; }
    constexpr long pre(long x, hook_context c) const { return x * static_cast<long>(c.index); }
};
struct join { // does not commute, has an identity
    constexpr int operator()(int a, int b) const { return a * 10 + b; }
    template <class T>
    static constexpr T identity() {
        return 0;
    }
};
constexpr hook_context here{4, 3};

} // namespace

TEST_CASE("an operator has the hooks that it has") {
    STATIC_REQUIRE(has_pre_v<halves, int>);
    STATIC_REQUIRE(has_post_v<halves, int>);
    STATIC_REQUIRE(has_pre_v<places, long>);
    STATIC_REQUIRE(!has_post_v<places, long>);
    STATIC_REQUIRE(!has_pre_v<plus, int>);
    STATIC_REQUIRE(!has_post_v<plus, int>);
    STATIC_REQUIRE(apply_pre(halves{}, 9, here) == 4);
    STATIC_REQUIRE(apply_post(halves{}, 9, here) == 13);
    STATIC_REQUIRE(apply_pre(places{}, 5L, here) == 15);
    STATIC_REQUIRE(apply_pre(plus{}, 9, here) == 9);
    STATIC_REQUIRE(apply_post(plus{}, 9, here) == 9);
}

TEST_CASE("hooks of a wrapper: pre before the operator's own, post after it") {
    constexpr auto doubled = with_pre(halves{}, [](int x) { return x + 7; });
    STATIC_REQUIRE(apply_pre(doubled, 9, here) == 8); // (9 + 7) / 2
    STATIC_REQUIRE(apply_post(doubled, 9, here) == 13);
    STATIC_REQUIRE(doubled(3, 4) == 7);
    constexpr auto tripled = with_post(halves{}, [](int x) { return x * 3; });
    STATIC_REQUIRE(apply_post(tripled, 9, here) == 39); // (9 + 4) * 3
    STATIC_REQUIRE(apply_pre(tripled, 9, here) == 4);
    // Nested hooks, and hooks that take the context.
    constexpr auto twice = with_pre(with_pre(halves{}, [](int x) { return x * 10; }), [](int x) { return x + 1; });
    STATIC_REQUIRE(apply_pre(twice, 1, here) == 10); // ((1 + 1) * 10) / 2
    constexpr auto indexed =
        with_pre(plus{}, [](long x, hook_context c) { return x + 100 * static_cast<long>(c.index); });
    STATIC_REQUIRE(has_pre_v<decltype(indexed), long>);
    STATIC_REQUIRE(apply_pre(indexed, 5L, here) == 305);
    constexpr auto over = with_pre(places{}, [](long x) { return x + 1; });
    STATIC_REQUIRE(apply_pre(over, 5L, here) == 18); // the context reaches the inner hook
    constexpr auto scaled = with_post(plus{}, [](int x, hook_context c) { return x / c.nranks; });
    STATIC_REQUIRE(apply_post(scaled, 12, here) == 3);
}

TEST_CASE("a hook's result has the type of the element") {
    constexpr auto cut = with_post(plus{}, [](int x) { return x + 0.75; });
    STATIC_REQUIRE(std::is_same_v<decltype(apply_post(cut, 1, here)), int>);
    STATIC_REQUIRE(apply_post(cut, 1, here) == 1);
}

TEST_CASE("wrappers say of themselves what the operator says") {
    STATIC_REQUIRE(is_commutative_v<decltype(with_pre(plus{}, [](int x) { return x; })), int>);
    STATIC_REQUIRE(!is_commutative_v<join, int>);
    STATIC_REQUIRE(!is_commutative_v<decltype(with_post(join{}, [](int x) { return x; })), int>);
    STATIC_REQUIRE(is_commutative_v<decltype(commutative(join{})), int>);
    STATIC_REQUIRE(commutative(join{})(1, 2) == 12);
    STATIC_REQUIRE(is_associative_v<decltype(commutative(plus{})), int> == is_associative_v<plus, int>);
    STATIC_REQUIRE(is_exact_v<decltype(commutative(plus{})), int> == is_exact_v<plus, int>);
    STATIC_REQUIRE(is_vectorisable_v<decltype(commutative(plus{})), float> == is_vectorisable_v<plus, float>);
    STATIC_REQUIRE(has_identity_v<decltype(commutative(join{})), int>);
    STATIC_REQUIRE(identity<decltype(commutative(max{})), int>() == identity<max, int>());
    struct odd {
        int operator()(int a, int b) const { return a ^ b ^ 1; }
    };
    STATIC_REQUIRE(!has_identity_v<decltype(commutative(odd{})), int>);
    CHECK(apply_pre(commutative(halves{}), 9, here) == 4); // keeps the hooks, too
    CHECK(apply_post(commutative(halves{}), 9, here) == 13);
}
