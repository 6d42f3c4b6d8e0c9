// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// System calls with every inconvenient result that they may have: they transfer part of the bytes, are interrupted,
// or return EAGAIN. A correct program is not affected.
#pragma once

#include <cerrno>
#include <cstdint>

#include <collx/transport/detail/socket_calls.hpp>

namespace collx_test {

struct bad_day {
    static inline thread_local std::uint64_t state = 0x1234'5678'9abc'def1;
    static unsigned dice(unsigned sides) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<unsigned>(state >> 33) % sides;
    }
    // Calls with the message cut after a random number of bytes, mostly inside a header, at its end or just behind
    // it.
    static ssize_t shortened(const msghdr& m, auto&& call) {
        std::size_t all = 0;
        for (std::size_t i = 0; i < m.msg_iovlen; ++i) all += m.msg_iov[i].iov_len;
        std::size_t most = dice(3) == 0 ? 1 + dice(40) : 1 + dice(100'000);
        if (most > all) most = all;
        iovec parts[128];
        msghdr less = m;
        less.msg_iov = parts;
        less.msg_iovlen = 0;
        for (std::size_t i = 0; i < m.msg_iovlen && most > 0; ++i) {
            iovec& p = parts[less.msg_iovlen++] = m.msg_iov[i];
            if (p.iov_len > most) p.iov_len = most;
            most -= p.iov_len;
        }
        return call(less);
    }
    static bool refuses(int& error) {
        const unsigned d = dice(10);
        error = d == 0 ? EINTR : EAGAIN;
        return d < 3;
    }
    static ssize_t sendmsg(int fd, const msghdr* m, int flags) {
        if (refuses(errno)) return -1;
        return shortened(*m, [&](const msghdr& less) { return ::sendmsg(fd, &less, flags); });
    }
    static ssize_t recvmsg(int fd, msghdr* m, int flags) {
        if (refuses(errno)) return -1;
        return shortened(*m, [&](msghdr less) { return ::recvmsg(fd, &less, flags); });
    }
    static ssize_t vmsplice(int fd, const iovec* part, std::size_t, unsigned flags) {
        if (dice(3) == 0) { // the pipe is empty, so it never returns EAGAIN
            errno = EINTR;
            return -1;
        }
        const iovec less{part->iov_base, 1 + dice(static_cast<unsigned>(part->iov_len))};
        return ::vmsplice(fd, &less, 1, flags);
    }
    static ssize_t splice(int from, off64_t* at, int to, off64_t* there, std::size_t bytes, unsigned flags) {
        if (refuses(errno)) return -1;
        return ::splice(from, at, to, there, 1 + dice(static_cast<unsigned>(bytes)), flags);
    }
    static int accept4(int fd, sockaddr* a, socklen_t* bytes, int flags) {
        if (refuses(errno)) return -1;
        return ::accept4(fd, a, bytes, flags);
    }
    // Also returns without an event now and then, or omits one.
    static int epoll_wait(int fd, epoll_event* events, int most, int ms) {
        if (refuses(errno)) return -1;
        return ::epoll_wait(fd, events, dice(3) == 0 ? 1 : most, ms);
    }
};
inline constexpr collx::socket_calls bad_day_calls{::socket,          ::connect,        bad_day::accept4,
                                                   bad_day::sendmsg,  bad_day::recvmsg, bad_day::epoll_wait,
                                                   bad_day::vmsplice, bad_day::splice};

} // namespace collx_test
