// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Packets between processes of one user on one host: abstract unix sockets (no file, closed with their process), whole
// packets (no half frames), the kernel's report of who is at the other end, one descriptor along with a packet. Knows
// nothing of ranks.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdio>
#include <cstring>

#include <collx/core/descriptor.hpp>
#include <collx/transport/detail/one_part.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

struct socket_name {
    sockaddr_un address{};
    socklen_t bytes = 0;
};

// An abstract name, from user and job. It is not secret, and nothing depends on it being secret.
inline socket_name name_of_job(const char* job) {
    socket_name n;
    n.address.sun_family = AF_UNIX;
    const std::size_t length = std::strlen(job);
    char text[sizeof n.address.sun_path - 1];
    const int used =
        std::snprintf(text, sizeof text, "collx-1-%lu-%016llx%016llx", static_cast<unsigned long>(::geteuid()),
                      static_cast<unsigned long long>(hash_bytes(job, length, 1)),
                      static_cast<unsigned long long>(hash_bytes(job, length, 2)));
    std::memcpy(n.address.sun_path + 1, text, static_cast<std::size_t>(used));
    n.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(used));
    return n;
}

inline descriptor packet_socket() {
    return descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// The process and user at the other end; for a connected client, those of the listener.
inline ucred peer_of(int fd) {
    ucred who{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
    socklen_t bytes = sizeof who;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0) who.uid = static_cast<uid_t>(-1);
    return who;
}

// Sends one packet, with a descriptor unless it is -1. False when it cannot be sent now: the other end is gone or does
// not read.
[[gnu::cold]] inline bool send_packet(int to, const void* data, std::size_t bytes, int passed_fd = -1) {
    one_part m(data, bytes);
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (passed_fd >= 0) {
        m.msg_control = control;
        m.msg_controllen = sizeof control;
        cmsghdr* c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(c), &passed_fd, sizeof(int));
    }
    return without_eintr([&] { return ::sendmsg(to, &m, MSG_NOSIGNAL | MSG_DONTWAIT); }) == static_cast<ssize_t>(bytes);
}

enum class packet {
    none,
    whole,
    no_room, // whole, but this process may open no more files: the descriptor that came with it is lost
    wrong,
    closed
};

// Receives one packet of exactly `bytes`. A descriptor that comes with it goes to `passed`; more than one, or one that
// was not asked for, is closed and makes the packet wrong.
[[gnu::cold]] inline packet receive_packet(int from, void* data, std::size_t bytes, descriptor* passed = nullptr) {
    constexpr std::size_t most_fds = 8;
    one_part m(data, bytes);
    alignas(cmsghdr) char control[CMSG_SPACE(most_fds * sizeof(int))];
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    const auto receive = [&] {
        return without_eintr([&] { return ::recvmsg(from, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC); });
    };
    ssize_t got = receive();
    // The system reports once that the other end closed without reading everything. What it sent before is still there.
    if (got < 0 && errno == ECONNRESET) got = receive();
    if (got < 0) return errno == EAGAIN ? packet::none : packet::closed;
    std::size_t fds = 0;
    for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        for (std::size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int), ++fds) {
            int fd;
            std::memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
            descriptor received(fd);
            if (passed != nullptr && fds == 0) *passed = static_cast<descriptor&&>(received);
        }
    }
    if (got == 0 && fds == 0) return packet::closed;
    if (got != static_cast<ssize_t>(bytes) || (m.msg_flags & MSG_TRUNC) != 0) return packet::wrong;
    if ((m.msg_flags & MSG_CTRUNC) != 0) return fds == 0 && passed != nullptr ? packet::no_room : packet::wrong;
    return fds <= (passed != nullptr ? 1u : 0u) ? packet::whole : packet::wrong;
}

} // namespace detail

COLLX_END_NAMESPACE
