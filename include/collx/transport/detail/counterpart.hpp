// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The other end of a TCP connection, where it is a socket of this system and network namespace: asked of the kernel by
// netlink (sock_diag(7)). Bytes that went to it by reference cannot be received any more once it is gone.
#pragma once

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>

#include <collx/core/descriptor.hpp>
#include <collx/core/socket_address.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class counterpart {
public:
    // fd: a connected socket. Keeps its addresses, so that ask() works after a reset, too.
    [[gnu::cold]] explicit counterpart(int fd) {
        const sockaddr_storage here = socket_address::of(fd).address, there = socket_address::of_peer(fd).address;
        inet_diag_req_v2& q = question_.body;
        q.sdiag_family = static_cast<std::uint8_t>(here.ss_family);
        q.sdiag_protocol = IPPROTO_TCP;
        q.idiag_states = ~0u;
        q.id.idiag_cookie[0] = q.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
        is_known_ = put(there, q.id.idiag_src, q.id.idiag_sport) && put(here, q.id.idiag_dst, q.id.idiag_dport);
    }
    enum class state : unsigned char { unknown, open, gone };
    // gone: no socket here can receive what was sent to it. unknown: it was no TCP, or the kernel does not answer.
    [[gnu::cold]] state ask() {
        if (!is_known_) return state::unknown;
        const descriptor s(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
        question_.head = {.nlmsg_len = sizeof question_,
                          .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                          .nlmsg_flags = NLM_F_REQUEST,
                          .nlmsg_seq = 0,
                          .nlmsg_pid = 0};
        alignas(nlmsghdr) char answer[8192];
        if (!s.is_open() || ::send(s.get(), &question_, sizeof question_, 0) != sizeof question_) return state::unknown;
        const ssize_t got = ::recv(s.get(), answer, sizeof answer, MSG_DONTWAIT); // answered within send()
        if (got < static_cast<ssize_t>(sizeof(nlmsghdr))) return state::unknown;
        nlmsghdr head;
        std::memcpy(&head, answer, sizeof head);
        if (head.nlmsg_type == NLMSG_ERROR && got >= static_cast<ssize_t>(sizeof head + sizeof(nlmsgerr))) {
            nlmsgerr error;
            std::memcpy(&error, answer + sizeof head, sizeof error);
            return error.error == -ENOENT ? state::gone : state::unknown;
        }
        if (head.nlmsg_type != SOCK_DIAG_BY_FAMILY || got < static_cast<ssize_t>(sizeof head + sizeof(inet_diag_msg)))
            return state::unknown;
        inet_diag_msg found;
        std::memcpy(&found, answer + sizeof head, sizeof found);
        // Where it is gone, the kernel may find the listening socket that it came from.
        const bool is_open =
            found.idiag_state != TCP_LISTEN && found.idiag_state != TCP_TIME_WAIT && found.idiag_state != TCP_CLOSE;
        return is_open ? state::open : state::gone;
    }

private:
    static bool put(const sockaddr_storage& from, std::uint32_t (&address)[4], std::uint16_t& port) {
        if (from.ss_family == AF_INET) {
            const auto& a = reinterpret_cast<const sockaddr_in&>(from);
            address[0] = a.sin_addr.s_addr;
            port = a.sin_port;
        } else if (from.ss_family == AF_INET6) {
            const auto& a = reinterpret_cast<const sockaddr_in6&>(from);
            std::memcpy(address, &a.sin6_addr, sizeof address);
            port = a.sin6_port;
        }
        return from.ss_family == AF_INET || from.ss_family == AF_INET6;
    }

    struct {
        nlmsghdr head;
        inet_diag_req_v2 body;
    } question_{};
    bool is_known_ = false;
};

} // namespace detail

COLLX_END_NAMESPACE
