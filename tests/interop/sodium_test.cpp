// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The libsodium component: it computes HMAC-SHA256 and installs itself. Measures the cost of a connection's proofs,
// alone and with all system calls.
//
// collx-test: needs=sodium
#include <collx/interop/sodium.hpp>

#include <collx/core/clock.hpp>
#include <collx/transport/socket_hub.hpp>

#include <cstdio>
#include <string>

#include <time.h>

#include <catch2/catch.hpp>

using namespace collx;

namespace {

std::string hex(const unsigned char* bytes, std::size_t n) {
    std::string text;
    for (std::size_t i = 0; i < n; ++i) {
        text += "0123456789abcdef"[bytes[i] >> 4];
        text += "0123456789abcdef"[bytes[i] & 15];
    }
    return text;
}
std::int64_t thread_ns() {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

} // namespace

TEST_CASE("the component computes HMAC-SHA256") {
    REQUIRE(detail::macs == &detail::macs_of_sodium);
    // RFC 4231, cases 1 and 2: keys shorter than a block are padded with zeros, so they fit ours.
    unsigned char key[32] = {}, tag[32];
    std::memset(key, 0x0b, 20);
    detail::macs->sign(key, "Hi There", 8, tag);
    CHECK(hex(tag, 32) == "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    std::memset(key, 0, sizeof key);
    std::memcpy(key, "Jefe", 4);
    detail::macs->sign(key, "what do ya want for nothing?", 28, tag);
    CHECK(hex(tag, 32) == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    unsigned char other[32];
    std::memcpy(other, tag, 32);
    CHECK(detail::macs->is_equal(tag, other, 32));
    other[31] ^= 1;
    CHECK_FALSE(detail::macs->is_equal(tag, other, 32));
}

TEST_CASE("two ends with one key believe each other, with two keys neither the other") {
    struct {
        std::uint64_t who = 7;
        unsigned char nonce[32] = {1, 2, 3};
    } hello;
    const job_key mine(std::string(64, 'a')), same(std::string(64, 'a')), other(std::string(64, 'b'));
    const auto answer = mine.answer(hello);
    CHECK(same.is_right(hello, answer));
    CHECK_FALSE(other.is_right(hello, answer));
    CHECK(mine.is_right(hello, answer, same.prove(hello, answer)));
    CHECK_FALSE(mine.is_right(hello, answer, other.prove(hello, answer)));
    CHECK(mine.fingerprint("job") == same.fingerprint("job"));
    CHECK(mine.fingerprint("job") != other.fingerprint("job"));
    CHECK(std::memcmp(mine.session(hello, answer).bytes, same.session(hello, answer).bytes, 32) == 0);

    constexpr int times = 2000;
    const std::int64_t begin = thread_ns();
    int right = 0;
    for (int i = 0; i < times; ++i) {
        const auto a = mine.answer(hello);
        right += same.is_right(hello, a) && mine.is_right(hello, a, same.prove(hello, a));
    }
    const double us = static_cast<double>(thread_ns() - begin) / 1e3 / times;
    CHECK(right == times);
    std::printf("proofs of both ends of a connection: %.1f us of CPU\n", us);
}

TEST_CASE("connections with proofs, from socket to socket") {
    constexpr char token[] = "0123456789abcdef0123456789abcdef";
    const job_protection by{protection::auth_only, job_key(std::string(64, 'a'))};
    socket_address at;
    auto& in = reinterpret_cast<sockaddr_in&>(at.address);
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.bytes = sizeof in;
    descriptor listener = socket_hub::listen_on(at);
    socket_hub hub(std::move(listener), token, {at}, 0, system_socket_calls, by);
    detail::stream_hello h;
    h.communicator = 7;
    h.protected_by = static_cast<std::uint64_t>(by.level);
    h.set_token(token, 32);
    constexpr int times = 300;
    int came = 0, done = 0;
    const std::int64_t begin = thread_ns();
    for (int i = 0; i < times; ++i) {
        detail::greeting g(hub.connect_to(0), h, by.key, system_socket_calls);
        detail::greeted how = detail::greeted::not_yet;
        for (int turn = 0; turn < 1000 && how == detail::greeted::not_yet; ++turn) {
            how = g.move();
            hub.look(h.communicator, [&](const auto&, descriptor, const auto&) { ++came; });
        }
        done += how == detail::greeted::done;
    }
    const double us = static_cast<double>(thread_ns() - begin) / 1e3 / times;
    CHECK(done == times);
    CHECK(came == times);
    std::printf("both ends of a connection, with all system calls: %.0f us of CPU\n", us);
}
