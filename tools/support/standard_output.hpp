// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The begin and the end of a tool's standard output: it is never a descriptor of something else, and on a full disk a
// shortened table must not look like a whole one.
#pragma once

#include <fcntl.h>
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace collx::tools {

/// Call it first in main(). Otherwise a socket or shared memory could become descriptor 1, and the tool would print
/// into it. `output`: how a missing standard output is opened. O_RDONLY: writes fail, and ended() says so, as where a
/// limit of file size would end the tool by a signal. O_RDWR, for a launcher, whose programs inherit what signals do:
/// what is written is dropped.
inline void open_missing_standard_descriptors(int output = O_RDONLY) {
    if (output == O_RDONLY) ::signal(SIGXFSZ, SIG_IGN); // write() then fails with EFBIG
    for (int fd = 0; fd <= 2; ++fd)
        if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF)
            (void)!::open("/dev/null", fd == 1 ? output : O_RDWR); // the lowest free one: fd
}

/// Returns a tool's exit code: `code`, or 1 where its output was lost, and then says so.
inline int ended(const char* tool, int code) {
    errno = 0;
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    std::fprintf(stderr, "%s: standard output is not complete%s%s\n", tool, errno != 0 ? ": " : "",
                 errno != 0 ? std::strerror(errno) : "");
    return code != 0 ? code : 1;
}

} // namespace collx::tools
