// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where a socket is, in numbers. Texts are read elsewhere (bootstrap/detail/tcp_frame.hpp).
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// The address of a socket: IPv4, IPv6 or a unix socket.
struct socket_address {
    sockaddr_storage address{};
    socklen_t bytes = 0; // 0: none

    // The addresses of this end of a socket and of the other end; none if the system does not say.
    static socket_address of(int fd) { return asked(::getsockname, fd); }
    static socket_address of_peer(int fd) { return asked(::getpeername, fd); }

    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
    sockaddr* get() { return reinterpret_cast<sockaddr*>(&address); }
    bool is_unix() const { return address.ss_family == AF_UNIX; }
    bool is_loopback() const {
        if (address.ss_family == AF_INET) return ntohl(v4().sin_addr.s_addr) >> 24 == 127;
        return address.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6().sin6_addr);
    }
    // 0.0.0.0 or ::, to which each host would connect to itself.
    bool is_any_host() const {
        return address.ss_family == AF_INET ? v4().sin_addr.s_addr == 0 : IN6_IS_ADDR_UNSPECIFIED(&v6().sin6_addr) != 0;
    }
    int port() const { return ntohs(address.ss_family == AF_INET6 ? v6().sin6_port : v4().sin_port); }
    bool operator==(const socket_address& other) const {
        return bytes == other.bytes && std::memcmp(&address, &other.address, bytes) == 0;
    }

private:
    const sockaddr_in& v4() const { return reinterpret_cast<const sockaddr_in&>(address); }
    const sockaddr_in6& v6() const { return reinterpret_cast<const sockaddr_in6&>(address); }
    static socket_address asked(int (*ask)(int, sockaddr*, socklen_t*), int fd) {
        socket_address a;
        a.bytes = sizeof a.address;
        return ask(fd, a.get(), &a.bytes) == 0 ? a : socket_address();
    }
};

COLLX_END_NAMESPACE
