// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: use of deleted function
// expect: collx::v0::value(const T&&)
#include <collx/core/views.hpp>

int main() {
    double x = 1;
#ifdef COLLX_FAIL
    collx::value(x + 1);
#else
    return static_cast<int>(collx::value(x).size());
#endif
}
