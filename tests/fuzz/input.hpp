// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What fuzz targets are made of: the bytes they are given, and what must hold.
#pragma once

#include <collx/version.hpp>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace collx_fuzz {

using namespace collx;

inline void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "fuzz: %s\n", what);
    std::abort();
}

// Bytes that are taken one after the other; zeros when there are no more.
struct input {
    const unsigned char* at;
    std::size_t left;
    unsigned take() { return left == 0 ? 0 : (--left, *at++); }
    std::string rest() { return {reinterpret_cast<const char*>(at), left}; }
};

} // namespace collx_fuzz
