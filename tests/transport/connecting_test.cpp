// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What becomes of attempts to connect that fail, over connections of a communicator's own and over shared ones.
#include <collx/net.hpp>
#include <collx/transport/remote_links.hpp>

#include <stdlib.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "connections.hpp"
#include "support/patience.hpp"

using namespace collx;
using collx_test::loopback;
using collx_test::patient;

namespace {

// Acts before each connect(), and fails some calls.
struct bad_network {
    static inline std::function<void()> before_connect;
    static inline int connect_error = 0, read_error = 0, attempts = 0;
    static inline bool binds_to_peer = false; // as the system may choose, if the peer's port is free
    static int connect(int fd, const sockaddr* a, socklen_t bytes) {
        ++attempts;
        if (const auto act = std::exchange(before_connect, nullptr)) act();
        if (binds_to_peer) (void)::bind(fd, a, bytes);
        if (connect_error == 0) return ::connect(fd, a, bytes);
        errno = connect_error;
        return -1;
    }
    static ssize_t recvmsg(int fd, msghdr* m, int flags) {
        if (read_error == 0) return ::recvmsg(fd, m, flags);
        errno = read_error;
        return -1;
    }
    bad_network() { attempts = 0; }
    ~bad_network() {
        before_connect = nullptr;
        connect_error = read_error = 0;
        binds_to_peer = false;
    }
};
constexpr socket_calls bad_calls{::socket,  bad_network::connect, ::accept4,
                                 ::sendmsg, bad_network::recvmsg, ::epoll_wait};

// Two ranks of a job, and the one communicator of them.
struct pair_of_ranks {
    explicit pair_of_ranks(bool is_shared, const std::string& directory = "")
        : id(remote_members::id_of(1, is_shared)) {
        for (int r = 0; r < 2; ++r) {
            at[r] = directory.empty() ? loopback(false) : detail::unix_address(directory, detail::new_unix_name());
            listeners[r] = socket_hub::listen_on(at[r]);
        }
    }
    counted_ptr<socket_hub> hub(int rank, const socket_calls& calls) {
        return make_counted<socket_hub>(std::move(listeners[rank]), "a job", std::vector{at[0], at[1]}, 0, calls);
    }
    remote_members member(int rank) const {
        return {.id = id, .rank = rank, .ranks = {0, 1}, .shape = {.depth = 2, .slot_bytes = page_bytes}, .ports = 1};
    }
    std::uint64_t id;
    socket_address at[2];
    descriptor listeners[2];
};

// One of them, which begins its connections over a network that may be bad.
struct one_rank {
    one_rank(bool is_shared, int rank, const std::string& directory = "")
        : both(is_shared, directory), links(both.hub(rank, bad_calls), both.member(rank)) {
        links.begin(failed);
    }
    ~one_rank() { links.say_bye(); }
    const bad_network network;
    pair_of_ranks both;
    collx::atomic<std::uint64_t> failed{0};
    remote_links links;
};

template <class Is>
bool wait_until(Is&& is) {
    for (const deadline until = deadline::in_ns(patient(30'000'000'000)); !until.passed();)
        if (is()) return true;
    return false;
}

} // namespace

// The lower rank connects, and waits for a welcome when it learns that the other host does not answer any more.
TEST_CASE("a host that is not reached any more is found gone by a rank that waits for its welcome") {
    for (const bool is_shared : {false, true}) {
        CAPTURE(is_shared);
        one_rank me(is_shared, 0);
        bad_network::read_error = ETIMEDOUT;
        (void)me.links.rx(0, 1);
        CHECK(wait_until([&] {
            (void)me.links.move();
            return me.links.find_gone(1, now_ns()) == 1;
        }));
        CHECK(me.failed.load() == 0);
    }
}

// It may have given way to a connection that is on its way.
TEST_CASE("a rank whose connection is closed before it is welcomed leaves its peer some time") {
    for (const bool is_shared : {false, true}) {
        CAPTURE(is_shared);
        one_rank me(is_shared, 0);
        bad_network::read_error = ECONNRESET;
        const std::int64_t begun_ns = now_ns();
        (void)me.links.rx(0, 1);
        REQUIRE(wait_until([&] {
            (void)me.links.move();
            return bad_network::attempts >= 3;
        }));
        CHECK(now_ns() - begun_ns >= 2 * detail::connecting::pause_ns);
        CHECK((me.failed.load() == 0 && me.links.find_gone(1, now_ns()) == -1));
    }
}

// Its connection comes to this rank's listener right before this rank finds that there is no listener of it any more.
TEST_CASE("who has ended and closed its listener is found gone only behind its last messages") {
    char directory[] = "/tmp/collx-connecting-XXXXXX";
    REQUIRE(::mkdtemp(directory) != nullptr);
    for (const bool is_shared : {false, true})
        for (const bool is_file : {false, true}) {
            CAPTURE(is_shared, is_file);
            one_rank me(is_shared, 0, is_file ? directory : "");
            collx::atomic<std::uint64_t> other_failed{0};
            bad_network::before_connect = [&] {
                remote_links other(me.both.hub(1, system_socket_calls), me.both.member(1));
                other.begin(other_failed);
                other.tx(0, 0).commit(0, 9);
                for (int i = 0; i < 10; ++i) (void)other.move();
                other.say_bye();
            };
            receiving_end rx = me.links.rx(0, 1);
            int gone = -1;
            CHECK(wait_until([&] {
                (void)me.links.move();
                if (rx.has_message()) return true;
                if (gone < 0) gone = me.links.find_gone(1, now_ns());
                return gone >= 0;
            }));
            CHECK(gone == -1);
            CHECK(rx.is_expected(0, 9));
            CHECK((me.failed.load() == 0 && other_failed.load() == 0));
        }
    ::rmdir(directory);
}

TEST_CASE("who has no local port left says so, and takes no other rank for dead") {
    for (const bool is_shared : {false, true}) {
        CAPTURE(is_shared);
        one_rank me(is_shared, 1);
        bad_network::connect_error = EADDRNOTAVAIL;
        (void)me.links.tx(0, 0);
        (void)me.links.move();
        CHECK(me.failed.load() == failure(errc::resource, 1, detail::shortage::ports).word);
        CHECK(me.links.find_gone(0, now_ns()) == -1);
    }
}

// A socket that connects to a free port of its own host may be given this port as its own.
TEST_CASE("who has connected to itself has found no rank") {
    for (const bool is_shared : {false, true}) {
        CAPTURE(is_shared);
        one_rank me(is_shared, 1);
        me.both.listeners[0].close();
        bad_network::binds_to_peer = true;
        (void)me.links.tx(0, 0);
        CHECK(wait_until([&] {
            (void)me.links.move();
            return me.failed.load() != 0 || me.links.find_gone(0, now_ns()) == 0;
        }));
        CHECK(me.failed.load() == 0);
    }
}
