// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Connections that outlive their communicators until they have said goodbye and the system has delivered everything.
// Closing a socket with unread answers would discard what the other end has not read.
#pragma once

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include <collx/core/descriptor.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/pointers.hpp>
#include <collx/transport/detail/socket_calls.hpp>
#include <collx/transport/stream.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

class lingering_streams {
public:
    [[gnu::cold]] void add(sole_ptr<stream> s) { all_.push_back({std::move(s), {}}); }
    // A connection that has said everything.
    [[gnu::cold]] void add(descriptor s) {
        (void)::shutdown(s.get(), SHUT_WR);
        all_.emplace_back().sockets.push_back(std::move(s));
    }
    bool empty() const { return all_.empty(); }
    // Closes connections whose bytes have been delivered. Answers that still come are read and discarded.
    void drain() {
        erase_if(all_, [](leaver& l) { return has_gone(l); });
    }
    // In a child of fork().
    void forget() {
        for (leaver& l : all_)
            if (l.connection) l.connection->forget();
        all_.clear();
    }

private:
    struct leaver {
        sole_ptr<stream> connection;       // until it has said goodbye
        growing_array<descriptor> sockets; // the leading lane's first
    };
    [[gnu::cold]] static bool has_gone(leaver& l) {
        if (l.connection) {
            (void)l.connection->move();
            if (!l.connection->is_live()) return true;
            if (!l.connection->has_said_bye()) return false;
            if (l.connection->is_shared()) return true; // the shared connection stays
            l.sockets.push_back(l.connection->release_socket());
            for (int k = 1; k < l.connection->lanes(); ++k)
                if (descriptor d = l.connection->release_lane(k); d.is_open()) l.sockets.push_back(std::move(d));
            l.connection = nullptr;
            (void)::shutdown(l.sockets[0].get(), SHUT_WR);
        }
        // All together, so that the end of a lane that does not lead is not seen before the goodbye.
        for (const descriptor& d : l.sockets)
            if (!is_delivered(d.get())) return false;
        return true;
    }
    [[gnu::cold]] static bool is_delivered(int fd) {
        char nothing[4096];
        ssize_t got;
        while ((got = ::recv(fd, nothing, sizeof nothing, MSG_DONTWAIT)) > 0) {
        }
        if (got == 0 || !would_block(errno)) return true;
        int held = 0; // bytes that the other end's system has not acknowledged
        return ::ioctl(fd, SIOCOUTQ, &held) != 0 || held == 0;
    }

    growing_array<leaver> all_;
};

} // namespace detail

COLLX_END_NAMESPACE
