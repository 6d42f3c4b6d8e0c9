// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=nightly
//
// Sums of all arithmetic element types with all_reduce, compared with a left fold on one thread. operators_test.cpp
// tests the operators.
#include "type_support.hpp"

#include <cstdint>

using namespace collx_test;

TEST_CASE("all integers are summed, and wrap") {
    for (const int n : {1, 2, 5})
        on_ranks(n, [](collx::communicator& w) {
            check_op<char>(w, collx::plus{}, 50);
            check_op<signed char>(w, collx::plus{}, 50);
            check_op<unsigned char>(w, collx::plus{}, 120);
            check_op<short>(w, collx::plus{}, 16'000);
            check_op<std::uint16_t>(w, collx::plus{}, 16'000);
            check_op<int>(w, collx::plus{}, 2'000'000'000);
            check_op<unsigned>(w, collx::plus{}, 2'000'000'000);
            check_op<long>(w, collx::plus{}, 2'000'000'000);
            check_op<unsigned long long>(w, collx::plus{}, 2'000'000'000);
        });
}

TEST_CASE("all floating-point types are summed") {
    for (const int n : {1, 2, 5})
        on_ranks(n, [](collx::communicator& w) {
            check_op<float>(w, collx::plus{});
            check_op<double>(w, collx::plus{});
            check_op<long double>(w, collx::plus{});
        });
}

TEST_CASE("f16 and bf16 sum in float and round once") {
    for (const int n : {1, 2, 5, 8})
        on_ranks(n, [n](collx::communicator& w) {
            // 256 + 1 is 256 in bf16, 2048 + 1 is 2048 in f16: a sum kept in 16 bits would not grow further.
            for (const std::size_t size : {1u, 100u, 5000u}) {
                std::vector<collx::bf16> b(size, collx::bf16(w.rank() == 0 ? 256.0f : 1.0f));
                std::vector<collx::f16> h(size, collx::f16(w.rank() == 0 ? 2048.0f : 1.0f));
                collx::all_reduce(w, b);
                collx::all_reduce(w, h);
                const float sum = static_cast<float>(n - 1);
                EXPECT(float(b[0]) == float(collx::bf16(256.0f + sum)) && float(b[size - 1]) == float(b[0]));
                EXPECT(float(h[0]) == float(collx::f16(2048.0f + sum)) && float(h[size - 1]) == float(h[0]));
            }
        });
}
