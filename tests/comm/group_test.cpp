// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300
//
// Many calls as one exchange: the results are those of the calls one by one.
#include "support.hpp"

using namespace collx_test;

TEST_CASE("a group does what its calls would do one by one") {
    for (const int n : rank_counts)
        on_ranks(n, [n](collx::communicator& w) {
            for (int round = 0; round < 3; ++round) {
                at("n=%d round=%d", n, round);
                std::vector<std::vector<int>> sums;
                std::vector<float> mean(7 + 300 * static_cast<std::size_t>(round), static_cast<float>(n * w.rank()));
                std::vector<char> letters(5, static_cast<char>('a' + w.rank()));
                std::vector<short> parts(static_cast<std::size_t>(n) * 3);
                const std::vector<short> part(3, static_cast<short>(w.rank()));
                long largest = w.rank();
                double at_root = 1;
                collx::group g(w);
                for (std::size_t k = 0; k < 20; ++k)
                    sums.push_back(samples(w.rank(), k * k * static_cast<std::size_t>(round + 1)));
                for (auto& s : sums) g.all_reduce(s);
                g.all_reduce(mean, collx::average{});
                g.broadcast(letters, n - 1);
                g.all_gather(part, parts);
                g.all_reduce(collx::value(largest), collx::max{});
                g.reduce(collx::value(at_root), n / 2);
                EXPECT(g.size() == 25);
                g.launch();
                EXPECT(g.size() == 0);
                for (auto& s : sums)
                    for (std::size_t i = 0; i < s.size(); ++i) EXPECT_AT(i, s[i] == folded(i, 0, n));
                EXPECT(mean.back() == static_cast<float>(n * (n - 1) / 2));
                EXPECT(letters.back() == 'a' + n - 1 && largest == n - 1 && at_root == (w.rank() == n / 2 ? n : 1));
                for (std::size_t i = 0; i < parts.size(); ++i) EXPECT_AT(i, parts[i] == static_cast<short>(i / 3));
            }
        });
}

TEST_CASE("a group larger than one exchange is cut, and calls larger than one exchange go alone") {
    on_ranks(3, [](collx::communicator& w) {
        std::vector<std::vector<int>> x;
        for (const std::size_t size : {100'000u, 1u, 200'000u, 1'000'000u, 5u, 90'000u, 90'000u, 90'000u})
            x.push_back(samples(w.rank(), size));
        collx::group g(w);
        for (auto& v : x) g.all_reduce(v);
        g.launch();
        for (auto& v : x)
            for (std::size_t i = 0; i < v.size(); ++i) EXPECT_AT(i, v[i] == folded(i, 0, 3));
    });
}

TEST_CASE("a group may hold types that need more alignment than others") {
    struct alignas(32) wide {
        double a[4];
    };
    on_ranks(2, [](collx::communicator& w) {
        std::vector<wide> x(3, wide{{1, 2, 3, 4}});
        std::vector<char> odd(3, 1);
        double y = 2;
        collx::group g(w);
        g.all_reduce(odd);
        g.all_reduce(x, [](const wide& a, const wide& b) { return wide{{a.a[0] + b.a[0], b.a[1], a.a[2], a.a[3]}}; });
        g.all_reduce(collx::value(y));
        g.launch();
        EXPECT(x[2].a[0] == 2 && x[2].a[3] == 4 && odd[2] == 2 && y == 4);
    });
}

TEST_CASE("operators that do not commute keep their order, strided buffers their gaps, empty groups do nothing") {
    on_ranks(4, [](collx::communicator& w) {
        long digits = w.rank() + 1;
        std::vector<int> x(10, -1);
        for (std::size_t i = 0; i < 10; i += 2) x[i] = 1;
        collx::group g(w);
        g.launch();
        g.all_reduce(collx::value(digits), [](long a, long b) { return a * 10 + b; });
        g.all_reduce(collx::strided(x.data(), 5, 2));
        g.launch();
        g.launch();
        EXPECT(digits == 1234 && x[8] == 4 && x[9] == -1);
    });
}

TEST_CASE("groups and other calls follow each other") {
    on_ranks(4, [](collx::communicator& w) {
        for (int i = 0; i < 200; ++i) {
            int a = i, b = 1, c = w.rank();
            collx::group g(w);
            g.all_reduce(collx::value(a));
            g.all_reduce(collx::value(b));
            collx::broadcast(w, collx::value(c), {.root = i % 4}); // between collecting and launching
            g.launch();
            EXPECT(a == 4 * i && b == 4 && c == i % 4);
        }
    });
}
