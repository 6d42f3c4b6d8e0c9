// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parts of a stream that both of its directions work on. Only for stream.hpp, which says how it is used.
#pragma once

#include <collx/transport/detail/stream_connection.hpp>
#include <collx/transport/detail/stream_lanes.hpp>
#include <collx/transport/detail/stream_ports.hpp>
#include <collx/transport/detail/stream_words.hpp>
#include <collx/transport/detail/verbs_path.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

struct stream_parts {
    stream_parts(const socket_calls& calls, channel_shape shape, int count) : leading(calls), ports(shape, count) {}
    stream_parts(const stream_parts&) = delete; // the directions refer to it

    stream_connection leading;
    stream_ports ports;
    stream_words words;
    sole_ptr<stream_lanes> lanes; // null: the leading connection is the only one
    sole_ptr<verbs_path> verbs;   // null: all goes over sockets
    bool is_settled = false;      // after a failure: users' memory is not used any more
};

} // namespace detail

COLLX_END_NAMESPACE
