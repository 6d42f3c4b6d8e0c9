// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=address
// Policies: plain values, in any order, combined into one.
#include <collx/plan/policy.hpp>

#include <type_traits>

#include <catch2/catch.hpp>

#include <collx/algo/chain.hpp>
#include <collx/algo/ring.hpp>
#include <collx/core/half.hpp>

namespace {

using collx::collective;
namespace algo = collx::algo;

template <class... P>
constexpr auto fold(P... p) {
    return collx::policy_set<P...>(p...);
}

struct not_an_algorithm {
    int chunks(int) const { return 1; }
};

} // namespace

TEST_CASE("without policies everything is left to the library") {
    using none = collx::policy_set<>;
    STATIC_REQUIRE(std::is_void_v<none::wire_type>);
    STATIC_REQUIRE((!none::rank_order && !none::attaches && !none::has_algorithm<collective::all_reduce>));
    CHECK(none{}.piece_bytes == 0);
}

TEST_CASE("policies may come in any order") {
    constexpr auto a =
        fold(collx::wire<collx::bf16>{}, collx::piece{4096}, algo::ring_all_reduce{}, collx::deterministic{});
    constexpr auto b = fold(collx::deterministic{}, algo::ring_all_reduce{}, collx::automatic{}, collx::piece{4096},
                            collx::wire<collx::bf16>{});
    STATIC_REQUIRE(std::is_same_v<decltype(a)::wire_type, collx::bf16>);
    STATIC_REQUIRE(std::is_same_v<decltype(b)::wire_type, collx::bf16>);
    STATIC_REQUIRE((a.rank_order && b.rank_order && a.piece_bytes == 4096 && b.piece_bytes == 4096));
    STATIC_REQUIRE(
        (decltype(a)::has_algorithm<collective::all_reduce> && decltype(b)::has_algorithm<collective::all_reduce>));
    STATIC_REQUIRE(!decltype(a)::has_algorithm<collective::broadcast>);
    STATIC_REQUIRE(collx::policy_set<collx::attach>::attaches);
}

TEST_CASE("one algorithm for each collective, with its parameters") {
    constexpr auto p = fold(algo::ring_all_reduce{}, algo::chain_broadcast{.root = 3}, algo::ring_all_gather{});
    STATIC_REQUIRE(std::is_same_v<decltype(p.algorithm<collective::all_gather>()), algo::ring_all_gather>);
    STATIC_REQUIRE(std::is_same_v<decltype(p.algorithm<collective::all_reduce>()), algo::ring_all_reduce>);
    STATIC_REQUIRE(p.algorithm<collective::broadcast>().root == 3);
}

TEST_CASE("only what names a collective and counts chunks is an algorithm") {
    STATIC_REQUIRE(collx::Algorithm<algo::ring_all_reduce>);
    STATIC_REQUIRE(!collx::Algorithm<not_an_algorithm>);
    STATIC_REQUIRE(!collx::Algorithm<collx::piece>);
    STATIC_REQUIRE(!collx::Algorithm<int>);
    STATIC_REQUIRE((collx::Policy<algo::ring_all_reduce> && collx::Policy<collx::piece>));
    STATIC_REQUIRE((!collx::Policy<int> && !collx::Policy<not_an_algorithm>));
}
