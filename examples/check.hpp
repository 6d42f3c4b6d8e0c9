// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shared by the examples: checks of what is expected, and whether this run is the short one of the tests.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace example {

inline std::atomic<int> wrong{0}; // ranks may be threads

inline void expect(bool right, const char* what) {
    if (right) return;
    std::printf("WRONG: %s\n", what);
    ++wrong;
}

// For `return` in main.
inline int result() {
    std::printf("%s\n", wrong == 0 ? "All as expected." : "Something was wrong, see above.");
    return wrong == 0 ? 0 : 1;
}

inline bool is_short() {
    const char* value = std::getenv("COLLX_EXAMPLE_SHORT");
    return value != nullptr && value[0] == '1';
}

} // namespace example
