// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=nightly
#include "algorithm_support.hpp"

using namespace collx_test;
using collx::collective;

namespace {

constexpr auto check_call = [](collx::communicator& w, auto&& bound, std::size_t size) {
    const auto n = static_cast<std::size_t>(w.size()), begin = static_cast<std::size_t>(w.rank()) * size;
    const auto mine = samples(w.rank(), n * size);
    std::vector<int> out(size, -1);
    collx::reduce_scatter(bound, mine, out);
    for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, out[i] == folded(begin + i, 0, w.size()));
    EXPECT(mine == samples(w.rank(), n * size));
    auto x = mine;
    collx::reduce_scatter(bound, x);
    for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, x[begin + i] == out[i]);
};

} // namespace

TEST_CASE("reduce_scatter gives every rank its part of the sum, whatever the algorithm") {
    check_algorithms<collective::reduce_scatter>(check_call);
}

TEST_CASE("reduce_scatter cuts parts into pieces of any size") { check_pieces<collective::reduce_scatter>(check_call); }

TEST_CASE("reduce_scatter_v: parts of any size, empty ones too") {
    for (const int n : rank_counts)
        on_ranks(n, [n](collx::communicator& w) {
            for (int round = 0; round < 5; ++round) {
                std::vector<int> counts(static_cast<std::size_t>(n));
                std::size_t total = 0, begin = 0;
                for (int r = 0; r < n; ++r) {
                    const int c[] = {0, r == n / 2 ? 1000 : 0, r % 2 == 0 ? 33 : 0, r * 7, r % 3 == 0 ? 40'000 : r};
                    counts[static_cast<std::size_t>(r)] = c[round];
                    if (r == w.rank()) begin = total;
                    total += static_cast<std::size_t>(c[round]);
                }
                const auto mine = samples(w.rank(), total);
                const auto size = static_cast<std::size_t>(counts[static_cast<std::size_t>(w.rank())]);
                const auto run = [&](auto&& bound) {
                    std::vector<int> out(size, -1);
                    collx::reduce_scatter_v(bound, mine, out, counts);
                    for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, out[i] == folded(begin + i, 0, n));
                    EXPECT(mine == samples(w.rank(), total));
                    auto x = mine;
                    collx::reduce_scatter_v(bound, x, counts);
                    for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, x[begin + i] == out[i]);
                };
                at("default n=%d round=%d", n, round);
                run(w);
                for_each_copying_algorithm<collective::reduce_scatter>([&](auto a) {
                    at("%s n=%d round=%d", a.name, n, round);
                    run(w.with(a));
                });
            }
        });
}

TEST_CASE("reduce_scatter averages once") {
    on_ranks(4, [](collx::communicator& w) {
        for_each_copying_algorithm<collective::reduce_scatter>([&](auto a) {
            at("%s", a.name);
            std::vector<float> x(4000, 4.0f * static_cast<float>(w.rank())), out(1000);
            collx::reduce_scatter(w.with(a), x, out, collx::average{});
            EXPECT(out.front() == 6.0f && out.back() == 6.0f);
        });
    });
}
