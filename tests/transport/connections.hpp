// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pairs of connected sockets, as streams use them.
#pragma once

#include <fcntl.h>

#include <cstdlib>
#include <utility>

#include <collx/transport/socket_hub.hpp>

namespace collx_test {

inline collx::socket_address loopback(bool v6) {
    collx::socket_address a;
    if (v6) {
        auto& in = reinterpret_cast<sockaddr_in6&>(a.address);
        in.sin6_family = AF_INET6;
        in.sin6_addr = in6addr_loopback;
        a.bytes = sizeof in;
    } else {
        auto& in = reinterpret_cast<sockaddr_in&>(a.address);
        in.sin_family = AF_INET;
        in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        a.bytes = sizeof in;
    }
    return a;
}
// Two connected, non-blocking sockets.
inline std::pair<collx::descriptor, collx::descriptor> connection(int family) {
    if (family == AF_UNIX) {
        int fds[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0) std::abort();
        return {collx::descriptor(fds[0]), collx::descriptor(fds[1])};
    }
    collx::socket_address a = loopback(family == AF_INET6);
    const collx::descriptor listener = collx::socket_hub::listen_on(a);
    collx::descriptor one(::socket(family, SOCK_STREAM, 0));
    if (::connect(one.get(), a.get(), a.bytes) != 0) std::abort();
    collx::descriptor other(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK));
    ::fcntl(one.get(), F_SETFL, O_NONBLOCK); // splice() has no MSG_DONTWAIT
    collx::detail::tune_socket(one.get(), true);
    collx::detail::tune_socket(other.get(), true);
    return {std::move(one), std::move(other)};
}

} // namespace collx_test
