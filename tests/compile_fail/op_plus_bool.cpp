// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx::plus: the sum of bools is not a bool. Use collx::logical_or for 'any', collx::logical_and for 'all', collx::bit_xor for parity, or an integer type to count.
// clang-format on
#include <collx/core/op.hpp>

int main() {
#ifdef COLLX_FAIL
    return collx::plus{}(true, true);
#else
    return collx::logical_or{}(true, true);
#endif
}
