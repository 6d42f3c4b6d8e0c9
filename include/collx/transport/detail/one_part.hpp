// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The argument of sendmsg() and recvmsg() for one piece of memory.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// A message of one part.
struct one_part : msghdr {
    iovec part;
    one_part(const void* at, std::size_t bytes) : msghdr{}, part{const_cast<void*>(at), bytes} {
        msg_iov = &part;
        msg_iovlen = 1;
    }
    one_part(const one_part&) = delete;
};

} // namespace detail
COLLX_END_NAMESPACE
