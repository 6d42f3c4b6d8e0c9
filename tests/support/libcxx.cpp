// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What tests/scripts/libcxx_test.py compiles with libc++: ranks of two hosts compute, and numbers are read without
// std::from_chars, which reads integers only in its older versions.
#include <collx/net.hpp>

#include <collx/collx.hpp>
#include <collx/core/decimal.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

int main() {
    int wrong = 0;
    collx::run_threads({0, 0, 1}, [&](collx::communicator& world) {
        std::vector<double> x(5000, world.rank());
        collx::all_reduce(world, x);
        const int mine = world.rank() + 1;
        std::array<int, 3> each{};
        collx::all_gather(world, collx::value(mine), each);
        if (world.rank() == 2)
            wrong += static_cast<int>(5000 - std::count(x.begin(), x.end(), 3.0)) + (each[0] != 1) + (each[2] != 3);
    });
    double x = 0;
    wrong += !collx::detail::read_decimal("-15.753846", x) || x != -15.753846;
    for (const char* other : {"", " 1", "+1", "1,5", "1.5 ", "0x10", "1e400", "fast"})
        wrong += collx::detail::read_decimal(other, x);
    if (wrong != 0) std::printf("%d results are wrong\n", wrong);
    return wrong == 0 ? 0 : 1;
}
