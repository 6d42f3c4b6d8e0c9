// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The version of collx and the namespace every declaration lives in. Nothing else: this file is included by every
// header and read by the build system, which takes the project's version from the three numbers below.
//
// The inline namespace is the same for a host compiler and for nvcc, on purpose: a launcher compiled by nvcc and the
// .cpp that calls it must agree on the names of the types they share. It changes when layouts or wire formats do.
#pragma once

// What the library cannot do without ends the compilation here, with one sentence instead of a thousand errors: a
// header that does not exist is the one mistake after which compilers read no further. (nvcc's passes define other
// macros.)
#if !defined(__CUDACC__)
#if __cplusplus < 202002L
#error "collx: this is a C++20 library. Compile with -std=c++20 or later."
#include <collx_needs_cxx20>
#elif !defined(__cpp_exceptions)
#error "collx: errors are exceptions. Compile without -fno-exceptions."
#include <collx_needs_exceptions>
#endif
#endif

#define COLLX_VERSION_MAJOR 0
#define COLLX_VERSION_MINOR 1
#define COLLX_VERSION_PATCH 0

// One number that compares: 0.1.0 is 100, 1.2.3 would be 10203.
#define COLLX_VERSION (COLLX_VERSION_MAJOR * 10000 + COLLX_VERSION_MINOR * 100 + COLLX_VERSION_PATCH)
#define COLLX_VERSION_STRING "0.1.0"

// clang-format off
#define COLLX_BEGIN_NAMESPACE namespace collx { inline namespace v0 {
#define COLLX_END_NAMESPACE }}
// clang-format on
