// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The protocol of a tcp_store and its server: one request, one reply, both with a fixed header. Lengths from the other
// end are compared with fixed limits before a byte is kept. In a job with a key both first prove that they have it
// (core/authentication.hpp). Little-endian; a big-endian peer fails at the first word.
#pragma once

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>

#include <collx/bootstrap/store.hpp>
#include <collx/core/authentication.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/socket_address.hpp>
#include <collx/core/system_limits.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// get: the value is the bell to listen to, if any. claim: sets a key that is not set. watch: the key is the bell to
// ring if this connection is lost before `bye`; bye has no reply. arrive: the key is the bell again; the rank has
// joined and waits as a get of the second bell, which is rung when all ranks of the meeting have sent arrive.
enum class tcp_word : std::uint8_t { hello = 1, set, get, add, keyed_hello, claim, watch, bye, arrive };
enum class tcp_status : std::uint8_t {
    ok = 1,
    timeout,
    not_a_number,
    full,
    answer,
    has_key,
    has_no_key,
    wrong_key,
    odd_rank,
    rung, // the value is the bell's
    ended // the store is closed with its work done
};

// The two differ, so that a peer that echoes requests is not taken for a server.
inline constexpr std::uint32_t tcp_request_magic = 0x3153'5843, tcp_reply_magic = 0x3153'5852;
inline constexpr std::uint16_t tcp_version = 2;

struct tcp_request {
    std::uint32_t magic = tcp_request_magic;
    std::uint16_t version = tcp_version;
    tcp_word word = tcp_word::hello;
    std::uint8_t zero = 0;
    std::uint32_t key_bytes = 0, value_bytes = 0;
    // get, arrive: how long to wait in ns; add: the delta; hellos: the rank, -1: not known; watch: the rank, and the
    // number of ranks in the upper half.
    std::int64_t number = 0;

    // Whether a frame may begin with this header.
    bool is_sound() const {
        if (magic != tcp_request_magic || version != tcp_version || zero != 0) return false;
        const bool has_words = word != tcp_word::hello && word != tcp_word::keyed_hello && word != tcp_word::bye;
        if (!has_words) return key_bytes == 0 && value_bytes == 0;
        if (word < tcp_word::hello || word > tcp_word::arrive) return false;
        return key_bytes > 0 && key_bytes <= most_key_bytes && value_bytes <= most_value_of(word);
    }
    static constexpr std::size_t most_value_of(tcp_word w) {
        if (w == tcp_word::set || w == tcp_word::claim) return most_value_bytes;
        return w == tcp_word::get || w == tcp_word::arrive ? most_key_bytes : 0;
    }
};
struct tcp_reply {
    std::uint32_t magic = tcp_reply_magic;
    std::uint16_t version = tcp_version;
    tcp_status status = tcp_status::ok;
    std::uint8_t zero = 0;
    std::uint32_t value_bytes = 0, zero_too = 0;
    std::int64_t number = 0; // add: the sum; odd_rank: which; claim: 1 if it has set the key

    bool is_sound() const {
        return magic == tcp_reply_magic && version == tcp_version && value_bytes <= most_value_bytes;
    }
};
static_assert(sizeof(tcp_request) == 24 && sizeof(tcp_reply) == 24);

// Answered by a tcp_reply and an auth_answer. The client then sends an auth_proof, which a tcp_reply answers.
struct tcp_keyed_hello {
    tcp_request head{.word = tcp_word::keyed_hello};
    unsigned char nonce[32] = {};
};
static_assert(sizeof(tcp_keyed_hello) == 56);

// Reads a numeric address, [v6] with or without brackets; a scope is kept. Names are not looked up, because they
// resolve differently from host to host. False if it is none.
[[nodiscard]] inline bool read_numeric_address(kept_text host, int port, socket_address& a) {
    if (host.size() > 2 && host[0] == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    auto& v4 = reinterpret_cast<sockaddr_in&>(a.address);
    const bool is_port = port >= 0 && port <= 65535;
    if (is_port && ::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
        v4.sin_port = htons(static_cast<std::uint16_t>(port));
        a.bytes = sizeof v4;
        return true;
    }
    addrinfo hints{}, *found = nullptr;
    hints.ai_family = AF_INET6; // getaddrinfo() reads scopes, which inet_pton() does not
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    const bool is_v6 = is_port && host.find(':') != kept_text::npos &&
                       ::getaddrinfo(host.c_str(), joined({port}).c_str(), &hints, &found) == 0;
    if (!is_v6 || found == nullptr) return false;
    std::memcpy(&a.address, found->ai_addr, found->ai_addrlen);
    a.bytes = found->ai_addrlen;
    ::freeaddrinfo(found);
    return true;
}
// The address of a store.
inline socket_address numeric_address(const kept_text& host, int port) {
    socket_address a;
    if (!read_numeric_address(host, port, a))
        fail(errc::environment, -1, -1, "write the store as an address such as 127.0.0.1 or ::1 and a port",
             "'%.80s', port %d is not a numeric address", host.c_str(), port);
    return a;
}

inline descriptor tcp_socket(const socket_address& a) {
    descriptor s(::socket(a.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!s.is_open())
        fail(errno == EAFNOSUPPORT ? errc::unsupported : errc::resource, -1, -1, remedy_for_descriptor(errno),
             "cannot make a socket: %s", std::strerror(errno));
    return s;
}
inline void send_at_once(int fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

} // namespace detail

COLLX_END_NAMESPACE
