// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Asks many sockets at once which of them have something to read: one epoll_wait() instead of a call for each.
#pragma once

#include <sys/epoll.h>

#include <cstdint>

#include <collx/core/descriptor.hpp>
#include <collx/transport/detail/socket_calls.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class poll_set {
public:
    bool is_open() const { return poll_.is_open(); }
    // Stays closed where there is no descriptor for it.
    void open() { poll_ = descriptor(::epoll_create1(EPOLL_CLOEXEC)); }
    void close() { poll_.close(); }
    void add(int fd, std::uint64_t name) {
        epoll_event e{};
        e.events = EPOLLIN;
        e.data.u64 = name;
        if (is_open()) (void)::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, fd, &e);
    }
    void remove(int fd) {
        if (is_open()) (void)::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    }
    // Calls visit(name) for each socket that can be read, without waiting. True if any visit() returned true.
    template <class Visit>
    bool visit_readable(const socket_calls& calls, Visit&& visit) const {
        epoll_event ready[64];
        const int count = calls.epoll_wait(poll_.get(), ready, 64, 0);
        bool any = false;
        for (int i = 0; i < count; ++i) any = visit(ready[i].data.u64) || any;
        return any;
    }

private:
    descriptor poll_;
};

} // namespace detail

COLLX_END_NAMESPACE
