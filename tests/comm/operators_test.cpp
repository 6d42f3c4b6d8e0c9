// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=nightly
//
// The shipped operators with all_reduce, compared with a left fold on one thread. exec/loops_test.cpp tests the types.
#include "type_support.hpp"

#include <cmath>
#include <limits>
#include <memory>

using namespace collx_test;

namespace {

// Needed because std::vector<bool> stores no bools.
struct bools {
    explicit bools(std::size_t n) : memory(new bool[n]), size(n) {}
    bool& operator[](std::size_t i) { return memory[i]; }
    auto view() { return collx::view(memory.get(), size); }
    std::unique_ptr<bool[]> memory;
    std::size_t size;
};

} // namespace

TEST_CASE("operators on integers") {
    for (const int n : {1, 2, 5})
        on_ranks(n, [](collx::communicator& w) {
            check_op<signed char>(w, collx::multiplies{}, 2);
            check_op<short>(w, collx::min{}, -2);
            check_op<long>(w, collx::max{}, -2);
            check_op<unsigned char>(w, collx::bit_and{}, 1);
            check_op<int>(w, collx::bit_or{});
            check_op<unsigned>(w, collx::bit_xor{});
            check_op<char>(w, collx::logical_and{});
            check_op<int>(w, collx::logical_or{});
            check_op<int>(w, collx::logical_xor{}); // 2 and 4 are both true; a bitwise xor would give another result
            check_op<double>(w, collx::logical_xor{}, -1);
            check_op<int>(w, [](auto... v) { return (v + ...); });
        });
}

TEST_CASE("operators on floating-point numbers") {
    for (const int n : {1, 2, 5})
        on_ranks(n, [](collx::communicator& w) {
            check_op<float>(w, collx::multiplies{}, 1);
            check_op<double>(w, collx::min{}, -2);
        });
}

TEST_CASE("truth values are combined with logical operators") {
    for (const int n : {1, 2, 5})
        on_ranks(n, [n](collx::communicator& w) {
            for (const std::size_t size : {1u, 64u, 1000u}) {
                bools all(size), any(size), parity(size);
                for (std::size_t i = 0; i < size; ++i) {
                    all[i] = i % 3 != 0 || w.rank() != n - 1;
                    any[i] = i % 3 == 0 && w.rank() == 0;
                    parity[i] = w.rank() % 2 == 1;
                }
                collx::all_reduce(w, all.view(), collx::logical_and{});
                collx::all_reduce(w, any.view(), collx::logical_or{});
                collx::all_reduce(w, parity.view(), collx::bit_xor{});
                for (std::size_t i = 0; i < size; ++i)
                    EXPECT_AT(i, all[i] == (i % 3 != 0) && any[i] == (i % 3 == 0) && parity[i] == (n / 2 % 2 == 1));
            }
        });
}

TEST_CASE("minima and maxima show a NaN and order signed zeros, on all ranks alike") {
    on_ranks(4, [](collx::communicator& w) {
        const float nan = std::numeric_limits<float>::quiet_NaN();
        for (const std::size_t size : {1u, 40u, 4000u}) {
            std::vector<float> x(size, 1.0f), y(size, w.rank() == 1 ? -0.0f : 0.0f), z(y);
            if (w.rank() == 2) x[size / 2] = nan;
            collx::all_reduce(w, x, collx::max{});
            collx::all_reduce(w, y, collx::min{});
            collx::all_reduce(w, z, collx::max{});
            for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, i == size / 2 ? std::isnan(x[i]) : x[i] == 1.0f);
            for (std::size_t i = 0; i < size; ++i)
                EXPECT_AT(i, std::signbit(y[i]) && y[i] == 0.0f && !std::signbit(z[i]));
        }
    });
}
