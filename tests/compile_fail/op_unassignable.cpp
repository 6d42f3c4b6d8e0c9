// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums need elements that can be assigned, and reduce_local elements that fit the stack.
// clang-format off
// expect: collx: sums are assigned to elements, and this element type cannot be assigned.
// expect: collx: reduce_local keeps operands on the stack, and this element is longer than 256 KiB. Give it the parts of the element as a buffer.
// clang-format on
#include <collx/comm/reduce_local.hpp>

#include <vector>

#ifdef COLLX_FAIL
constexpr int length = 300'000;
struct fixed {
    const int v = 0;
};
#else
constexpr int length = 200'000;
struct fixed {
    int v = 0;
};
#endif
struct add {
    fixed operator()(fixed a, fixed b) const { return {a.v + b.v}; }
};
struct table {
    char of[length];
};
struct first {
    void operator()(const table*, table*, std::size_t) const {}
};

void reduce(const std::vector<fixed>& in, std::vector<fixed>& out, std::vector<table>& tables) {
    collx::reduce_local(in, out, add{});
    collx::reduce_local(tables, tables, first{});
}

int main() { return 0; }
