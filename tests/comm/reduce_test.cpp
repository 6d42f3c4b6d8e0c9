// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=nightly
//
// reduce: every root, algorithm, size, number of ranks.
#include "algorithm_support.hpp"

using namespace collx_test;
using collx::collective;

namespace {

constexpr auto check_call = [](collx::communicator& w, auto&& bound, std::size_t size, int root) {
    const auto mine = samples(w.rank(), size);
    const bool is_root = w.rank() == root;
    auto x = mine;
    collx::reduce(bound, x, collx::plus{}, {.root = root});
    std::vector<int> out(is_root ? size : 0, -1); // only the root needs an output
    collx::reduce(bound, mine, out, collx::plus{}, {.root = root});
    if (is_root) {
        for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, x[i] == folded(i, 0, w.size()));
        EXPECT(out == x);
    } else {
        EXPECT(x == mine); // in place, the other ranks' buffers keep their contents
    }
};

} // namespace

TEST_CASE("reduce sums at the root, whatever the algorithm and the root") {
    check_algorithms<collective::reduce>(check_call);
}

TEST_CASE("reduce cuts its buffer into pieces of any size") { check_pieces<collective::reduce>(check_call); }

TEST_CASE("reduce keeps the order of operands, or refuses") {
    const auto minus_like = [](unsigned long a, unsigned long b) {
        return a * 1000003 + b;
    }; // a left fold whose result depends on every operand's position
    for (const int n : {1, 2, 3, 5, 8})
        on_ranks(n, [&](collx::communicator& w) {
            for (int root = 0; root < w.size(); ++root) {
                unsigned long expected = 1;
                for (int r = 1; r < w.size(); ++r) expected = minus_like(expected, static_cast<unsigned long>(r) + 1);
                std::vector<unsigned long> x(300, static_cast<unsigned long>(w.rank()) + 1);
                at("default n=%d root=%d", w.size(), root);
                collx::reduce(w, x, minus_like, {.root = root});
                if (w.rank() == root) EXPECT(x.front() == expected && x.back() == expected);
                const auto join = [](std::pair<int, int> a, std::pair<int, int> b) {
                    return std::pair(a.first, b.second);
                }; // keeps the first and the last operand
                for_each_copying_algorithm<collective::reduce>([&](auto a) {
                    at("%s n=%d root=%d", a.name, w.size(), root);
                    std::vector<std::pair<int, int>> ends(70, {w.rank(), w.rank()});
                    bool may_refuse = false;
                    if constexpr (requires { a.needs_commutative_for(1); }) {
                        a.root = root;
                        may_refuse = a.needs_commutative_for(w.size());
                    }
                    const auto call = [&] { collx::reduce(w.with(a), ends, join, {.root = root}); };
                    if (may_refuse) {
                        EXPECT(says(thrown<collx::invalid_argument>(w, call), "changes the order of operands"));
                    } else {
                        call();
                        if (w.rank() == root)
                            EXPECT(ends.front() == std::pair(0, w.size() - 1) && ends.back() == ends.front());
                    }
                });
            }
        });
}

TEST_CASE("reduce averages once, at any root") {
    on_ranks(5, [](collx::communicator& w) {
        for (int root = 0; root < w.size(); ++root)
            for_each_copying_algorithm<collective::reduce>([&](auto a) {
                at("%s root=%d", a.name, root);
                std::vector<float> x(2000, 5.0f * static_cast<float>(w.rank()));
                collx::reduce(w.with(a), x, collx::average{}, {.root = root});
                EXPECT(x[1999] == (w.rank() == root ? 10.0f : 5.0f * static_cast<float>(w.rank())));
            });
    });
}
