// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An open file of one process, taken over by another that knows both numbers: no socket is needed between them. The
// kernel asks for the rights of a debugger, so it may refuse (another user, Yama, seccomp).
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include <collx/core/descriptor.hpp>
#include <collx/core/error.hpp>
#include <collx/transport/gpu_runtime.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// Requires: the file stays open until the others have taken it.
inline memory_handle handle_of_file(int file) {
    const std::int32_t numbers[2] = {static_cast<std::int32_t>(::getpid()), file};
    memory_handle h;
    std::memcpy(h.bytes, numbers, sizeof numbers);
    return h;
}
// Errors: unsupported where the kernel refuses; peer_failed where the process is gone, or has closed the file.
inline descriptor file_of(const memory_handle& h) {
    std::int32_t numbers[2];
    std::memcpy(numbers, h.bytes, sizeof numbers);
    const descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, numbers[0], 0)));
    descriptor file(process.is_open() ? static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), numbers[1], 0))
                                      : -1);
    if (file.is_open()) return file;
    const int e = errno;
    if (e == ESRCH || e == EBADF)
        fail(errc::peer_failed, -1, -1, "see why that process ended",
             "the process %d that shows memory of a device is gone, or has taken it back", numbers[0]);
    fail(errc::unsupported, -1, -1, "the same user, and kernel.yama.ptrace_scope 0, would allow it",
         "taking over a file of process %d: %s", numbers[0], std::strerror(e));
}

} // namespace device
COLLX_END_NAMESPACE
