// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: collx: value() views a variable, and this is a temporary, which would be gone before the result arrives. Give it a name: float x = 3; collx::value(x).
#include <collx/core/views.hpp>

int main() {
    double x = 1;
#ifdef COLLX_FAIL
    collx::value(x + 1);
#else
    return static_cast<int>(collx::value(x).size());
#endif
}
