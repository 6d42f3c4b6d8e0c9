// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=nightly
//
// Floating-point sums. Every algorithm gives the same bits on all ranks. With deterministic{} these are the bits of
// the serial left fold, whatever the size, the number of ranks, the pieces and the run.
#include "support.hpp"

#include <cstring>

using namespace collx_test;
using collx::collective;

namespace {

// Numbers whose sums are rounded at every step, and differently in every order.
template <class T>
T rough(int rank, std::size_t i) {
    std::uint64_t h = (static_cast<std::uint64_t>(rank) << 40 | i) * 0x9e37'79b9'7f4a'7c15;
    h = (h ^ h >> 29) * 0xbf58'476d'1ce4'e5b9;
    const double mantissa = 1.0 + static_cast<double>(h >> 40) / static_cast<double>(1 << 24);
    const double scale[] = {1e-3, 1.0, -1.0, 37.0, -1e3};
    return static_cast<T>(static_cast<float>(mantissa * scale[h % 5]));
}
template <class T>
std::vector<T> roughs(int rank, std::size_t n) {
    std::vector<T> v(n);
    for (std::size_t i = 0; i < n; ++i) v[i] = rough<T>(rank, i);
    return v;
}
template <class T>
std::vector<T> left_fold(int ranks, std::size_t n) {
    std::vector<T> v = roughs<T>(0, n);
    for (std::size_t i = 0; i < n; ++i) {
        auto a = static_cast<collx::accumulator_t<T>>(v[i]);
        for (int r = 1; r < ranks; ++r) a += static_cast<collx::accumulator_t<T>>(rough<T>(r, i));
        v[i] = static_cast<T>(a);
    }
    return v;
}
template <class T>
bool has_same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Every rank's bits are compared with rank 0's.
template <class T>
bool is_same_everywhere(collx::communicator& w, const std::vector<T>& x) {
    std::vector<T> first = x;
    collx::broadcast(w, first);
    return has_same_bits(first, x);
}

// Elements that travel, or lie, in fewer digits than sums are made in: every operand and the result are rounded to a
// Wire, the partial sums are not.
template <class T, class Wire>
std::vector<T> left_fold_over(int ranks, std::size_t n) {
    std::vector<T> v(n);
    for (std::size_t i = 0; i < n; ++i) {
        auto a = static_cast<float>(static_cast<Wire>(rough<T>(0, i)));
        for (int r = 1; r < ranks; ++r) a += static_cast<float>(static_cast<Wire>(rough<T>(r, i)));
        v[i] = static_cast<T>(static_cast<Wire>(a));
    }
    return v;
}
template <class T, class Wire, class Bound>
void check_narrow(collx::communicator& w, Bound&& bound, int n) {
    const auto ranks = static_cast<std::size_t>(n);
    for (const std::size_t part : {1u, 101u, 9000u}) {
        at("n=%d part=%zu bytes=%zu over %zu", n, part, sizeof(T), sizeof(Wire));
        const auto expected = left_fold_over<T, Wire>(n, part * ranks);
        auto x = roughs<T>(w.rank(), part * ranks), y = x;
        collx::all_reduce(bound, x);
        EXPECT(has_same_bits(x, expected));
        for (const int root : {0, 1, n - 1}) {
            collx::reduce(bound, roughs<T>(w.rank(), part * ranks), y, collx::plus{}, {.root = root});
            EXPECT(w.rank() != root || has_same_bits(y, expected));
        }
        std::vector<T> mine(part);
        collx::reduce_scatter(bound, roughs<T>(w.rank(), part * ranks), mine);
        EXPECT(std::memcmp(mine.data(), expected.data() + part * static_cast<std::size_t>(w.rank()),
                           part * sizeof(T)) == 0);
    }
}

template <class T>
void check_all(collx::communicator& w, std::size_t size) {
    for_each_copying_algorithm<collective::all_reduce>([&](auto a) {
        at("%s n=%d size=%zu bytes=%zu", a.name, w.size(), size, sizeof(T));
        auto x = roughs<T>(w.rank(), size), y = x;
        collx::all_reduce(w.with(a), x);
        EXPECT(is_same_everywhere(w, x));
        collx::all_reduce(w.with(a), y);
        EXPECT(has_same_bits(x, y)); // the second run, too
    });
}

} // namespace

TEST_CASE("all ranks receive the same bits, whatever the algorithm") {
    for (const int n : rank_counts)
        on_ranks(n, [](collx::communicator& w) {
            for (const std::size_t size : {1u, 17u, 1000u, 30'011u}) check_all<float>(w, size);
        });
}

TEST_CASE("all ranks receive the same bits of narrow types too") {
    for (const int n : {2, 3, 4, 8})
        on_ranks(n, [](collx::communicator& w) {
            for (const std::size_t size : {1u, 100u, 5000u}) check_all<collx::bf16>(w, size);
        });
}

TEST_CASE("deterministic is the serial left fold, bit for bit, for any size and number of ranks") {
    for (const int n : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17})
        on_ranks(n, [n](collx::communicator& w) {
            auto bound = w.with(collx::deterministic{});
            for (const std::size_t size : {1u, 7u, 100u, 1000u, 5000u, 40'007u}) {
                at("n=%d size=%zu", n, size);
                const auto expected = left_fold<float>(n, size);
                auto x = roughs<float>(w.rank(), size);
                collx::all_reduce(bound, x);
                EXPECT(has_same_bits(x, expected));
                auto y = roughs<float>(w.rank(), size);
                collx::all_reduce(w.with(collx::deterministic{}, collx::piece{size % 3 == 0 ? 256u : 5000u}), y);
                EXPECT(has_same_bits(y, expected));
                auto z = roughs<float>(w.rank(), size);
                collx::reduce(bound, z, collx::plus{}, {.root = n / 2});
                EXPECT(w.rank() != n / 2 || has_same_bits(z, expected));
                auto shared = collx::make_shared_vector<float>(w, size);
                for (std::size_t i = 0; i < size; ++i) shared[i] = rough<float>(w.rank(), i);
                collx::all_reduce(bound, shared);
                EXPECT(std::memcmp(shared.data(), expected.data(), size * sizeof(float)) == 0);
            }
        });
}

TEST_CASE("deterministic in scans, parts and groups") {
    on_ranks(5, [](collx::communicator& w) {
        auto bound = w.with(collx::deterministic{});
        for (const std::size_t part : {1u, 333u, 9000u}) {
            const auto expected = left_fold<double>(5, part * 5);
            std::vector<double> mine(part);
            collx::reduce_scatter(bound, roughs<double>(w.rank(), part * 5), mine);
            EXPECT(std::memcmp(mine.data(), expected.data() + part * static_cast<std::size_t>(w.rank()),
                               part * sizeof(double)) == 0);
            auto prefix = roughs<double>(w.rank(), part);
            collx::scan(bound, prefix);
            EXPECT(has_same_bits(prefix, left_fold<double>(w.rank() + 1, part)));
            auto x = roughs<double>(w.rank(), part), y = roughs<double>(w.rank(), part);
            collx::group g(w);
            g.all_reduce(x);
            g.launch();
            collx::all_reduce(bound, y);
            EXPECT(has_same_bits(x, y));
        }
    });
}

TEST_CASE("deterministic is the serial left fold across hosts too") {
    for (const int ranks_per_host : {1, 2})
        for (const int n : {2, 3, 5})
            on_hosts(n, {.ranks_per_host = ranks_per_host}, [n](collx::communicator& w) {
                auto bound = w.with(collx::deterministic{});
                const auto me = static_cast<std::size_t>(w.rank()), ranks = static_cast<std::size_t>(n);
                for (const std::size_t part : {1u, 100u, 9000u}) {
                    at("n=%d part=%zu", n, part);
                    const std::size_t size = part * ranks - (part > 1);
                    const auto expected = left_fold<float>(n, size);
                    auto x = roughs<float>(w.rank(), size), y = x, z = x;
                    collx::all_reduce(bound, x);
                    EXPECT(has_same_bits(x, expected));
                    for (const int root : {0, n - 1, n / 2}) {
                        collx::reduce(bound, roughs<float>(w.rank(), size), y, collx::plus{}, {.root = root});
                        EXPECT(w.rank() != root || has_same_bits(y, expected));
                    }
                    collx::scan(bound, z);
                    EXPECT(has_same_bits(z, left_fold<float>(w.rank() + 1, size)));
                    collx::exclusive_scan(bound, roughs<float>(w.rank(), size), z);
                    EXPECT(w.rank() == 0 || has_same_bits(z, left_fold<float>(w.rank(), size)));
                    const auto whole = left_fold<float>(n, part * ranks);
                    std::vector<float> mine(part);
                    collx::reduce_scatter(bound, roughs<float>(w.rank(), part * ranks), mine);
                    EXPECT(std::memcmp(mine.data(), whole.data() + part * me, part * sizeof(float)) == 0);
                }
            });
}

TEST_CASE("deterministic sums of narrow types are rounded once, inside a host and across hosts") {
    const auto check = [](collx::communicator& w) {
        const auto bound = w.with(collx::deterministic{});
        check_narrow<collx::bf16, collx::bf16>(w, bound, w.size());
        check_narrow<collx::f16, collx::f16>(w, bound, w.size());
        check_narrow<float, collx::bf16>(w, w.with(collx::deterministic{}, collx::wire<collx::bf16>{}), w.size());
    };
    for (const int n : {2, 5}) {
        on_ranks(n, check);
        for (const int ranks_per_host : {1, 2}) on_hosts(n, {.ranks_per_host = ranks_per_host}, check);
    }
}

// Where ranks share cores, long reductions of three and four ranks are chains by default, which send partial sums on.
TEST_CASE("deterministic sums of narrow types are rounded once, however long they are") {
    for (const int n : {3, 4})
        on_ranks(n, [n](collx::communicator& w) {
            constexpr std::size_t size = 1'200'000;
            std::vector<collx::bf16> y(size);
            const int root = n - 1;
            collx::reduce(w.with(collx::deterministic{}), roughs<collx::bf16>(w.rank(), size), y, collx::plus{},
                          {.root = root});
            EXPECT((w.rank() != root || has_same_bits(y, left_fold_over<collx::bf16, collx::bf16>(n, size))));
        });
}

TEST_CASE("deterministic refuses an algorithm that keeps the order for some roots only") {
    on_ranks(4, [](collx::communicator& w) {
        std::vector<float> x(100, 1.0f), y(100);
        auto bound = w.with(collx::algo::double_tree_reduce{}, collx::deterministic{});
        collx::reduce(bound, x, y, collx::plus{}, {.root = 0});
        try {
            collx::reduce(bound, x, y, collx::plus{}, {.root = 2});
            EXPECT(false);
        } catch (const collx::invalid_argument& e) {
            EXPECT(std::strstr(e.what(), "deterministic keeps it") != nullptr);
        }
        collx::reduce(w.with(collx::algo::double_tree_reduce{}), x, y, collx::plus{}, {.root = 2});
    });
}
