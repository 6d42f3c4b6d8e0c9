// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: this reduction operator can only be moved, and a call keeps a copy of it. Let it refer to what it owns: collx::all_reduce(world, x, [&op](auto a, auto b) { return op(a, b); }).
// clang-format on
#include <collx/core/op.hpp>

#include <memory>

int main() {
    const auto sum = [table = std::make_unique<float[]>(3)](float a, float b) { return a + b + table[0]; };
#ifdef COLLX_FAIL
    const auto& op = sum;
#else
    const auto op = [&sum](float a, float b) { return sum(a, b); };
#endif
    collx::require_reduce_op<decltype(op), float>();
    return static_cast<int>(op(0, 0));
}
