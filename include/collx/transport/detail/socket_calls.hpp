// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The system calls that move bytes between hosts, as one small table, so that a test can make them come up short, be
// interrupted or fail. An indirect call costs a nanosecond, the call behind it a microsecond.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>

#include <collx/core/descriptor.hpp>
#include <collx/core/error.hpp>
#include <collx/core/socket_address.hpp>
#include <collx/transport/detail/one_part.hpp>

COLLX_BEGIN_NAMESPACE

struct socket_calls {
    int (*socket)(int, int, int);
    int (*connect)(int, const sockaddr*, socklen_t);
    int (*accept4)(int, sockaddr*, socklen_t*, int);
    ssize_t (*sendmsg)(int, const msghdr*, int);
    ssize_t (*recvmsg)(int, msghdr*, int);
    int (*epoll_wait)(int, epoll_event*, int, int);
    // Both or neither: null where memory must not go by reference (page_pipe.hpp).
    ssize_t (*vmsplice)(int, const iovec*, std::size_t, unsigned) = nullptr;
    ssize_t (*splice)(int, off64_t*, int, off64_t*, std::size_t, unsigned) = nullptr;
};

namespace detail {

// For one part recv() and send() are faster: a call that finds nothing takes 340 ns instead of 440, 8 KiB 150 less.
// Copying a head and a few bytes behind it into one part costs less than a second part.
inline ssize_t send_parts(int fd, const msghdr* m, int flags) {
    char joined[2048];
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < m->msg_iovlen; ++i) bytes += m->msg_iov[i].iov_len;
    if (m->msg_iovlen == 1) return ::send(fd, m->msg_iov->iov_base, bytes, flags);
    if (bytes > sizeof joined) return ::sendmsg(fd, m, flags);
    std::size_t at = 0;
    for (std::size_t i = 0; i < m->msg_iovlen; at += m->msg_iov[i++].iov_len)
        std::memcpy(joined + at, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
    return ::send(fd, joined, bytes, flags);
}
inline ssize_t receive_parts(int fd, msghdr* m, int flags) {
    return m->msg_iovlen == 1 ? ::recv(fd, m->msg_iov->iov_base, m->msg_iov->iov_len, flags) : ::recvmsg(fd, m, flags);
}

} // namespace detail

inline constexpr socket_calls system_socket_calls{
    ::socket, ::connect, ::accept4, detail::send_parts, detail::receive_parts, ::epoll_wait, ::vmsplice, ::splice};

namespace detail {

// Settings from measurements on loopback (docs/design/sockets.md): no delay for fuller segments, and reno where bytes
// never leave the machine, because the pacing of bbr halves its bandwidth. Between hosts the system's choice stays: it
// knows the network, we do not.
inline void tune_socket(int fd, bool is_loopback) {
    const int on = 1;
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (is_loopback) (void)::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

inline bool would_block(int error) { return error == EAGAIN || error == ENOBUFS || error == ENOMEM; }

} // namespace detail

COLLX_END_NAMESPACE
