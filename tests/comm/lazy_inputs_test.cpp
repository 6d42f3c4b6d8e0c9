// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 needs=ranges sanitize=address
//
// Inputs that are computed as they are read (views of the standard library and of range-v3, iterators), and outputs
// whose type differs from the input's.
#include "support.hpp"

#include <ranges>

#include <range/v3/view/iota.hpp>
#include <range/v3/view/transform.hpp>

using namespace collx_test;

// clang 14 cannot compile the views of libstdc++ 12.
#if !defined(__clang__) || __clang_major__ >= 16
TEST_CASE("a lazy range of the standard library is an input") {
    for (const int n : {1, 2, 5})
        on_ranks(n, [n](collx::communicator& w) {
            for (const int size : {1, 100, 30'000}) {
                at("n=%d size=%d", n, size);
                std::vector<int> out(static_cast<std::size_t>(size), -1);
                int evaluated = 0;
                const auto squares = std::views::iota(0, size) | std::views::transform([&](int i) {
                                         ++evaluated;
                                         return i % 100 * (w.rank() + 1);
                                     });
                collx::all_reduce(w, squares, out);
                for (int i = 0; i < size; ++i)
                    EXPECT_AT(i, out[static_cast<std::size_t>(i)] == i % 100 * n * (n + 1) / 2);
                EXPECT(evaluated >= size && evaluated <= 2 * size);
                std::vector<int> all(static_cast<std::size_t>(n));
                collx::all_gather(w, std::views::iota(w.rank(), w.rank() + 1), all);
                EXPECT(all.back() == n - 1);
            }
        });
}
#endif

TEST_CASE("a view of range-v3 is an input") {
    for (const int n : {1, 3})
        on_ranks(n, [n](collx::communicator& w) {
            std::vector<double> out(5000);
            const auto halves =
                ranges::views::ints(0, 5000) | ranges::views::transform([&](int i) { return 0.5 * i + w.rank(); });
            collx::all_reduce(w, halves, out, collx::max{});
            for (std::size_t i = 0; i < out.size(); ++i) EXPECT_AT(i, out[i] == 0.5 * static_cast<double>(i) + n - 1);
        });
}

TEST_CASE("an iterator and a count are an input; constants of any number need no memory") {
    on_ranks(3, [](collx::communicator& w) {
        const std::vector<int> from = {5, 6, 7, 8};
        std::vector<int> out(3);
        collx::all_reduce(w, collx::input(from.begin() + 1, 3), out);
        EXPECT(out == std::vector<int>({18, 21, 24}));
    });
}

TEST_CASE("the output may have another element type than the input") {
    for (const int n : {1, 4})
        on_ranks(n, [n](collx::communicator& w) {
            const std::vector<float> in(3000, 1.0f + static_cast<float>(w.rank()));
            std::vector<double> wide(3000);
            std::vector<collx::bf16> narrow(3000);
            collx::all_reduce(w, in, wide);
            collx::all_reduce(w, in, narrow);
            EXPECT(wide.back() == n * (n + 1) / 2 && float(narrow.back()) == static_cast<float>(n * (n + 1) / 2));
            std::vector<int> rounded(3000 * static_cast<std::size_t>(n));
            const auto whole = [](float v) { return static_cast<int>(v); }; // fractions are converted only explicitly
            collx::all_gather(w, ranges::views::transform(in, whole), rounded);
            EXPECT(rounded.back() == n);
        });
}
