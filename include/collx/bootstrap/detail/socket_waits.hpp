// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What stores do with sockets, each call with a deadline: connect, send all, receive all. The sockets do not block.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>

#include <collx/core/descriptor.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// False: the other end refused, or did not answer in time.
[[gnu::cold]] inline bool connected_within(int fd, const sockaddr* to, socklen_t bytes, const deadline& until) {
    if (::connect(fd, to, bytes) == 0) return true;
    if (errno != EINPROGRESS && errno != EINTR) return false; // a connect() that a signal interrupts goes on
    int trouble = 0;
    socklen_t its_bytes = sizeof trouble;
    return wait_for_event(fd, POLLOUT, until) && ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &trouble, &its_bytes) == 0 &&
           trouble == 0;
}

enum class came : unsigned char { whole, late, lost };

[[gnu::cold]] inline came send_all(int fd, const void* data, std::size_t bytes, const deadline& until) {
    for (const char* at = static_cast<const char*>(data); bytes > 0;) {
        const ssize_t n = without_eintr([&] { return ::send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT); });
        if (n > 0) {
            at += n;
            bytes -= static_cast<std::size_t>(n);
        } else if (n < 0 && errno != EAGAIN) return came::lost;
        else if (!wait_for_event(fd, POLLOUT, until)) return came::late;
    }
    return came::whole;
}
[[gnu::cold]] inline came receive_all(int fd, void* data, std::size_t bytes, const deadline& until) {
    for (char* at = static_cast<char*>(data); bytes > 0;) {
        const ssize_t n = without_eintr([&] { return ::recv(fd, at, bytes, MSG_DONTWAIT); });
        if (n > 0) {
            at += n;
            bytes -= static_cast<std::size_t>(n);
        } else if (n == 0 || errno != EAGAIN) return came::lost;
        else if (!wait_for_event(fd, POLLIN, until)) return came::late;
    }
    return came::whole;
}

} // namespace detail

COLLX_END_NAMESPACE
