// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: operands lie at multiples of 64 bytes, and this element type is aligned to more. Reduce elements of a type that is aligned to 64 bytes or less.
// clang-format on
#include <collx/core/op.hpp>
#include <collx/core/views.hpp>
#include <collx/exec/mover.hpp>

#ifdef COLLX_FAIL
constexpr int most = 128;
#else
constexpr int most = 64;
#endif
struct alignas(most) wide {
    int v;
};
struct add {
    wide operator()(const wide& a, const wide& b) const { return {a.v + b.v}; }
};

int main() {
    using view = collx::contiguous_view<wide>;
    wide x{1};
    const view v(&x, 1);
    const collx::mover<view, view, add, wide> m(v, v, add{}, 2);
    return m.input().size() == 1 ? 0 : 1;
}
