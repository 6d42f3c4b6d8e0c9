// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a test reports that it cannot run here. Catch2 v2 has no skip, so a case calls `collx_test::skip("why")` and
// returns. The program exits with 77 (which ctest reports as skipped) when every case that ran did so. scripts/test
// repeats the line "SKIPPED: why" at the end.
#pragma once

#include <cstdio>

namespace collx_test {

inline int& skipped_cases() {
    static int count = 0;
    return count;
}

inline void skip(const char* reason) {
    std::printf("SKIPPED: %s\n", reason);
    std::fflush(stdout);
    ++skipped_cases();
}

} // namespace collx_test
