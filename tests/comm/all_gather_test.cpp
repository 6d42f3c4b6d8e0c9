// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 optimised sanitize=nightly
#include "algorithm_support.hpp"

using namespace collx_test;
using collx::collective;

namespace {

constexpr auto check_call = [](collx::communicator& w, auto&& bound, std::size_t size) {
    const auto mine = samples(w.rank(), size);
    const auto n = static_cast<std::size_t>(w.size());
    std::vector<int> out(n * size, -1);
    collx::all_gather(bound, mine, out);
    for (std::size_t i = 0; i < n * size; ++i) EXPECT_AT(i, out[i] == sample(static_cast<int>(i / size), i % size));
    std::vector<int> in_place(n * size, -1);
    for (std::size_t i = 0; i < size; ++i) in_place[static_cast<std::size_t>(w.rank()) * size + i] = mine[i];
    collx::all_gather(bound, in_place);
    EXPECT(in_place == out);
};

} // namespace

TEST_CASE("all_gather collects all parts in rank order, whatever the algorithm") {
    check_algorithms<collective::all_gather>(check_call);
}

TEST_CASE("all_gather cuts parts into pieces of any size") { check_pieces<collective::all_gather>(check_call); }

TEST_CASE("all_gather in place by two views of one buffer") {
    on_ranks(3, [](collx::communicator& w) {
        std::vector<int> all(300, -1);
        const auto part = collx::view(all.data() + 100 * w.rank(), 100);
        for (int i = 0; i < 100; ++i) all[static_cast<std::size_t>(100 * w.rank() + i)] = w.rank();
        collx::all_gather(w, part, all);
        for (std::size_t i = 0; i < 300; ++i) EXPECT_AT(i, all[i] == static_cast<int>(i / 100));
    });
}

TEST_CASE("all_gather_v: parts of any size, empty ones too, packed or at offsets, whatever the algorithm") {
    for (const int n : rank_counts)
        on_ranks(n, [n](collx::communicator& w) {
            // Rounds: all zero, one rank only, every second rank empty, growing, large and small mixed.
            for (int round = 0; round < 5; ++round) {
                std::vector<std::size_t> counts(static_cast<std::size_t>(n)), offsets(static_cast<std::size_t>(n));
                std::size_t end = 0;
                for (int r = 0; r < n; ++r) {
                    const auto u = static_cast<std::size_t>(r);
                    const std::size_t c[] = {0, r == n / 2 ? 1000u : 0u, r % 2 == 0 ? 33u : 0u, u * 7,
                                             r % 3 == 0 ? 40'000u : u};
                    counts[u] = c[round];
                    offsets[u] = end + u + 1; // gaps
                    end = offsets[u] + counts[u];
                }
                const auto mine = samples(w.rank(), counts[static_cast<std::size_t>(w.rank())]);
                const auto run = [&](auto&& bound) {
                    std::size_t total = 0;
                    for (const std::size_t c : counts) total += c;
                    std::vector<int> packed(total, -1), spread(end + 1, -1);
                    collx::all_gather_v(bound, mine, packed, counts);
                    collx::all_gather_v(bound, mine, spread, counts, offsets);
                    std::size_t p = 0, s = 0;
                    for (int r = 0; r < n; ++r) {
                        const auto u = static_cast<std::size_t>(r);
                        for (; s < offsets[u]; ++s) EXPECT_AT(s, spread[s] == -1); // gaps stay untouched
                        for (std::size_t i = 0; i < counts[u]; ++i, ++s, ++p)
                            EXPECT_AT(i, packed[p] == sample(r, i) && spread[s] == sample(r, i));
                    }
                    EXPECT(spread.back() == -1);
                };
                at("default n=%d round=%d", n, round);
                run(w);
                for_each_copying_algorithm<collective::all_gather>([&](auto a) {
                    at("%s n=%d round=%d", a.name, n, round);
                    run(w.with(a));
                });
            }
        });
}

TEST_CASE("counts and offsets in braces") {
    on_ranks(3, [](collx::communicator& w) {
        const auto u = static_cast<std::size_t>(w.rank());
        const std::vector<int> mine(u + 1, w.rank());
        std::vector<int> all(6, -1), spread(8, -1), back(3, -1), incoming(3, -1);
        collx::all_gather_v(w, mine, all, {1, 2, 3});
        EXPECT(all == std::vector<int>{0, 1, 1, 2, 2, 2});
        collx::all_gather_v(w, mine, spread, {1, 2, 3}, {7, 0, 3});
        EXPECT(spread == std::vector<int>{1, 1, -1, 2, 2, 2, -1, 0});
        collx::reduce_scatter_v(w, std::vector{1, 2, 3}, collx::view(back.data(), w.rank() == 1 ? 3 : 0), {0, 3, 0});
        EXPECT(w.rank() != 1 || back == std::vector<int>{3, 6, 9});
        collx::all_to_all_v(w, std::vector{0, 1, 2}, {1, 1, 1}, incoming, {1, 1, 1});
        EXPECT(incoming == std::vector<int>{w.rank(), w.rank(), w.rank()});
        collx::all_to_all_v(w, std::vector{0, 1, 2}, {1, 1, 1}, {2, 1, 0}, incoming, {1, 1, 1}, {0, 1, 2});
        EXPECT(incoming == std::vector<int>{2 - w.rank(), 2 - w.rank(), 2 - w.rank()});
    });
}
