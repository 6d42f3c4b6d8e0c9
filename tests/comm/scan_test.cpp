// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=nightly
//
// scan and exclusive_scan.
#include "support.hpp"

using namespace collx_test;
using collx::collective;

namespace {

template <class Comm>
void check_scan(collx::communicator& w, Comm&& bound, std::size_t size) {
    const auto mine = samples(w.rank(), size);
    auto x = mine;
    collx::scan(bound, x);
    for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, x[i] == folded(i, 0, w.rank() + 1));
    std::vector<int> out(size, -1);
    collx::scan(bound, mine, out);
    EXPECT(out == x && mine == samples(w.rank(), size));
}

template <class Comm>
void check_exclusive_scan(collx::communicator& w, Comm&& bound, std::size_t size) {
    const auto mine = samples(w.rank(), size);
    auto x = mine;
    collx::exclusive_scan(bound, x);
    std::vector<int> out(size, -1);
    collx::exclusive_scan(bound, mine, out);
    if (w.rank() == 0) { // no rank comes before: the output keeps its contents
        EXPECT(x == mine && out == std::vector<int>(size, -1));
        return;
    }
    for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, x[i] == folded(i, 0, w.rank()));
    EXPECT(out == x && mine == samples(w.rank(), size));
}

} // namespace

TEST_CASE("scans sum over the ranks up to one's own, whatever the algorithm") {
    for (const int n : rank_counts)
        on_ranks(n, [](collx::communicator& w) {
            for (const std::size_t size : sizes) {
                at("default n=%d size=%zu", w.size(), size);
                check_scan(w, w, size);
                check_exclusive_scan(w, w, size);
                for_each_copying_algorithm<collective::scan>([&](auto a) {
                    at("%s n=%d size=%zu", a.name, w.size(), size);
                    check_scan(w, w.with(a), size);
                });
                for_each_copying_algorithm<collective::exclusive_scan>([&](auto a) {
                    at("exclusive %s n=%d size=%zu", a.name, w.size(), size);
                    check_exclusive_scan(w, w.with(a), size);
                });
            }
        });
}

TEST_CASE("scans cut their buffers into pieces of any size") {
    for (const int n : {1, 2, 3, 5, 8})
        on_ranks(n, [](collx::communicator& w) {
            for (const std::size_t bytes : {1u, 60u, 256u, 1u << 30})
                for (const std::size_t size : {0u, 1u, 33u, 517u}) {
                    for_each_copying_algorithm<collective::scan>([&](auto a) {
                        at("%s n=%d size=%zu piece=%zu", a.name, w.size(), size, bytes);
                        check_scan(w, w.with(a, collx::piece{bytes}), size);
                    });
                    for_each_copying_algorithm<collective::exclusive_scan>([&](auto a) {
                        at("exclusive %s n=%d size=%zu piece=%zu", a.name, w.size(), size, bytes);
                        check_exclusive_scan(w, w.with(a, collx::piece{bytes}), size);
                    });
                }
        });
}

TEST_CASE("scans keep the order of operands") {
    const auto join = [](std::pair<int, int> a, std::pair<int, int> b) {
        return a.second + 1 == b.first ? std::pair(a.first, b.second) : std::pair(-9, -9);
    };
    for (const int n : rank_counts)
        on_ranks(n, [&](collx::communicator& w) {
            const std::vector<std::pair<int, int>> mine(200, {w.rank(), w.rank()});
            const auto run = [&](auto&& bound, auto verb, int last) {
                auto x = mine;
                verb(bound, x, join);
                EXPECT(x.front() == (last < 0 ? mine[0] : std::pair(0, last)) && x.back() == x.front());
            };
            run(w, collx::scan, w.rank());
            run(w, collx::exclusive_scan, w.rank() - 1);
            for_each_copying_algorithm<collective::scan>([&](auto a) { run(w.with(a), collx::scan, w.rank()); });
            for_each_copying_algorithm<collective::exclusive_scan>(
                [&](auto a) { run(w.with(a), collx::exclusive_scan, w.rank() - 1); });
        });
}

TEST_CASE("exclusive_scan tells where each rank's part begins") {
    on_ranks(6, [](collx::communicator& w) {
        const long count = w.rank() * 10 + 1;
        long offset = 0;
        collx::exclusive_scan(w, collx::value(count), collx::value(offset));
        long expected = 0;
        for (int r = 0; r < w.rank(); ++r) expected += r * 10 + 1;
        EXPECT(offset == expected);
    });
}
