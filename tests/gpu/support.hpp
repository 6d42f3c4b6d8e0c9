// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the programs of tests/gpu share: counted checks, and how a program ends.
#pragma once

#include <cstdio>
#include <string>

#include <collx/core/config.hpp>

inline int failures = 0, checks = 0;

inline void expect(bool holds, const std::string& what) {
    ++checks;
    if (holds) return;
    ++failures;
    std::printf("FAILED: %s\n", what.c_str());
}

// After the last check, or with what ended them: the program's exit code.
inline int finish(const char* thrown = nullptr) {
    if (thrown != nullptr) ++failures, std::printf("FAILED: %s\n", thrown);
    std::printf("%d checks, %d failed\n", checks, failures);
    return failures == 0 ? 0 : 1;
}
inline int skip() {
    std::printf("SKIPPED: no GPU\n");
    return 77;
}

// What a computed input yields: small whole numbers.
struct seventh {
    COLLX_HD float operator()(long long i) const { return static_cast<float>(i % 7); }
};
