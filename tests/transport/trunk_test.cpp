// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A shared connection whose other end breaks the rules. What such connections carry is tested by
// job/shared_connections_test.cpp.
#include <collx/net.hpp>

#include <collx/transport/detail/trunk.hpp>

#include <sys/socket.h>

#include <memory>

#include <catch2/catch.hpp>

using namespace collx;
using namespace collx::detail;

TEST_CASE("bytes for a line after its end close the connection, before the line they name can go") {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    const descriptor peer(ends[1]);
    mutual_help help(system_socket_calls);
    trunk_arrivals arrivals;
    const auto connection = make_counted<trunk>(system_socket_calls, 1, 0u, help, arrivals);
    connection->open(descriptor(ends[0]), nullptr, false, false, {});
    auto line = std::make_unique<trunk_end>(connection, 77u, 0u);
    struct {
        segment end{.what = segment::kind::end, .communicator = 77}, more{.bytes = 1000, .communicator = 77};
        char part[100] = {};
    } said;
    REQUIRE(::send(peer.get(), &said, sizeof said, MSG_NOSIGNAL) == sizeof said);
    connection->pump();
    CHECK(connection->state() == trunk::phase::lost);
    line.reset();
    char rest[500] = {};
    (void)::send(peer.get(), rest, sizeof rest, MSG_NOSIGNAL);
    connection->pump();
    CHECK(connection->state() == trunk::phase::lost);
}
