// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shared by the programs of tests/gpu: counted checks, and the end of a program.
#pragma once

#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include <thrust/copy.h>
#include <thrust/device_vector.h>

#include <collx/core/config.hpp>

inline int failures = 0, checks = 0;

inline void expect(bool holds, const std::string& what) {
    static std::mutex mutex; // ranks may be threads
    const std::lock_guard lock(mutex);
    ++checks;
    if (holds) return;
    ++failures;
    std::printf("FAILED: %s\n", what.c_str());
}

// Prints the result, after the last check or after an exception; returns the program's exit code.
inline int finish(const char* thrown = nullptr) {
    if (thrown != nullptr) {
        ++failures;
        std::printf("FAILED: %s\n", thrown);
    }
    std::printf("%d checks, %d failed\n", checks, failures);
    return failures == 0 ? 0 : 1;
}
inline int skip() {
    std::printf("SKIPPED: no GPU\n");
    return 77;
}

// In one copy: a std::vector made of a device_vector's iterators would copy one element at a time.
template <class T>
std::vector<T> on_host(const thrust::device_vector<T>& x) {
    std::vector<T> host(x.size());
    thrust::copy(x.begin(), x.end(), host.begin());
    return host;
}

// The value of a computed input: small integers.
struct seventh {
    COLLX_HD float operator()(long long i) const { return static_cast<float>(i % 7); }
};
