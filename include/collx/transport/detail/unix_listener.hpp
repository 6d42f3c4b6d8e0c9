// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Addresses of ranks that reach each other over unix sockets: names in the abstract namespace, which end with their
// process, or files of a directory that several containers share. Names are random, of one length, and short enough for
// the table of addresses. Security does not depend on secret names: each end asks the kernel whose the other end is.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include <collx/core/kept_text.hpp>
#include <collx/core/random_bytes.hpp>
#include <collx/transport/detail/socket_calls.hpp>
#include <collx/transport/detail/unix_socket.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

inline constexpr std::size_t unix_name_bytes = 25;

// Makes a name that is not in use.
[[gnu::cold]] inline kept_text new_unix_name() {
    unsigned char random[10];
    draw_random(random, sizeof random);
    return "collx" + hex_text(random, sizeof random);
}
// directory: empty for the abstract namespace. Errors: environment for a path that is too long.
[[gnu::cold]] inline socket_address unix_address(const kept_text& directory, name_view name) {
    socket_address a;
    auto& u = reinterpret_cast<sockaddr_un&>(a.address);
    u.sun_family = AF_UNIX;
    const kept_text path = directory.empty() ? kept_text(1, '\0').append(name) : directory + "/" + kept_text(name);
    if (path.size() >= sizeof u.sun_path)
        fail(errc::environment, -1, -1, "name a directory with a shorter path, or say COLLX_ADDRESS=unix",
             "COLLX_ADDRESS: unix sockets in %.120s have names longer than %d bytes", directory.c_str(),
             static_cast<int>(sizeof u.sun_path) - 1);
    std::memcpy(u.sun_path, path.data(), path.size());
    a.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + (directory.empty() ? 0 : 1));
    return a;
}
// The name alone, as it is published. Each rank puts its own directory in front, whatever the path on other ranks.
inline name_view unix_name_of(const socket_address& a) {
    const auto& u = reinterpret_cast<const sockaddr_un&>(a.address);
    const std::size_t bytes = a.bytes - offsetof(sockaddr_un, sun_path) - (u.sun_path[0] != '\0' ? 1 : 0);
    return bytes < unix_name_bytes ? name_view() : name_view(u.sun_path + bytes - unix_name_bytes, unix_name_bytes);
}
// Checks a name from outside, which is about to become a file's name.
inline bool is_unix_name(name_view name) {
    for (const char c : name)
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))) return false;
    return name.size() == unix_name_bytes;
}

// Whether the other end of a unix socket is a process of this user. True for other sockets: keys are for those.
inline bool is_of_this_user(int fd, const socket_address& a) { return !a.is_unix() || peer_of(fd).uid == ::geteuid(); }

// Removes the file of a listening socket, if it has one.
[[gnu::cold]] inline void remove_unix_file(int listener) {
    const socket_address a = socket_address::of(listener);
    const auto& u = reinterpret_cast<const sockaddr_un&>(a.address);
    if (a.is_unix() && a.bytes > offsetof(sockaddr_un, sun_path) && u.sun_path[0] == '/') (void)::unlink(u.sun_path);
}

} // namespace detail

COLLX_END_NAMESPACE
