// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: this reduction operator cannot combine two elements. It must be callable on a const operator object as op(const T&, const T&) and return something that converts to T.
// clang-format on
#include <collx/core/op.hpp>

struct subtract {
#ifdef COLLX_FAIL
    int operator()(int a, int b) { return a - b; } // not const
#else
    int operator()(int a, int b) const { return a - b; }
#endif
};

int main() { collx::require_reduce_op<subtract, int>(); }
