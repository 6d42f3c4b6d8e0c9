// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A number for this host: two processes with the same number can find each other by abstract sockets. Host names are
// not used, because containers give themselves arbitrary ones.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

#include <collx/core/descriptor.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Made from this boot of the kernel and from the network namespace, which abstract sockets belong to.
inline std::uint64_t host_id() {
    char boot[64] = {};
    const descriptor fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    if (fd.is_open()) (void)!::read(fd.get(), boot, sizeof boot);
    struct stat network {};
    if (::stat("/proc/self/ns/net", &network) != 0) network.st_ino = 0;
    return hash_bytes(boot, sizeof boot, static_cast<std::uint64_t>(network.st_ino));
}

} // namespace detail

COLLX_END_NAMESPACE
