// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A shared connection whose other end breaks the rules. What such connections carry is tested by
// job/shared_connections_test.cpp.
#include <collx/net.hpp>

#include <collx/transport/detail/sealed_socket.hpp>
#include <collx/transport/detail/trunk.hpp>

#include <sys/socket.h>

#include <memory>
#include <vector>

#include <catch2/catch.hpp>

using namespace collx;
using namespace collx::detail;

namespace {

// A connection and the socket of its other end.
struct connected {
    explicit connected(sole_ptr<wire_layer> sealed = {}) {
        int ends[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
        peer = descriptor(ends[1]);
        connection->open(descriptor(ends[0]), false, false, std::move(sealed));
    }
    mutual_help help{system_socket_calls};
    trunk_arrivals arrivals;
    counted_ptr<trunk> connection = make_counted<trunk>(system_socket_calls, 1, 0u, help, arrivals);
    descriptor peer;
};

// Records that are not changed.
struct open_sealer final : sealer {
    bool seal(const unsigned char*, std::size_t, unsigned char*, std::size_t, unsigned char*) override { return true; }
    bool open(const unsigned char*, std::size_t, unsigned char*, std::size_t, const unsigned char*) override {
        return true;
    }
};
sole_ptr<wire_layer> in_records() { return make_sole<sealed_socket>(make_sole<open_sealer>(), system_socket_calls); }

} // namespace

// A seal reads ahead of what a message needs. What it holds then is in no socket, so no poll tells of it.
TEST_CASE("what a seal has read ahead is shown by the lines that it is for") {
    const connected here(in_records());
    trunk_end line(here.connection, 77u, 0u), other(here.connection, 78u, 0u);
    struct {
        segment first{.bytes = 40'000, .communicator = 77};
        char message[40'000] = {};
        segment second{.bytes = 104, .communicator = 77};
        char more[104] = {};
        segment third{.bytes = 20'000, .communicator = 78};
        char others[20'000] = {};
    } said;
    iovec part{&said, sizeof said};
    msghdr m{};
    m.msg_iov = &part;
    m.msg_iovlen = 1;
    const auto theirs = in_records();
    REQUIRE(theirs->send(here.peer.get(), m) == sizeof said);
    REQUIRE(theirs->flush(here.peer.get()));
    std::vector<char> message(40'000);
    part = {message.data(), message.size()};
    REQUIRE(line.receive(-1, m) == 40'000);
    CHECK(line.has_unread());
    CHECK(other.has_unread());
    CHECK(line.receive(-1, m) == 104);
    CHECK(other.receive(-1, m) == 20'000);
    CHECK_FALSE(line.has_unread());
}

TEST_CASE("what cannot be sealed is not sent") {
    struct no_sealer final : sealer {
        bool seal(const unsigned char*, std::size_t, unsigned char*, std::size_t, unsigned char*) override {
            return false;
        }
        bool open(const unsigned char*, std::size_t, unsigned char*, std::size_t, const unsigned char*) override {
            return true;
        }
    };
    sealed_socket broken(make_sole<no_sealer>(), system_socket_calls);
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    const descriptor here(ends[0]), there(ends[1]);
    char text[] = "a secret";
    const one_part m(text, sizeof text);
    for (int i = 0; i < 2; ++i) {
        errno = 0;
        CHECK(broken.send(here.get(), m) == -1);
        CHECK(errno == EBADMSG);
        CHECK(broken.flush(here.get()));
        CHECK_FALSE(broken.has_pending());
    }
    CHECK(::recv(there.get(), text, sizeof text, MSG_DONTWAIT) == -1);
}

TEST_CASE("a line that has a whole message shows that more has come with it") {
    const connected here;
    const descriptor& peer = here.peer;
    const counted_ptr<trunk>& connection = here.connection;
    trunk_end line(connection, 77u, 0u), other(connection, 78u, 0u);
    struct {
        segment first{.bytes = 20'000, .communicator = 77};
        char message[20'000] = {};
        segment second{.bytes = 104, .communicator = 77};
        char more[104] = {};
        segment third{.bytes = 56, .communicator = 78};
        char others[56] = {};
    } said;
    REQUIRE(::send(peer.get(), &said, sizeof said, MSG_NOSIGNAL) == sizeof said);
    std::vector<char> message(20'000);
    iovec part{message.data(), message.size()};
    msghdr m{};
    m.msg_iov = &part;
    m.msg_iovlen = 1;
    REQUIRE(line.receive(-1, m) == 20'000);
    CHECK(line.has_unread());
    CHECK(other.has_unread());
    CHECK(line.receive(-1, m) == 104);
    CHECK(other.receive(-1, m) == 56);
    CHECK_FALSE(line.has_unread());
}

TEST_CASE("bytes for a line after its end close the connection, before the line they name can go") {
    const connected here;
    const descriptor& peer = here.peer;
    const counted_ptr<trunk>& connection = here.connection;
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
