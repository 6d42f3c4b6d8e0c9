// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All fuzz targets as one program for libFuzzer: the first argument after its own is --target=NAME.
#include "fuzz/targets.hpp"

namespace {
void (*chosen)(collx_fuzz::input) = nullptr;
}

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
    for (int i = 1; i < *argc; ++i)
        for (const auto& t : collx_fuzz::targets)
            if ((*argv)[i] == "--target=" + std::string(t.name)) chosen = t.run;
    if (chosen == nullptr) {
        std::fprintf(stderr, "usage: fuzz [libFuzzer's options] corpus... --target=NAME\n");
        std::exit(2);
    }
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t bytes) {
    chosen({data, bytes});
    return 0;
}
