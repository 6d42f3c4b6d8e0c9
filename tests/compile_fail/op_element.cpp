// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: this element type cannot travel between ranks as bytes. Make it trivially copyable, or say that its bytes suffice with collx::enable_wire<T> = true.
// clang-format on
#include <collx/core/op.hpp>

#include <string>

int main() {
#ifdef COLLX_FAIL
    collx::require_reduce_op<collx::plus, std::string>();
#else
    collx::require_reduce_op<collx::plus, int>();
#endif
}
