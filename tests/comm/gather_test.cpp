// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=nightly
#include "algorithm_support.hpp"

using namespace collx_test;
using collx::collective;

namespace {

constexpr auto check_call = [](collx::communicator& w, auto&& bound, std::size_t size, int root) {
    const auto n = static_cast<std::size_t>(w.size());
    const bool is_root = w.rank() == root;
    const auto mine = samples(w.rank(), size);
    std::vector<int> out(is_root ? n * size : 0, -1);
    collx::gather(bound, mine, out, {.root = root});
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_AT(i, out[i] == sample(static_cast<int>(i / size), i % size));
    EXPECT(mine == samples(w.rank(), size));
    if (is_root) { // the root's part is already in place
        std::vector<int> all(n * size, -1);
        const auto part = collx::view(all.data() + static_cast<std::size_t>(root) * size, size);
        for (std::size_t i = 0; i < size; ++i) part[i] = mine[i];
        collx::gather(bound, part, all, {.root = root});
        EXPECT(all == out);
    } else {
        auto copy = mine;
        collx::gather(bound, collx::view(copy.data(), size), out, {.root = root});
    }
};

} // namespace

TEST_CASE("gather collects the parts at the root in rank order, whatever the algorithm and the root") {
    check_algorithms<collective::gather>(check_call);
}

TEST_CASE("gather cuts parts into pieces of any size") { check_pieces<collective::gather>(check_call); }

TEST_CASE("gather_v: only the root knows the counts; empty parts, packed or at offsets") {
    for (const int n : rank_counts)
        on_ranks(n, [n](collx::communicator& w) {
            for (int round = 0; round < 5; ++round)
                for (int root = 0; root < n; ++root) {
                    at("n=%d round=%d root=%d", n, round, root);
                    std::vector<std::size_t> counts(static_cast<std::size_t>(n)), offsets(static_cast<std::size_t>(n));
                    std::size_t end = 0, total = 0;
                    for (int r = 0; r < n; ++r) {
                        const auto u = static_cast<std::size_t>(r);
                        const std::size_t c[] = {0, r == n / 2 ? 1000u : 0u, r % 2 == 0 ? 33u : 0u, u * 7,
                                                 r % 3 == 0 ? 40'000u : u};
                        counts[u] = c[round];
                        offsets[u] = end + 2;
                        end = offsets[u] + counts[u];
                        total += counts[u];
                    }
                    const bool is_root = w.rank() == root;
                    const auto mine = samples(w.rank(), counts[static_cast<std::size_t>(w.rank())]);
                    const std::vector<std::size_t> none;
                    std::vector<int> packed(is_root ? total : 0, -1), spread(is_root ? end : 0, -1);
                    collx::gather_v(w, mine, packed, is_root ? counts : none, none, {.root = root});
                    collx::gather_v(w, mine, spread, is_root ? counts : none, is_root ? offsets : none, {.root = root});
                    std::size_t p = 0, s = 0;
                    for (int r = 0; is_root && r < n; ++r) {
                        const auto u = static_cast<std::size_t>(r);
                        for (; s < offsets[u]; ++s) EXPECT_AT(s, spread[s] == -1);
                        for (std::size_t i = 0; i < counts[u]; ++i, ++s, ++p)
                            EXPECT_AT(i, packed[p] == sample(r, i) && spread[s] == sample(r, i));
                    }
                    EXPECT(!is_root || (p == total && s == end));
                }
        });
}

TEST_CASE("gather: short parts wait for room while the root is behind, and come in order") {
    on_ranks(3, [](collx::communicator& w) {
        for (int round = 0; round < 200; ++round) { // more calls than a channel has slots
            const auto mine = samples(w.rank(), static_cast<std::size_t>(round % 7));
            std::vector<int> out(w.rank() == 0 ? 3 * mine.size() : 0, -1);
            if (w.rank() == 0 && round % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
            collx::gather(w, mine, out, {.root = 0});
            for (std::size_t i = 0; i < out.size(); ++i)
                EXPECT_AT(i, out[i] == sample(static_cast<int>(i / mine.size()), i % mine.size()));
            EXPECT(mine == samples(w.rank(), mine.size()));
        }
    });
}
