// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: elements travel between ranks as bytes, and this type has a destructor: what it owns lies elsewhere. Send its parts as buffers of their own, or objects by collx/interop/cereal.hpp.
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
