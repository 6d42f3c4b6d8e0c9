// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect-re: (use of|call to) deleted function
// expect-gcc: collx::v0::value(const T&&)
#include <collx/core/views.hpp>

int main() {
    double x = 1;
#ifdef COLLX_FAIL
    collx::value(x + 1);
#else
    return static_cast<int>(collx::value(x).size());
#endif
}
