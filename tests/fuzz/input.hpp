// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shared by the fuzz targets: the input bytes, and what must hold.
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

// The input, read byte by byte; zeros after its end.
struct input {
    const unsigned char* at;
    std::size_t left;
    unsigned take() {
        if (left == 0) return 0;
        --left;
        return *at++;
    }
    std::string rest() { return {reinterpret_cast<const char*>(at), left}; }
};

} // namespace collx_fuzz
