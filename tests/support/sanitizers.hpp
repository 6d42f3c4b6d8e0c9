// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which sanitizer a test is compiled with, 0 or 1: g++ and clang say it differently.
#pragma once

#if defined(__has_feature)
#define COLLX_TEST_ASAN __has_feature(address_sanitizer)
#define COLLX_TEST_TSAN __has_feature(thread_sanitizer)
#else
#if defined(__SANITIZE_ADDRESS__)
#define COLLX_TEST_ASAN 1
#else
#define COLLX_TEST_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__)
#define COLLX_TEST_TSAN 1
#else
#define COLLX_TEST_TSAN 0
#endif
#endif

namespace collx_test {
// Under ThreadSanitizer, where each access costs ten times as much, tests that repeat do so less often.
constexpr int times(int otherwise, int under_tsan) { return COLLX_TEST_TSAN ? under_tsan : otherwise; }
} // namespace collx_test
