// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The listener of a rank in a job with a key: which connections it accepts, with normal and faulty system calls, and
// what attackers may try: no key, another key, replayed messages, its own messages sent back, messages of another
// connection, truncated messages.
//
// collx-test: timeout=240
#include <collx/transport/socket_hub.hpp>

#include <arpa/inet.h>

#include <cerrno>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "support/faulty_sockets.hpp"
#include "support/open_files.hpp"
#include "support/patience.hpp"
#include "support/toy_macs.hpp"

using namespace collx;
using namespace collx_test;
using detail::greeted;
using detail::greeting;
using detail::stream_frame;
using detail::stream_hello;

namespace {

constexpr char token[] = "0123456789abcdef0123456789abcdef";

// A listener on loopback that accepts connections of communicator 42.
struct world {
    with_toy_macs toy;
    socket_address at;
    std::vector<std::pair<stream_hello, descriptor>> came;
    sole_ptr<socket_hub> hub;

    explicit world(bool has_key = true, const socket_calls& calls = system_socket_calls) {
        auto& in = reinterpret_cast<sockaddr_in&>(at.address);
        in.sin_family = AF_INET;
        in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        at.bytes = sizeof in;
        descriptor listener = socket_hub::listen_on(at);
        hub = make_sole<socket_hub>(std::move(listener), token, std::vector{at, at}, 100'000'000, calls,
                                    has_key ? toy_protection('k') : job_protection());
    }
    void look() {
        hub->look(42, [&](const stream_hello& h, descriptor s, const auto&) { came.emplace_back(h, std::move(s)); });
    }
    static stream_hello hello(protection p = protection::auth_only) {
        stream_hello h;
        h.communicator = 42;
        h.from = 1;
        h.protected_by = static_cast<std::uint64_t>(p);
        h.set_token(token, 32);
        return h;
    }
    // A stranger's socket, blocking.
    descriptor connect() {
        descriptor s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const timeval limit{3, 0};
        ::setsockopt(s.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        if (::connect(s.get(), at.get(), at.bytes) != 0) std::abort();
        return s;
    }
    template <class T>
    void say(const descriptor& s, const T& words, std::size_t n = sizeof(T)) {
        (void)::send(s.get(), &words, n, MSG_NOSIGNAL);
        for (int i = 0; i < 5; ++i) {
            look();
            ::usleep(300);
        }
    }
    // The listener makes progress until the stranger receives something, within a limit for busy machines.
    void look_until_heard(const descriptor& s) {
        for (const deadline until = deadline::in_ns(collx_test::patient(20'000'000'000)); !until.passed(); look())
            if (detail::wait_for_event(s.get(), POLLIN, deadline::in_ns(1'000'000))) return;
    }
    template <class T>
    bool hears(const descriptor& s, T& words) {
        look_until_heard(s);
        return ::recv(s.get(), &words, sizeof words, MSG_WAITALL) == sizeof words;
    }
    bool is_over_now(const descriptor& s) {
        char c;
        const ssize_t n = ::recv(s.get(), &c, 1, MSG_DONTWAIT);
        return n == 0 || (n < 0 && errno != EAGAIN);
    }
    bool is_over(const descriptor& s) {
        look_until_heard(s);
        return is_over_now(s);
    }
};

// Runs both ends until the greeting has ended.
greeted meet(world& w, greeting& g, int most = 4000) {
    greeted how = greeted::not_yet;
    for (int i = 0; i < most && how == greeted::not_yet; ++i) {
        how = g.move();
        w.look();
        if (i > 20) ::usleep(100);
    }
    for (int i = 0; i < 50; ++i) w.look();
    return how;
}
struct key_of {
    job_protection p;
    explicit key_of(char c) : p(toy_protection(c)) {}
    operator const job_key&() const { return p.key; }
};

} // namespace

TEST_CASE("who has the key gets in, on good days and bad") {
    for (const socket_calls* calls : {&system_socket_calls, &bad_day_calls})
        for (int round = 0; round < 20; ++round) {
            world w(true, *calls);
            const key_of key('k');
            greeting g(w.hub->connect_to(0), world::hello(), key, *calls);
            CHECK(meet(w, g) == greeted::done);
            REQUIRE(w.came.size() == 1);
            CHECK(w.came[0].first.from == 1);
            // Neither end has read any byte of what follows.
            const descriptor mine = g.release_socket();
            int flags = ::fcntl(mine.get(), F_GETFL);
            ::fcntl(mine.get(), F_SETFL, flags & ~O_NONBLOCK);
            flags = 12345;
            CHECK(::send(w.came[0].second.get(), &flags, sizeof flags, 0) == sizeof flags);
            int got = 0;
            CHECK((w.hears(mine, got) && got == 12345));
        }
}

TEST_CASE("what follows the proof at once is not lost and not read by the listener") {
    world w;
    const key_of key('k');
    const descriptor s = w.connect();
    stream_hello h = world::hello();
    w.say(s, h);
    detail::listener_answer a;
    REQUIRE(w.hears(s, a));
    struct {
        detail::auth_proof proof;
        char more[100] = "the first frame";
    } both;
    both.proof = key.p.key.prove(h, a.words);
    w.say(s, both);
    REQUIRE(w.came.size() == 1);
    char more[100] = "";
    CHECK(::recv(w.came[0].second.get(), more, sizeof more, 0) == sizeof more);
    CHECK(std::string(more) == "the first frame");
}

TEST_CASE("another key, or none, on either side: the connecting side gets an error") {
    {
        world w;
        const key_of wrong('x');
        greeting g(w.hub->connect_to(0), world::hello(), wrong, system_socket_calls);
        CHECK(meet(w, g) == greeted::insecure);
        CHECK(w.came.empty());
    }
    {
        world w(false);
        const key_of key('k');
        greeting g(w.hub->connect_to(0), world::hello(), key, system_socket_calls);
        CHECK(meet(w, g) == greeted::insecure);
        CHECK(w.came.empty());
    }
    world w; // without a key, messages directly follow the hello; the refusal still arrives
    const descriptor s = w.connect();
    const std::string messages(100'000, 'm');
    const stream_hello h = world::hello(protection::none);
    (void)::send(s.get(), &h, sizeof h, 0);
    (void)::send(s.get(), messages.data(), messages.size(), 0);
    for (int i = 0; i < 50; ++i) {
        w.look();
        ::usleep(200);
    }
    stream_frame f;
    REQUIRE(w.hears(s, f));
    CHECK(f.what == stream_frame::kind::refused);
    CHECK(w.came.empty());
    stream alone(system_socket_calls, {.depth = 2, .slot_bytes = 64}, 5);
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    alone.open(descriptor(ends[0]), false);
    const descriptor other(ends[1]);
    REQUIRE(::send(other.get(), &f, sizeof f, 0) == sizeof f);
    alone.move();
    CHECK((alone.is_nonsense() && alone.is_insecure()));
}

TEST_CASE("words heard before, sent back, or meant for others open nothing") {
    const int before = open_files();
    {
        world w;
        const key_of key('k');
        const stream_hello h = world::hello();
        detail::listener_answer a;
        const auto answered = [&](const stream_hello& to) {
            descriptor s = w.connect();
            w.say(s, to);
            REQUIRE(w.hears(s, a));
            REQUIRE(a.head.what == stream_frame::kind::answer);
            return s;
        };
        const auto is_refused = [&](const descriptor& s, const detail::auth_proof& p) {
            w.say(s, p);
            CHECK(w.is_over(s));
            CHECK(w.came.empty());
        };
        detail::auth_proof p, heard;
        {
            const descriptor s = answered(h);
            heard = key.p.key.prove(h, a.words);
            w.say(s, heard);
            REQUIRE(w.came.size() == 1);
            w.came.clear();
        }
        is_refused(answered(h), heard); // the same hello and proof again: the nonce differs
        is_refused(answered(h), {});
        {
            const descriptor s = answered(h);
            std::memcpy(p.tag, a.words.tag, 32); // the listener's own tag: the tag covers the role
            is_refused(s, p);
        }
        for (const int field : {0, 1, 2, 3, 4}) { // a proof for another hello than the one sent
            stream_hello other = h;
            if (field == 0) other.from = 2;
            if (field == 1) other.to = 7;
            if (field == 2) other.communicator = 43;
            if (field == 3) other.nonce[5] ^= 1;
            if (field == 4) other.from_side = stream_hello::side::lower;
            const descriptor s = answered(other);
            is_refused(s, key.p.key.prove(h, a.words));
        }
        { // an answer that belongs to another connection
            const descriptor first = answered(h);
            const auto of_first = key.p.key.prove(h, a.words);
            const descriptor second = answered(h);
            is_refused(second, of_first);
        }
        for (int bit = 0; bit < 256; ++bit) {
            const descriptor s = answered(h);
            p = key.p.key.prove(h, a.words);
            p.tag[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
            is_refused(s, p);
        }
        { // another job with the same key
            stream_hello other = h;
            other.token[3] ^= 1;
            const descriptor s = w.connect();
            w.say(s, other);
            CHECK(w.is_over(s));
        }
        // A connection that is silent after the answer or stops within a proof is closed after two seconds where many
        // do so. Where few do, it may be a rank on a busy machine.
        const std::int64_t began = now_ns();
        const descriptor silent = answered(h), half = answered(h);
        w.say(half, heard, 20);
        for (int i = 0; i < 230; ++i) {
            w.look();
            ::usleep(10'000);
        }
        CHECK_FALSE(w.is_over_now(silent));
        CHECK_FALSE(w.is_over_now(half));
        std::vector<descriptor> more;
        for (int i = 0; i < 16; ++i) more.push_back(answered(h));
        CHECK(w.is_over(silent));
        CHECK(w.is_over(half));
        CHECK(now_ns() - began < detail::slow_limit_ns); // not because few may be silent for as long as that
        CHECK_FALSE(w.is_over_now(more.back()));
        CHECK(w.came.empty());
    }
    CHECK(open_files() == before);
}

TEST_CASE("a listener that is not ours proves nothing") {
    const with_toy_macs toy;
    const key_of key('k');
    std::mt19937 random(7);
    for (int round = 0; round < 300; ++round) {
        int ends[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
        const descriptor listener(ends[1]);
        greeting g(descriptor(ends[0]), world::hello(), key, system_socket_calls);
        CHECK(g.move() == greeted::not_yet);
        stream_hello h;
        REQUIRE(::recv(listener.get(), &h, sizeof h, 0) == sizeof h);
        struct {
            detail::listener_answer a;
            stream_frame accepted{.what = stream_frame::kind::accepted};
        } all;
        all.a.words = key.p.key.answer(h);
        std::size_t n = sizeof all;
        bool is_whole = false;
        if (round == 0) is_whole = true;                                            // everything correct
        else if (round == 1) std::memcpy(static_cast<void*>(&all), &h, sizeof all); // sends the hello back
        else if (round == 2) all.a.words = key_of('x').p.key.answer(h);
        else if (round == 3) all.accepted.what = stream_frame::kind::bye;
        else if (round == 4) n = 50;
        else { // a flipped bit in the kind, the magic, the nonce or the tag
            const std::size_t at = random() % 2 == 0 ? std::size_t{2} * (random() % 2) : 16 + random() % 64;
            reinterpret_cast<unsigned char*>(&all)[at] ^= static_cast<unsigned char>(1u << random() % 8);
        }
        (void)::send(listener.get(), &all, n, MSG_NOSIGNAL);
        greeted how = g.move();
        if (n != sizeof all) {
            CHECK(how == greeted::not_yet);
            ::shutdown(listener.get(), SHUT_WR);
            CHECK(g.move() == greeted::gone);
        } else {
            INFO(round);
            CHECK(how == (is_whole ? greeted::done : greeted::insecure));
        }
    }
}

TEST_CASE("a flood of strangers in every phase keeps no rank out for long") {
    world w;
    const key_of key('k');
    std::vector<descriptor> strangers;
    const stream_hello h = world::hello();
    for (int i = 0; i < 300; ++i) {
        strangers.push_back(w.connect());
        if (i % 3 == 1) (void)::send(strangers.back().get(), &h, sizeof h, MSG_NOSIGNAL);
        if (i % 3 == 2) (void)::send(strangers.back().get(), &h, 40, MSG_NOSIGNAL);
        if (i % 20 == 0) w.look();
    }
    int tries = 0;
    for (; tries < 20 && w.came.empty(); ++tries) { // a connection that was dropped tries again
        greeting g(w.hub->connect_to(0), h, key, system_socket_calls);
        (void)meet(w, g, 100);
    }
    CHECK(w.came.size() == 1);
    CHECK(tries <= 3);
}
