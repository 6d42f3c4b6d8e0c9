// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A user's first program: it includes the whole library and prints the version it was compiled with.
#if __has_include(<collx/collx.hpp>)
#include <collx/collx.hpp>
#else
#include <collx/version.hpp>
#endif

#include <cstdio>

int main() {
    std::printf("collx %s\n", COLLX_VERSION_STRING);
    return COLLX_VERSION == 0 ? 1 : 0;
}
