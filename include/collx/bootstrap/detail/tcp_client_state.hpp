// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the server of a tcp_store knows of one connection: the bytes that came and that go, what the client waits for,
// and which rank it says it is.
#pragma once

#include <sys/socket.h>

#include <collx/bootstrap/detail/tcp_frame.hpp>
#include <collx/core/kept_text.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

struct tcp_client_state {
    descriptor socket;
    kept_text in, out;
    std::int64_t limit_ns = INT64_MAX; // when it is dropped, or when a waiting get is answered with timeout
    kept_text awaited, bell;           // key of a waiting get, and the bell that also ends it
    kept_text watched;                 // the bell to ring if this connection is lost
    bool has_left = false;             // it sent bye, or its loss is recorded
    bool is_known = false;             // it sent a valid frame; with a key: proved to have it
    bool is_proving = false;           // `hello` was answered by `said`
    std::int64_t rank = -1, ranks = 0; // as the client says, -1: not yet; ranks: size of the meeting
    tcp_keyed_hello hello{};
    auth_answer said{};

    bool has_hung_up() const { return events_now(socket.get(), POLLRDHUP) != 0; }
    // The head of the frame that is being read.
    tcp_request head() const { return in.as<tcp_request>(); }
    // How many bytes of it have not come, as far as is known.
    std::size_t bytes_missing() const {
        if (is_proving) return sizeof(auth_proof) - in.size();
        if (in.size() < sizeof(tcp_request)) return sizeof(tcp_request) - in.size();
        const tcp_request r = head();
        if (r.word == tcp_word::keyed_hello) return sizeof(tcp_keyed_hello) - in.size();
        return sizeof r + r.key_bytes + r.value_bytes - in.size();
    }
};

} // namespace detail

COLLX_END_NAMESPACE
