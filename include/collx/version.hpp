// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The version of collx and the namespace of all declarations. Every header includes this file, and the build system
// reads it: the project's version comes from the three numbers below.
//
// The inline namespace is the same for a host compiler and for nvcc, on purpose: a launcher compiled by nvcc and the
// .cpp that calls it must agree on the names of the types they share. It changes when layouts or wire formats do.
#pragma once

// A missing language feature ends the compilation here with one sentence instead of a thousand errors: compilers stop
// at an include of a file that does not exist. (nvcc's passes define other macros.)
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

// The version as one number that can be compared: 0.1.0 is 100, 1.2.3 would be 10203.
#define COLLX_VERSION (COLLX_VERSION_MAJOR * 10000 + COLLX_VERSION_MINOR * 100 + COLLX_VERSION_PATCH)
#define COLLX_VERSION_STRING "0.1.0"

// clang-format off
#define COLLX_BEGIN_NAMESPACE namespace collx { inline namespace v0 {
#define COLLX_END_NAMESPACE }}
// clang-format on
