// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: this algorithm changes the order of the operands, and the operator is not known to be commutative. If op(a, b) equals op(b, a), say so with collx::commutative(op); otherwise choose an algorithm that keeps rank order.
// clang-format on
#include <collx/core/op.hpp>

int main() {
    const auto sum = [](float a, float b) { return a + b; };
#ifdef COLLX_FAIL
    const auto op = sum;
#else
    const auto op = collx::commutative(sum);
#endif
    collx::require_commutative<decltype(op), float>();
}
