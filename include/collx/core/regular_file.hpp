// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads a file that a user has named. A folder and a device are none, and a FIFO is refused at once: a plain open would
// wait for its writer.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include <collx/core/descriptor.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Reads at most `most` bytes into text. Returns null, or why the file cannot be read.
[[nodiscard, gnu::cold]] inline const char* read_regular_file(const char* name, std::size_t most, std::string& text) {
    const descriptor f(::open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    struct stat about {};
    if (!f.is_open() || ::fstat(f.get(), &about) != 0) return std::strerror(errno);
    if (!S_ISREG(about.st_mode)) return S_ISDIR(about.st_mode) ? std::strerror(EISDIR) : "Not a regular file";
    text.clear();
    char part[1 << 14];
    while (text.size() < most) {
        const std::size_t room = most - text.size();
        const ssize_t n = without_eintr([&] { return ::read(f.get(), part, room < sizeof part ? room : sizeof part); });
        if (n < 0) return std::strerror(errno);
        if (n == 0) break;
        text.append(part, static_cast<std::size_t>(n));
    }
    return nullptr;
}

} // namespace detail
COLLX_END_NAMESPACE
