// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The leading connection of a stream: its socket or its part of a shared connection, its phase, and what ended it. Only
// for stream.hpp, which says how it is used.
#pragma once

#include <cerrno>

#include <collx/core/descriptor.hpp>
#include <collx/core/system_limits.hpp>
#include <collx/transport/detail/sealed_socket.hpp>
#include <collx/transport/detail/socket_calls.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

enum class stream_phase : unsigned char {
    closed,  // no connection
    waiting, // on a lower rank: the peer has not sent its welcome yet
    open,
    left, // the peer said goodbye, and all that it sent has arrived
    lost  // ended without a goodbye, or by nonsense (see stream_connection::is_nonsense)
};

class stream_connection {
public:
    explicit stream_connection(const socket_calls& calls) : wire(calls) {}

    void open(descriptor to, bool wait_for_welcome, sole_ptr<wire_layer> sealed) {
        wire.begin(static_cast<sole_ptr<wire_layer>&&>(sealed));
        socket = static_cast<descriptor&&>(to);
        phase = wait_for_welcome ? stream_phase::waiting : stream_phase::open;
        error = 0;
        cannot_send = false;
    }
    [[gnu::cold]] void open(sole_ptr<wire_layer> part) {
        wire.begin(static_cast<sole_ptr<wire_layer>&&>(part));
        phase = stream_phase::open;
        is_shared = true;
    }
    bool is_live() const { return phase == stream_phase::open || phase == stream_phase::waiting; }
    int fd() const { return socket.get(); }

    // more: bytes that follow at once are to be sent with these.
    ssize_t send(const msghdr& m, bool more) { return wire.send(fd(), m, more); }
    ssize_t receive(msghdr& m) { return wire.receive(fd(), m); }
    // Sends sealed bytes. False: not all of them were sent.
    bool flush() { return wire.flush(fd()) || note_send(); }
    bool note_send() { // the other end may have said why before it closed: receiving decides
        if (!would_block(errno)) {
            cannot_send = true;
            error = errno;
        }
        return false;
    }
    // Another protection, or a broken seal. Always true.
    bool note_insecure() {
        is_nonsense = is_insecure = true;
        return true;
    }
    // A message has come, and there is no memory for slots (errno says why). Nothing more is read. Always false.
    bool note_no_memory() {
        no_memory = shortage_in(remedy_for_mapping(errno));
        lacks_memory = true;
        return false;
    }
    // A read that gave nothing or little does not mean that nothing is there: the system may be short of memory.
    bool may_have_more() { return wire.has_unread() || stream_wire::is_readable(fd()); }

    stream_wire wire;
    descriptor socket; // closed where the connection is shared
    stream_phase phase = stream_phase::closed;
    bool is_shared = false;
    bool cannot_send = false; // receiving shows why
    bool is_nonsense = false, is_insecure = false;
    bool lacks_memory = false; // this end
    shortage no_memory = shortage::unknown;
    int error = 0; // of the system, 0: none
};

} // namespace detail

COLLX_END_NAMESPACE
