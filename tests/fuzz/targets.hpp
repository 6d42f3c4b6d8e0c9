// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All parts of collx that read data written by another process, as functions of bytes: for libFuzzer (fuzz.cpp) and
// for the replay of its findings (replay_test.cpp). Each aborts if invalid data is accepted or valid data is refused;
// the sanitizers detect the rest.
#pragma once

#include <collx/bootstrap/host.hpp>
#include <collx/bootstrap/meet.hpp>
#include <collx/bootstrap/unique_id.hpp>
#include <collx/transport/socket_hub.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/aggregated_target.hpp"
#include "fuzz/calls_target.hpp"
#include "fuzz/input.hpp"
#include "fuzz/topology_target.hpp"
#if !defined(COLLX_FUZZ_WITHOUT_WINDOWS)
#include "fuzz/windows_target.hpp"
#endif
#include "support/toy_macs.hpp"

namespace collx_fuzz {

// A simulated socket: received data comes from a buffer, a few bytes at a time; sent data is stored.
struct pretended {
    static inline std::string in, out;
    static inline std::size_t taken = 0, step = 1;
    static void begin(std::string bytes, std::size_t at_once) {
        in = std::move(bytes);
        out.clear();
        taken = 0;
        step = at_once;
    }
    static ssize_t recvmsg(int, msghdr* m, int) {
        if (taken == in.size()) {
            errno = EAGAIN;
            return -1;
        }
        std::size_t got = 0;
        for (std::size_t i = 0; i < m->msg_iovlen && got < step && taken < in.size(); ++i) {
            std::size_t n = std::min({m->msg_iov[i].iov_len, in.size() - taken, step - got});
            std::memcpy(m->msg_iov[i].iov_base, in.data() + taken, n);
            taken += n;
            got += n;
        }
        return static_cast<ssize_t>(got);
    }
    static ssize_t sendmsg(int, const msghdr* m, int) {
        ssize_t sent = 0;
        for (std::size_t i = 0; i < m->msg_iovlen; ++i) {
            out.append(static_cast<const char*>(m->msg_iov[i].iov_base), m->msg_iov[i].iov_len);
            sent += static_cast<ssize_t>(m->msg_iov[i].iov_len);
        }
        return sent;
    }
};
inline constexpr socket_calls pretended_calls{::socket,           ::connect,          ::accept4,
                                              pretended::sendmsg, pretended::recvmsg, ::epoll_wait};

// ---------------------------------------------------------------------------------------------- handshake
// Both sides of a handshake, with messages changed as the input says: only unchanged ones get in.
inline void handshake(input in) {
    const collx_test::with_toy_macs toy;
    constexpr char token[] = "0123456789abcdef0123456789abcdef";
    const unsigned how = in.take();
    const std::size_t step = 1 + in.take();
    const job_protection by = (how & 1) != 0 ? collx_test::toy_protection('k') : job_protection();
    detail::stream_hello h;
    h.set_token(token, 32);
    h.protected_by = static_cast<std::uint64_t>(by.level);
    h.communicator = 42;
    bool is_changed = false;
    const auto change = [&](std::string& words) {
        for (char& c : words) {
            const auto mask = static_cast<char>(in.take());
            is_changed = is_changed || mask != 0;
            c = static_cast<char>(c ^ mask);
        }
        return words;
    };
    const auto bytes_of = [](const auto& x) { return std::string(reinterpret_cast<const char*>(&x), sizeof x); };
    if ((how & 2) == 0 || !by.key) {
        std::string words = bytes_of(h);
        pretended::begin(change(words), step);
        detail::guest g(descriptor(), 0, pretended_calls);
        char asked[detail::stream_hello::token_bytes];
        std::memcpy(asked, token, 32);
        detail::greeted r = detail::greeted::not_yet;
        for (int i = 0; i < 300 && r == detail::greeted::not_yet && pretended::taken < pretended::in.size(); ++i)
            r = g.move(asked, by.level, by.key);
        if (!by.key) { // without a key only magic, side, level and token are checked
            if (!is_changed) require(r == detail::greeted::done, "a sound hello was refused");
            if (g.hello.protected_by != 0 || std::memcmp(g.hello.token, token, 32) != 0)
                require(r != detail::greeted::done, "a hello of another job got in");
            return;
        }
        require(r != detail::greeted::done, "in without a proof");
        if (pretended::out.size() < sizeof(detail::listener_answer)) return; // it has sent the reason
        detail::listener_answer a;
        std::memcpy(static_cast<void*>(&a), pretended::out.data(), sizeof a);
        is_changed = false;
        words = bytes_of(by.key.prove(g.hello, a.words));
        pretended::begin(change(words), step);
        for (int i = 0; i < 300 && r == detail::greeted::not_yet; ++i) r = g.move(asked, by.level, by.key);
        require((r == detail::greeted::done) == !is_changed, "a proof was judged wrongly");
        return;
    }
    pretended::begin({}, step);
    detail::greeting g(descriptor(), h, by.key, pretended_calls);
    require(g.move() == detail::greeted::not_yet, "connected without a peer");
    std::memcpy(static_cast<void*>(&h), pretended::out.data(), sizeof h);
    detail::listener_answer a;
    a.words = by.key.answer(h);
    std::string words = bytes_of(a) + bytes_of(detail::stream_frame{.what = detail::stream_frame::kind::accepted});
    change(words);
    if (is_changed) words += in.rest();
    pretended::begin(words, step);
    detail::greeted r = detail::greeted::not_yet;
    for (int i = 0; i < 600 && r == detail::greeted::not_yet; ++i) r = g.move();
    if (!is_changed) require(r == detail::greeted::done, "a right answer was refused");
    if (std::memcmp(words.data() + 16, bytes_of(a.words).data(), sizeof a.words) != 0)
        require(r != detail::greeted::done, "a wrong answer was believed");
}

// ---------------------------------------------------------------------------------------------- frames
inline void frames(input in) {
    constexpr channel_shape shape{.depth = 4, .slot_bytes = 1024};
    const unsigned how = in.take();
    pretended::begin({}, 1 + in.take() * 16);
    stream s(pretended_calls, shape, 5);
    s.open(descriptor(), (how & 1) != 0);
    std::vector<receiving_end> ends;
    for (int p = 0; p < 5; ++p) ends.push_back(s.rx(p));
    if ((how & 2) != 0) {
        auto tx = s.tx(2);
        if (tx.try_acquire(100) != nullptr) tx.commit(100);
    }
    pretended::in = in.rest();
    const bool is_taken = (how & 4) == 0;
    for (std::size_t i = 0; i < 2 + pretended::in.size() && s.is_live(); ++i) {
        (void)s.move();
        for (auto& end : ends)
            for (int n = 0; is_taken && end.has_message(); ++n) {
                require(n < shape.depth, "more messages than slots");
                end.release(0);
            }
        if (pretended::taken == pretended::in.size()) break;
    }
    if (s.is_nonsense()) require(!s.is_live(), "a stream that heard nonsense lives on");
}

// ---------------------------------------------------------------------------------------------- records
// Seals made of a hash: this target tests lengths and positions.
struct toy_sealer final : detail::sealer {
    std::uint64_t out = 0, in = 0;
    static void sign(std::uint64_t number, const unsigned char* head, std::size_t head_bytes, const unsigned char* text,
                     std::size_t bytes, unsigned char* tag) {
        const std::uint64_t h = detail::hash_bytes(reinterpret_cast<const char*>(head), head_bytes, number);
        const std::uint64_t t = detail::hash_bytes(reinterpret_cast<const char*>(text), bytes, h);
        std::memcpy(tag, &h, 8);
        std::memcpy(tag + 8, &t, 8);
    }
    bool seal(const unsigned char* head, std::size_t head_bytes, unsigned char* text, std::size_t bytes,
              unsigned char* tag) override {
        sign(out++, head, head_bytes, text, bytes, tag);
        return true;
    }
    bool open(const unsigned char* head, std::size_t head_bytes, unsigned char* text, std::size_t bytes,
              const unsigned char* tag) override {
        unsigned char expected[tag_bytes];
        sign(in++, head, head_bytes, text, bytes, expected);
        return std::memcmp(expected, tag, sizeof expected) == 0;
    }
};

// Texts, whose lengths the input gives, are sent in records, and their bytes are changed as the input says. The
// received text must be a prefix of the sent one.
inline void records(input in) {
    detail::sealed_socket from(make_sole<toy_sealer>(), pretended_calls), to(make_sole<toy_sealer>(), pretended_calls);
    pretended::begin({}, 1 + in.take() * 700);
    std::string text, wire;
    for (unsigned n = 1 + in.take() % 4; n > 0; --n) {
        std::string part(in.take() * 256 + in.take() + 1, static_cast<char>(n));
        iovec v{part.data(), part.size()};
        msghdr m{};
        m.msg_iov = &v;
        m.msg_iovlen = 1;
        pretended::out.clear();
        require(from.send(0, m) == static_cast<ssize_t>(part.size()), "a text was not taken");
        text += part;
        wire += pretended::out;
    }
    bool is_changed = false;
    while (in.left >= 3) {
        const std::size_t at = (in.take() * 256 + in.take()) % wire.size();
        const auto mask = static_cast<char>(in.take());
        wire[at] = static_cast<char>(wire[at] ^ mask);
        is_changed = is_changed || mask != 0;
    }
    pretended::in = wire;
    std::string heard, room(1000, '\0');
    for (;;) {
        iovec v{room.data(), room.size()};
        msghdr m{};
        m.msg_iov = &v;
        m.msg_iovlen = 1;
        const ssize_t n = to.receive(0, m);
        if (n <= 0) break;
        heard.append(room, 0, static_cast<std::size_t>(n));
    }
    require(text.compare(0, heard.size(), heard) == 0, "a record came in that was not sent");
    require(is_changed || heard == text, "a record that was sent did not come in");
}

// ---------------------------------------------------------------------------------------------- store
// A server without a key and one with a key; the input is the data of one connection.
inline void store(input in) {
    static const collx_test::with_toy_macs toy;
    static tcp_server open, keyed("127.0.0.1", 0, job_key(std::string(64, 'k')));
    const bool is_keyed = (in.take() & 1) != 0;
    auto a = detail::numeric_address("127.0.0.1", (is_keyed ? keyed : open).port());
    const descriptor s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const linger none{1, 0}; // so that thousands of connections per second leave no ports in use
    ::setsockopt(s.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
    const timeval limit{30, 0}; // much longer than a busy machine takes
    ::setsockopt(s.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (::connect(s.get(), a.get(), a.bytes) != 0) return;
    const std::string words = in.rest();
    (void)!::send(s.get(), words.data(), words.size(), MSG_NOSIGNAL);
    ::shutdown(s.get(), SHUT_WR);
    std::string heard;
    char part[4096];
    ssize_t n;
    // libFuzzer's timer interrupts, and a receive with a time limit is not restarted automatically.
    while ((n = detail::without_eintr([&] { return ::recv(s.get(), part, sizeof part, 0); })) > 0)
        heard.append(part, static_cast<std::size_t>(n));
    require(n == 0 || errno == ECONNRESET, "the server keeps a connection that has ended");
    for (std::size_t at = 0; is_keyed && at + sizeof(detail::tcp_reply) <= heard.size();
         at += sizeof(detail::tcp_reply) + sizeof(detail::auth_answer)) {
        detail::tcp_reply r;
        std::memcpy(&r, heard.data() + at, sizeof r);
        require(r.status != detail::tcp_status::ok, "a store with a key served a client without");
    }
}

// ---------------------------------------------------------------------------------------------- texts
inline void pmi(input in) {
    const std::string text = in.rest();
    collx::kept_text word, back;
    bool is_there = false;
    for (const char* key : {"cmd", "rc", "value", "kvsname", ""}) (void)detail::pmi_value(text, key, &is_there);
    for (const std::int64_t most : {std::int64_t{1}, std::int64_t{1} << 20, INT64_MAX / 16}) {
        const std::int64_t n = detail::pmi_number(text, most);
        require(n >= -1 && n <= most, "a number beyond its bounds");
    }
    require(detail::read_pmi_word(detail::pmi_word(text), back) && back == text, "a word that does not come back");
    (void)detail::read_pmi_word(text, back);
    require(detail::pmi_key(text, 63).size() <= 63, "a key too long");
    static detail::pmi_mapping mapping;
    if (mapping.read(text))
        for (const int rank : {0, 1, 7, 1000, most_ranks - 1}) require(mapping.node_of(rank) >= 0, "a rank on no node");
    for (const int node : {0, 1, 100}) {
        const int tasks = detail::tasks_on_node(text, node);
        require(tasks >= -1 && tasks <= most_ranks, "tasks beyond their bounds");
    }
}

// NAME=value lines; COLLX_ may be omitted before the equals sign: `_RANK=1`.
inline void variables_of_environment(input in) {
    std::vector<std::string> lines;
    const std::string text = in.rest();
    for (std::size_t at = 0; at < text.size() && lines.size() < 64;) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        lines.push_back(text.substr(at, end - at));
        if (!lines.back().empty() && lines.back()[0] == '_') lines.back().insert(0, "COLLX");
        at = end + 1;
    }
    std::vector<const char*> entries;
    for (const auto& l : lines) entries.push_back(l.c_str());
    entries.push_back(nullptr);
    const environment env(entries.data());
    try {
        const job_description d = describe_job(env);
        require(d.size >= 1 && d.rank >= 0 && d.rank < d.size, "a rank that is none");
        require(d.local_size >= 1 && d.local_rank >= 0 && d.local_rank < d.local_size && d.local_size <= d.size,
                "a place on the host that is none");
        require(d.timeout_ns > 0, "no time at all");
        (void)describe_host(env);
    } catch (const error& e) {
        for (const char* c = e.what(); *c != '\0'; ++c) require(*c >= ' ' && *c <= '~', "a message with foreign bytes");
    }
}

// What ranks store for each other: descriptions, findings, verdicts, addresses, ids.
inline void cards(input in) {
    const unsigned how = in.take();
    const std::string text = in.rest();
    const arrival me{"a=1 protection=none key=-", "host", "machine", (how & 1) != 0};
    const detail::findings f = detail::compare_with_root(text, me, 3, 8);
    detail::findings back;
    require(f.text().find('\0') != std::string::npos || (back.read(f.text()) && back.text() == f.text()),
            "findings that do not come back");
    if (back.read(text)) back.add(f);
    try {
        collx::kept_text address = text;
        detail::take_reach(address, host_description{"host", "machine", "127.0.0.1", (how & 1) != 0, {}}, 3, 2);
        require(address.size() < text.size(), "an address that grew");
    } catch (const error&) {
    }
    try {
        (void)detail::read_verdict(text, 1);
    } catch (const error&) {
    }
    try {
        const std::size_t blank = text.rfind(' ');
        const char* at = text.c_str() + (blank == std::string::npos ? 0 : blank + 1);
        (void)detail::numeric_address(text.substr(0, blank == std::string::npos ? 0 : blank),
                                      static_cast<int>(detail::read_digits(at, 65535)));
    } catch (const error&) {
    }
    try {
        const chosen_address c =
            choose_address(text, "", {{"lo", "127.0.0.1"}, {"eth0", "10.1.2.3"}, {"eth0", "fd00::1"}});
        require(!c.address.empty() && !c.why.empty(), "an address that is none");
    } catch (const error&) {
    }
    try {
        const std::string_view name = std::string_view(text).substr(0, detail::unix_name_bytes);
        const socket_address a = detail::unix_address((how & 1) != 0 ? "/run" : "", name);
        require(a.bytes <= sizeof(sockaddr_un), "a name that is too long");
        require(!detail::is_unix_name(name) || detail::unix_name_of(a) == name_view(name),
                "a name that does not come back");
    } catch (const error&) {
    }
    try {
        (void)unique_id::from_text(text).job(0);
    } catch (const error&) {
    }
}

inline constexpr struct {
    const char* name;
    void (*run)(input);
} targets[] = {{"handshake", handshake},
               {"frames", frames},
               {"aggregated", aggregated},
               {"records", records},
               {"store", store},
               {"pmi", pmi},
               {"environment", variables_of_environment},
               {"cards", cards},
#if !defined(COLLX_FUZZ_WITHOUT_WINDOWS)
               {"windows", windows},
#endif
               {"topology", topology},
               {"calls", calls}};

} // namespace collx_fuzz
