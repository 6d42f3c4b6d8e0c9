// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 needs=ranges sanitize=address
//
// Inputs that are computed as they are read (views of the standard library and of range-v3, iterators), and outputs
// whose type differs from the input's.
#include "support.hpp"

#include <deque>
#include <optional>
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

TEST_CASE("a group sends the parts of a lazy view to neighbours after the view is gone") {
    on_ranks(3, [](collx::communicator& w) {
        const int me = w.rank(), next = (me + 1) % 3, last = (me + 2) % 3;
        const auto scaled = [](int by) {
            return std::views::iota(0, 4) | std::views::transform([by](int i) { return i * by; });
        };
        std::vector<int> from_both(4);
        collx::group g(w);
        std::optional view(scaled(me + 1));
        g.neighbor_all_to_all({.sources = {last, next}, .destinations = {last, next}}, *view, from_both);
        view.emplace(scaled(100));
        g.launch();
        EXPECT(from_both == std::vector<int>({2 * (last + 1), 3 * (last + 1), 0, next + 1}));
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

TEST_CASE("a group keeps the lazy views that it was given") {
    struct times {
        int by;
        int operator()(int v) const { return v * by; }
    };
    const auto check = [](collx::communicator& w) {
        const int n = w.size(), me = w.rank(), next = (me + 1) % n, last = (me + n - 1) % n;
        const auto scaled = [](const std::vector<int>& x, int by) { return ranges::views::transform(x, times{by}); };
        using lazy = decltype(scaled(std::vector<int>(), 1));
        const std::size_t m = 100, large = 90'000, u = static_cast<std::size_t>(n);
        const std::vector<int> one(m, me + 1), whole(m * u, me + 1), large_one(large, me + 1), other(large, 9);
        std::vector<int> sum(m), all(m * u), here(m), large_all(large * u);
        std::optional<lazy> view, whole_view, large_view;
        const auto begin = [&] {
            view.emplace(scaled(one, 2));
            whole_view.emplace(scaled(whole, 3));
            large_view.emplace(scaled(large_one, 4));
        };
        const auto end = [&] { // other views come into the places of the first ones
            for (auto* v : {&view, &whole_view, &large_view}) v->emplace(scaled(other, 1000));
        };
        const auto is_done = [&] {
            const bool done = sum.back() == 3 * n * (n + 1) / 2 && all.back() == 2 * n &&
                              here.back() == 2 * (last + 1) && large_all.back() == 4 * n;
            for (auto* x : {&sum, &all, &here, &large_all}) std::fill(x->begin(), x->end(), -1);
            return done;
        };
        const auto add = [&](auto& g) {
            begin();
            g.reduce_scatter(*whole_view, sum).all_gather(std::as_const(*view), all).all_gather(*large_view, large_all);
            g.send(*view, next).recv(here, last);
            end();
        };
        collx::group once(w);
        add(once);
        once.launch();
        EXPECT(is_done());
        collx::persistent::group many(w);
        add(many);
        auto again = many.launch();
        for (int k = 0; k < 2; ++k) {
            again();
            EXPECT_AT(k, is_done());
        }
        once.all_gather(scaled(one, 5), all).launch(); // a temporary
        EXPECT(all.back() == 5 * n);
    };
    on_ranks(3, check);
    on_hosts(3, {1}, check);
}

TEST_CASE("computed elements of a container are read when a group is launched") {
    on_ranks(2, [](collx::communicator& w) {
        std::deque<int> mine(10, 1); // not contiguous, so seen as computed
        std::vector<int> all(20);
        collx::group g(w);
        g.all_gather(mine, all);
        mine.assign(10, 4 + w.rank());
        g.launch();
        EXPECT(all.front() == 4 && all.back() == 5);
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
