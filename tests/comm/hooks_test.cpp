// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=nightly
//
// Hooks of operators and narrower wire types. Hooks apply once, in the right place, and all ranks get the same bits,
// whatever the algorithm.
#include "support.hpp"

#include <cstring>

using namespace collx_test;
using collx::collective;

namespace {

// Gathers every rank's result at rank 0, which compares the bits.
template <class T>
bool is_same_everywhere(collx::communicator& w, const std::vector<T>& x) {
    std::vector<T> all(w.rank() == 0 ? x.size() * static_cast<std::size_t>(w.size()) : 0);
    collx::gather(w, x, all);
    for (std::size_t r = 0; w.rank() == 0 && r < static_cast<std::size_t>(w.size()); ++r)
        if (std::memcmp(all.data() + r * x.size(), x.data(), x.size() * sizeof(T)) != 0) return false;
    return true;
}

} // namespace

TEST_CASE("each operand passes the first hook once, each result the last one once") {
    const auto op = collx::with_post(collx::with_pre(collx::plus{}, [](long x) { return x * x; }),
                                     [](long x) { return x * 1000 + 1; });
    for (const int n : {1, 2, 3, 5, 8})
        on_ranks(n, [&](collx::communicator& w) {
            long squares = 0;
            for (int r = 0; r < n; ++r) squares += (r + 2) * (r + 2);
            for_each_copying_algorithm<collective::all_reduce>([&](auto a) {
                for (const std::size_t size : {1u, 500u}) {
                    at("%s n=%d size=%zu", a.name, n, size);
                    std::vector<long> x(size, w.rank() + 2);
                    collx::all_reduce(w.with(a, collx::piece{640}), x, op);
                    EXPECT(x.front() == squares * 1000 + 1 && x.back() == x.front());
                }
            });
            for_each_copying_algorithm<collective::reduce_scatter>([&](auto a) {
                at("%s n=%d", a.name, n);
                std::vector<long> x(300 * static_cast<std::size_t>(n), w.rank() + 2), out(300);
                collx::reduce_scatter(w.with(a), x, out, op);
                EXPECT(out.front() == squares * 1000 + 1 && out.back() == out.front());
            });
        });
}

TEST_CASE("scans whose results may not travel on as operands read the operands, also among ranks that share cores") {
    const auto op = collx::with_post(collx::plus{}, [](long x) { return x * 1000 + 1; });
    for (const int n : {1, 2, 3, 5})
        on_ranks(n, [&](collx::communicator& w) {
            long sum = 0;
            for (int r = 0; r <= w.rank(); ++r) sum += r + 2;
            for (const std::size_t size : {1u, 500u, 40'000u}) {
                at("n=%d size=%zu", n, size);
                std::vector<long> x(size, w.rank() + 2), before(size, w.rank() + 2);
                collx::scan(w, x, op);
                EXPECT(x.front() == sum * 1000 + 1 && x.back() == x.front());
                collx::exclusive_scan(w, before, op);
                if (w.rank() > 0) EXPECT(before.front() == (sum - w.rank() - 2) * 1000 + 1);
                std::vector<float> one(size, 1.0f + 0.01f * static_cast<float>(w.rank())), other = one;
                collx::scan(w.with(collx::wire<collx::bf16>{}), one);
                collx::scan(w.with(collx::algo::one_shot_scan{}, collx::wire<collx::bf16>{}), other);
                EXPECT(one == other);
            }
        });
}

TEST_CASE("a hook that takes the index sees the element's place in the buffer") {
    on_ranks(3, [](collx::communicator& w) {
        for (const std::size_t size : {1u, 700u, 20'000u}) {
            std::vector<float> bias(size), x(size, 1.0f);
            for (std::size_t i = 0; i < size; ++i) bias[i] = static_cast<float>(i % 1000);
            collx::all_reduce(w, x, collx::with_post(collx::plus{}, [&](float s, collx::hook_context c) {
                                  return s + bias[c.index];
                              }));
            for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, x[i] == 3.0f + bias[i]);
        }
    });
}

TEST_CASE("scaled sums: every rank its own factor") {
    on_ranks(4, [](collx::communicator& w) {
        std::vector<double> x(2000, 2.0);
        collx::all_reduce(w, x, collx::premultiplied_sum(static_cast<double>(w.rank())));
        EXPECT(x.front() == 12.0 && x.back() == 12.0);
    });
}

TEST_CASE("a narrower wire rounds, but never differently on two ranks") {
    for (const int n : {1, 2, 3, 4, 5, 7, 8})
        on_ranks(n, [n](collx::communicator& w) {
            for (const std::size_t size : {1u, 65u, 9000u}) {
                const auto check = [&](auto&& bound) {
                    std::vector<float> x(size);
                    float largest = 0;
                    for (std::size_t i = 0; i < size; ++i)
                        x[i] = 1.0f + static_cast<float>((w.rank() * 31 + static_cast<int>(i) * 7) % 100) / 97.0f;
                    std::vector<float> exact(size);
                    for (std::size_t i = 0; i < size; ++i)
                        for (int r = 0; r < n; ++r)
                            exact[i] += 1.0f + static_cast<float>((r * 31 + static_cast<int>(i) * 7) % 100) / 97.0f;
                    collx::all_reduce(bound, x);
                    for (std::size_t i = 0; i < size; ++i)
                        largest = std::max(largest, std::abs(x[i] - exact[i]) / exact[i]);
                    EXPECT_AT(largest * 1e6f, largest <= static_cast<float>(n) / 256.0f);
                    EXPECT(is_same_everywhere(w, x));
                };
                check(w.with(collx::wire<collx::bf16>{}));
                for_each_copying_algorithm<collective::all_reduce>([&](auto a) {
                    at("%s n=%d size=%zu", a.name, n, size);
                    check(w.with(a, collx::wire<collx::bf16>{}));
                });
            }
        });
}

TEST_CASE("a narrower wire is for sums; what is only moved keeps all its digits") {
    on_ranks(3, [](collx::communicator& w) {
        const std::vector<float> mine(100, 1.0f + 1.0f / 8192 * static_cast<float>(w.rank()));
        std::vector<float> all(300);
        collx::all_gather(w.with(collx::wire<collx::bf16>{}), mine, all);
        EXPECT(all[0] == 1.0f && all[100] == 1.0f + 1.0f / 8192 && all[299] == 1.0f + 2.0f / 8192);
    });
}

TEST_CASE("scans in place apply the hook once, whichever algorithm runs and however many ranks follow") {
    const collx::premultiplied_sum<double> tenfold(10);
    for (const int n : {1, 2, 3, 4, 5, 8})
        on_ranks(n, [&](collx::communicator& w) {
            for (const std::size_t size : {1u, 999u, 100'000u}) {
                const auto check = [&](const char* name, auto&& bound) {
                    at("%s n=%d size=%zu", name, n, size);
                    std::vector<double> upto_me(size, 1.0), before_me(size, 1.0);
                    collx::scan(bound, upto_me, tenfold);
                    EXPECT(upto_me.front() == 10.0 * (w.rank() + 1) && upto_me.back() == upto_me.front());
                    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(bound)>, collx::communicator>) {
                        collx::exclusive_scan(bound, before_me, tenfold);
                        EXPECT(w.rank() == 0 || before_me.front() == 10.0 * w.rank());
                        EXPECT(w.rank() == 0 || before_me.back() == before_me.front());
                    }
                };
                check("default", w);
                for_each_copying_algorithm<collective::scan>([&](auto a) { check(a.name, w.with(a)); });
            }
        });
}
