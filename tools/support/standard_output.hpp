// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The end of a tool's standard output: on a full disk a shortened table must not look like a whole one.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace collx::tools {

/// Returns a tool's exit code: `code`, or 1 where its output was lost, and then says so.
inline int ended(const char* tool, int code) {
    errno = 0;
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    std::fprintf(stderr, "%s: standard output is not complete%s%s\n", tool, errno != 0 ? ": " : "",
                 errno != 0 ? std::strerror(errno) : "");
    return code != 0 ? code : 1;
}

} // namespace collx::tools
