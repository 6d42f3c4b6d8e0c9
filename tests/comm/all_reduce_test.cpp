// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 optimised sanitize=thread,nightly
//
// all_reduce with every algorithm, size and number of ranks. types_test and views_test test what all verbs share.
#include "algorithm_support.hpp"

using namespace collx_test;
using collx::collective;

namespace {

constexpr auto check_call = [](collx::communicator& w, auto&& bound, std::size_t size) {
    const int n = w.size();
    const auto mine = samples(w.rank(), size);
    auto x = mine;
    collx::all_reduce(bound, x);
    for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, x[i] == folded(i, 0, n));
    std::vector<int> out(size, -1);
    collx::all_reduce(bound, mine, out);
    EXPECT(out == x && mine == samples(w.rank(), size));
};

} // namespace

TEST_CASE("all_reduce sums on all ranks, whatever the algorithm, in place and out of place") {
    check_algorithms<collective::all_reduce>(check_call);
}

TEST_CASE("all_reduce cuts chunks into pieces of any size") { check_pieces<collective::all_reduce>(check_call); }

TEST_CASE("all_reduce keeps the order of operands for operators that do not commute") {
    // Composition of maps x -> a x + b modulo a prime: associative, but the order matters.
    struct affine {
        unsigned a, b;
        bool operator==(const affine&) const = default;
    };
    constexpr unsigned p = 10007;
    const auto then = [](affine f, affine g) { return affine{f.a * g.a % p, (f.b * g.a + g.b) % p}; };
    const auto mine = [](int r, std::size_t i) {
        return affine{2 + 3u * static_cast<unsigned>(r), static_cast<unsigned>(r * 17 + static_cast<int>(i))};
    };
    for (const int n : rank_counts)
        on_ranks(n, [&](collx::communicator& w) {
            for (const std::size_t size : {1u, 5u, 700u, 9001u}) {
                std::vector<affine> expected(size);
                for (std::size_t i = 0; i < size; ++i) {
                    expected[i] = mine(0, i);
                    for (int r = 1; r < w.size(); ++r) expected[i] = then(expected[i], mine(r, i));
                }
                const auto run = [&](auto&& bound) {
                    std::vector<affine> x(size);
                    for (std::size_t i = 0; i < size; ++i) x[i] = mine(w.rank(), i);
                    collx::all_reduce(bound, x, then);
                    EXPECT(x == expected);
                };
                at("default n=%d size=%zu", w.size(), size);
                run(w);
                for_each_copying_algorithm<collective::all_reduce>([&](auto a) {
                    at("%s n=%d size=%zu", a.name, w.size(), size);
                    if constexpr (!a.needs_commutative) run(w.with(a));
                });
            }
        });
}

TEST_CASE("average divides once, whatever the algorithm") {
    for (const int n : rank_counts)
        on_ranks(n, [n](collx::communicator& w) {
            for (const std::size_t size : {1u, 9u, 1000u, 30011u}) {
                const auto run = [&](auto&& bound) {
                    std::vector<double> x(size);
                    for (std::size_t i = 0; i < size; ++i) x[i] = n * (w.rank() + static_cast<double>(i));
                    collx::all_reduce(bound, x, collx::average{});
                    for (std::size_t i = 0; i < size; ++i)
                        EXPECT_AT(i, x[i] == n * (n - 1) / 2 + n * static_cast<double>(i));
                };
                run(w);
                for_each_copying_algorithm<collective::all_reduce>([&](auto a) {
                    at("%s n=%d size=%zu", a.name, w.size(), size);
                    run(w.with(a));
                });
            }
        });
}
