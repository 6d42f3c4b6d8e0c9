// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an address says of itself, and what the system says of both ends of a socket.
#include <collx/core/descriptor.hpp>
#include <collx/core/socket_address.hpp>

#include <arpa/inet.h>
#include <sys/un.h>

#include <catch2/catch.hpp>

using collx::descriptor;
using collx::socket_address;

namespace {

socket_address numeric(int family, const char* text, int port) {
    socket_address a;
    a.address.ss_family = static_cast<sa_family_t>(family);
    auto& in = reinterpret_cast<sockaddr_in&>(a.address);
    auto& in6 = reinterpret_cast<sockaddr_in6&>(a.address);
    void* const host = family == AF_INET ? static_cast<void*>(&in.sin_addr) : &in6.sin6_addr;
    (family == AF_INET ? in.sin_port : in6.sin6_port) = htons(static_cast<std::uint16_t>(port));
    REQUIRE(::inet_pton(family, text, host) == 1);
    a.bytes = family == AF_INET ? sizeof in : sizeof in6;
    return a;
}
socket_address v4(const char* text, int port) { return numeric(AF_INET, text, port); }
socket_address v6(const char* text, int port) { return numeric(AF_INET6, text, port); }

} // namespace

TEST_CASE("addresses know their port, and which of them other hosts do not reach") {
    CHECK((v4("127.1.2.3", 80).is_loopback() && v6("::1", 80).is_loopback()));
    CHECK(!(v4("128.0.0.1", 80).is_loopback() || v6("::2", 80).is_loopback() || socket_address().is_loopback()));
    CHECK((v4("0.0.0.0", 80).is_any_host() && v6("::", 80).is_any_host()));
    CHECK(!(v4("0.0.0.1", 80).is_any_host() || v6("::1", 80).is_any_host()));
    CHECK((v4("1.2.3.4", 4711).port() == 4711 && v6("fe80::1", 4712).port() == 4712));
    CHECK(!(v4("1.2.3.4", 80).is_unix() || v6("fe80::1", 80).is_unix()));
    CHECK(v4("1.2.3.4", 80) == v4("1.2.3.4", 80));
    CHECK(!(v4("1.2.3.4", 80) == v4("1.2.3.4", 81)));
    CHECK(!(v4("1.2.3.4", 80) == v4("1.2.3.5", 80)));
    CHECK(!(v4("1.2.3.4", 80) == socket_address()));
}

TEST_CASE("the system knows the addresses of both ends of a socket") {
    socket_address at = v4("127.0.0.1", 0);
    const descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE((::bind(listener.get(), at.get(), at.bytes) == 0 && ::listen(listener.get(), 1) == 0));
    at = socket_address::of(listener.get());
    CHECK((at.port() != 0 && at.is_loopback() && !at.is_unix()));
    CHECK(socket_address::of_peer(listener.get()).bytes == 0);
    const descriptor s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(s.get(), at.get(), at.bytes) == 0);
    CHECK(socket_address::of_peer(s.get()) == at);
    CHECK(!(socket_address::of(s.get()) == at));
    CHECK(socket_address::of(-1).bytes == 0);
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    const descriptor here(ends[0]), there(ends[1]);
    CHECK(socket_address::of(here.get()).is_unix());
}
