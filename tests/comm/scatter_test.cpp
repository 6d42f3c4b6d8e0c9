// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=nightly
#include "algorithm_support.hpp"

using namespace collx_test;
using collx::collective;

namespace {

constexpr auto check_call = [](collx::communicator& w, auto&& bound, std::size_t size, int root) {
    const auto n = static_cast<std::size_t>(w.size()), begin = static_cast<std::size_t>(w.rank()) * size;
    const bool is_root = w.rank() == root;
    auto all = samples(root, is_root ? n * size : 0);
    std::vector<int> out(size, -1);
    collx::scatter(bound, all, out, {.root = root});
    for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, out[i] == sample(root, begin + i));
    EXPECT(all == samples(root, is_root ? n * size : 0));
    std::vector<int> again(size, -1); // the root's part stays in place
    collx::scatter(bound, all, is_root ? collx::view(all.data() + begin, size) : collx::view(again.data(), size),
                   {.root = root});
    EXPECT(is_root ? all == samples(root, n * size) : again == out);
};

} // namespace

TEST_CASE("scatter gives every rank its part of the root's buffer, whatever the algorithm and the root") {
    check_algorithms<collective::scatter>(check_call);
}

TEST_CASE("scatter cuts parts into pieces of any size") { check_pieces<collective::scatter>(check_call); }

TEST_CASE("scatter_v: only the root knows the counts; empty parts, packed or at offsets") {
    for (const int n : rank_counts)
        on_ranks(n, [n](collx::communicator& w) {
            for (int round = 0; round < 5; ++round)
                for (int root = 0; root < n; ++root) {
                    at("n=%d round=%d root=%d", n, round, root);
                    std::vector<int> counts(static_cast<std::size_t>(n)), offsets(static_cast<std::size_t>(n)),
                        packed_offsets(static_cast<std::size_t>(n));
                    int end = 0, total = 0;
                    for (int r = 0; r < n; ++r) {
                        const auto u = static_cast<std::size_t>(r);
                        const int c[] = {0, r == n / 2 ? 1000 : 0, r % 2 == 0 ? 33 : 0, r * 7, r % 3 == 0 ? 40'000 : r};
                        counts[u] = c[round];
                        packed_offsets[u] = total;
                        offsets[u] = end + 2;
                        end = offsets[u] + counts[u];
                        total += counts[u];
                    }
                    const bool is_root = w.rank() == root;
                    const auto me = static_cast<std::size_t>(w.rank());
                    const auto all = samples(root, is_root ? static_cast<std::size_t>(end) : 0);
                    const std::vector<int> none;
                    std::vector<int> out(static_cast<std::size_t>(counts[me]), -1), out2(out);
                    collx::scatter_v(w, all, out, is_root ? counts : none, none, {.root = root});
                    collx::scatter_v(w, all, out2, is_root ? counts : none, is_root ? offsets : none, {.root = root});
                    for (std::size_t i = 0; i < out.size(); ++i) {
                        EXPECT_AT(i, out[i] == sample(root, static_cast<std::size_t>(packed_offsets[me]) + i));
                        EXPECT_AT(i, out2[i] == sample(root, static_cast<std::size_t>(offsets[me]) + i));
                    }
                    EXPECT(out.size() == static_cast<std::size_t>(counts[me]));
                }
        });
}
