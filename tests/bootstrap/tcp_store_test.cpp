// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Failures that only a store over sockets can have: strangers, silence, incomplete frames, floods, a server that ends.
//
// collx-test: serial timeout=240
#include <collx/bootstrap/rendezvous.hpp>
#include <collx/bootstrap/tcp_server.hpp>
#include <collx/bootstrap/tcp_store.hpp>

#include <sys/resource.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "support/night.hpp"
#include "support/open_files.hpp"
#include "support/patience.hpp"

using namespace collx;

namespace {

deadline soon(std::int64_t ms = collx_test::patient(30'000)) { return deadline::in_ns(ms * 1'000'000); }

descriptor connect_to(int port) {
    auto a = detail::numeric_address("127.0.0.1", port);
    descriptor s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(s.get(), a.get(), a.bytes) != 0) s.close();
    return s;
}
bool say(const descriptor& s, const std::string& bytes) {
    return ::send(s.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}
// Whether the server closes s within this time.
bool is_dropped(const descriptor& s, int ms) {
    for (const auto until = soon(ms); detail::wait_for_event(s.get(), POLLIN, until);) {
        char some[256];
        if (::recv(s.get(), some, sizeof some, MSG_DONTWAIT) <= 0) return true;
    }
    return false;
}
std::string head(detail::tcp_word w, std::uint32_t key_bytes, std::uint32_t value_bytes, std::int64_t number = 0) {
    detail::tcp_request r;
    r.word = w;
    r.key_bytes = key_bytes;
    r.value_bytes = value_bytes;
    r.number = number;
    return {reinterpret_cast<const char*>(&r), sizeof r};
}
void check_works(int port) {
    // Must take less time than a silent stranger is given; a busy machine may take longer now and then.
    std::int64_t took = INT64_MAX;
    for (int tries = 0; tries < 5 && took >= 1'500'000'000; ++tries) {
        const std::int64_t begin = now_ns();
        tcp_store a("127.0.0.1", port, soon()), b("127.0.0.1", port, soon());
        const std::string key = "works" + std::to_string(begin);
        a.set(key, "yes");
        CHECK(b.get(key, soon()) == "yes");
        took = now_ns() - begin;
    }
    CHECK(took < collx_test::patient(1'500'000'000));
}
template <class F>
errc code_of(F&& f) {
    try {
        f();
    } catch (const error& e) {
        return e.code();
    }
    return errc::forked;
}

} // namespace

TEST_CASE("nonsense costs the stranger its connection, at once, and the ranks nothing") {
    tcp_server server;
    using detail::tcp_word;
    std::vector<std::string> nonsense = {std::string(24, 'x'),
                                         "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                                         std::string(5000, '\0'),
                                         std::string("\x16\x03\x01", 3) + std::string(60, 'h'),
                                         head(tcp_word::set, 257, 0),
                                         head(tcp_word::set, 0, 5),
                                         head(tcp_word::set, 1, 65537),
                                         head(tcp_word::set, UINT32_MAX, UINT32_MAX),
                                         head(tcp_word::get, 1, 257),
                                         head(tcp_word::add, 1, 8),
                                         head(tcp_word::hello, 1, 0),
                                         head(static_cast<tcp_word>(0), 1, 0),
                                         head(static_cast<tcp_word>(10), 1, 0)};
    std::string wrong = head(tcp_word::hello, 0, 0);
    wrong[4] = static_cast<char>(detail::tcp_version + 1); // another version
    nonsense.push_back(wrong);
    wrong = head(tcp_word::hello, 0, 0);
    wrong[7] = 1;
    nonsense.push_back(wrong);
    for (const auto& n : nonsense) {
        const descriptor s = connect_to(server.port());
        REQUIRE(say(s, n));
        INFO(n.substr(0, 16));
        CHECK(is_dropped(s, 15'000));
    }
    // Also after a correct beginning.
    const descriptor s = connect_to(server.port());
    REQUIRE(say(s, head(tcp_word::hello, 0, 0)));
    CHECK_FALSE(is_dropped(s, 20));
    REQUIRE(say(s, std::string(24, 'x')));
    CHECK(is_dropped(s, 15'000));
    check_works(server.port());
}

TEST_CASE("of many strangers, silence and half frames are given two seconds; clients and a few have more time") {
    tcp_server server;
    using detail::tcp_word;
    std::vector<descriptor> few;
    for (int i = 0; i < 16; ++i) few.push_back(connect_to(server.port()));
    const std::int64_t begin = now_ns();
    const descriptor silent = connect_to(server.port()), half_head = connect_to(server.port()),
                     half_body = connect_to(server.port()), dripping = connect_to(server.port());
    const descriptor known = connect_to(server.port());
    REQUIRE(say(known, head(tcp_word::hello, 0, 0)));
    REQUIRE_FALSE(is_dropped(known, 20));
    const std::string whole = head(tcp_word::set, 4, 4) + "slowdone";
    REQUIRE(say(known, whole.substr(0, 30)));
    REQUIRE(say(half_head, head(tcp_word::set, 4, 4).substr(0, 10)));
    REQUIRE(say(half_body, head(tcp_word::set, 4, 4) + "keyvv"));
    tcp_store idle("127.0.0.1", server.port(), soon());
    tcp_store waiting("127.0.0.1", server.port(), soon());
    std::string got;
    std::thread waiter([&] { got = waiting.get("late", soon()); });
    const std::string frame = head(tcp_word::set, 100, 100) + std::string(200, 'd');
    for (std::size_t i = 0; i < 30; ++i) { // a byte now and then does not extend the time limit
        (void)say(dripping, frame.substr(i, 1));
        detail::nap_ns(50'000'000);
    }
    const bool is_early = is_dropped(silent, 0);
    if (now_ns() - begin < 1'900'000'000) CHECK_FALSE(is_early); // otherwise this test was too slow to tell
    for (const descriptor* d : {&silent, &half_head, &half_body, &dripping}) CHECK(is_dropped(*d, 15'000));
    CHECK(now_ns() - begin < collx_test::patient(15'000'000'000));
    detail::nap_ns(300'000'000); // two seconds are over for each
    std::size_t dropped = 0;     // of those that the server waits for for 30 s
    for (const descriptor& s : few) dropped += is_dropped(s, 0);
    if (now_ns() - begin < 25'000'000'000) { // otherwise this test was too slow to tell
        CHECK(dropped == 0);
        CHECK(say(known, whole.substr(30)));
        CHECK(idle.get("slow", soon()) == "done");
    }
    if (collx_test::is_night()) {
        REQUIRE(say(known, whole.substr(0, 30)));
        for (const descriptor& s : few) CHECK(is_dropped(s, 60'000));
        CHECK(is_dropped(known, 60'000));
        CHECK(now_ns() - begin < collx_test::patient(90'000'000'000));
    }
    idle.set("late", "still here");
    waiter.join();
    CHECK(got == "still here");
}

TEST_CASE("hundreds of silent connections do not keep clients out") {
    tcp_server server;
    std::vector<descriptor> held;
    for (int i = 0; i < 400; ++i) held.push_back(connect_to(server.port())); // two descriptors each, often of 1024
    check_works(server.port());
}

TEST_CASE("silent connections hold a quarter of the descriptors, the oldest go first") {
    rlimit usual{};
    ::getrlimit(RLIMIT_NOFILE, &usual);
    tcp_server server;
    std::vector<descriptor> held; // opened before the limit, so that this end has its descriptors
    for (int i = 0; i < 400; ++i) held.push_back(descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
    const int before = collx_test::open_files();
    const rlimit low{static_cast<rlim_t>(before + 300), usual.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
    const int most = static_cast<int>(low.rlim_cur / 4);
    auto a = detail::numeric_address("127.0.0.1", server.port());
    int connected = 0, held_most = 0;
    for (const descriptor& s : held) {
        connected += ::connect(s.get(), a.get(), a.bytes) == 0;
        const int now = collx_test::open_files() - before;
        if (now > held_most) held_most = now;
    }
    const bool is_first_dropped = is_dropped(held.front(), 1'000);
    ::setrlimit(RLIMIT_NOFILE, &usual);
    CHECK(connected == 400);
    CHECK(is_first_dropped);
    CHECK(held_most <= most + 1);
    check_works(server.port());
}

TEST_CASE("a server without descriptors goes on with the clients it has, and takes more when it can") {
    tcp_server server;
    tcp_store known("127.0.0.1", server.port(), soon());
    known.set("k", "v");
    rlimit usual{};
    ::getrlimit(RLIMIT_NOFILE, &usual);
    descriptor outside = connect_to(server.port());
    std::vector<descriptor> filler;
    const rlimit low{static_cast<rlim_t>(collx_test::open_files() + 20), usual.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &low);
    for (;;) {
        descriptor d(::dup(0));
        if (!d.is_open()) break;
        filler.push_back(static_cast<descriptor&&>(d));
    }
    filler.pop_back();
    const descriptor refused = connect_to(server.port()); // takes the last one, so that the server cannot accept it
    const bool goes_on = known.get("k", soon()) == "v";   // no CHECK here: sanitizers need descriptors for it
    filler.clear();
    ::setrlimit(RLIMIT_NOFILE, &usual);
    CHECK(goes_on);
    check_works(server.port());
}

TEST_CASE("a reader that does not read costs the server one answer, not its time") {
    tcp_server server;
    tcp_store good("127.0.0.1", server.port(), soon());
    good.set("big", std::string(most_value_bytes, 'b'));
    const descriptor lazy = connect_to(server.port());
    int small = 4096;
    ::setsockopt(lazy.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    for (int i = 0; i < 200; ++i)
        (void)::send(lazy.get(), (head(detail::tcp_word::get, 3, 0) + "big").data(), 27, MSG_NOSIGNAL | MSG_DONTWAIT);
    for (int i = 0; i < 100; ++i) CHECK(good.get("big", soon()).size() == most_value_bytes);
}

TEST_CASE("a store has a bounded number of keys") {
    tcp_server server;
    // Many frames at a time, as single ones would take long; the answers are read together.
    const descriptor s = connect_to(server.port());
    const std::size_t batch = 500;
    std::size_t refused = 0, sent = 0;
    for (; sent < tcp_server::most_entries + batch && refused == 0; sent += batch) {
        std::string frames;
        for (std::size_t i = 0; i < batch; ++i) {
            const std::string key = std::to_string(sent + i);
            frames += head(detail::tcp_word::set, static_cast<std::uint32_t>(key.size()), 0) + key;
        }
        if (!say(s, frames)) break;
        std::string answers(batch * sizeof(detail::tcp_reply), '\0');
        REQUIRE(::recv(s.get(), answers.data(), answers.size(), MSG_WAITALL) == static_cast<ssize_t>(answers.size()));
        for (std::size_t i = 0; i < batch; ++i) {
            detail::tcp_reply r;
            std::memcpy(&r, answers.data() + i * sizeof r, sizeof r);
            refused += r.status == detail::tcp_status::full;
        }
    }
    CHECK(refused > 0);
    CHECK(sent >= tcp_server::most_entries);
}

TEST_CASE("a store has a bounded number of bytes") {
    tcp_server server;
    const std::string value(most_value_bytes, 'v');
    tcp_store t("127.0.0.1", server.port(), soon());
    errc code = errc::forked;
    for (int i = 0; i < 1100 && code == errc::forked; ++i)
        code = code_of([&] { t.set("big" + std::to_string(i), value); });
    CHECK(code == errc::resource);
    t.set("big0", "smaller"); // a set that frees memory is not refused
    CHECK(t.get("big0", soon()) == "smaller");
}

TEST_CASE("a value that takes the place of another needs only its own bytes") {
    tcp_server server;
    const std::string value(most_value_bytes, 'v');
    tcp_store t("127.0.0.1", server.port(), soon());
    errc code = errc::forked;
    for (int i = 0; i < 1100 && code == errc::forked; ++i) // more than the store may keep, if all of them counted
        code = code_of([&] { t.set("same", value); });
    CHECK(code == errc::forked);
    CHECK((t.get("same", soon()) == value));
}

TEST_CASE("when the server goes, clients hear of it and nothing hangs or leaks") {
    const int files = collx_test::open_files();
    {
        auto server = std::make_unique<tcp_server>();
        tcp_store waiting("127.0.0.1", server->port(), soon()), idle("127.0.0.1", server->port(), soon());
        errc code{};
        std::thread waiter([&] { code = code_of([&] { (void)waiting.get("never", soon()); }); });
        detail::nap_ns(50'000'000);
        const std::int64_t begin = now_ns();
        server.reset();
        waiter.join();
        CHECK(now_ns() - begin < collx_test::patient(15'000'000'000)); // well before the limit of get()
        CHECK(code == errc::peer_failed);
        CHECK(code_of([&] { idle.set("k", "v"); }) == errc::peer_failed);
        CHECK(code_of([&] { idle.set("k", "v"); }) == errc::peer_failed); // repeatedly
    }
    for (int i = 0; i < 100; ++i) {
        tcp_server server;
        tcp_store s("127.0.0.1", server.port(), soon());
        s.set("k", "v");
    }
    CHECK(collx_test::open_files() == files);
}

TEST_CASE("the server may start late, on the same port as the one before") {
    int port = 0;
    {
        tcp_server first;
        port = first.port();
        tcp_store s("127.0.0.1", port, soon());
        s.set("old", "1");
    }
    std::string got;
    std::thread early([&] {
        tcp_store s("127.0.0.1", port, soon());
        got = s.get("new", soon());
    });
    detail::nap_ns(100'000'000);
    tcp_server second("127.0.0.1", port);
    tcp_store s("127.0.0.1", port, soon());
    s.set("new", "2");
    early.join();
    CHECK(got == "2");
    CHECK(code_of([&] { (void)s.get("old", soon(1)); }) == errc::timeout);
    CHECK(code_of([&] { tcp_server third("127.0.0.1", port); }) == errc::environment);
}

TEST_CASE("addresses that are none, and stores that are not there") {
    for (const char* host : {"", "a host", "127.0.0.1.5", "1.2.3", "::g", "[::1", "*"}) {
        INFO(host);
        CHECK(code_of([&] { tcp_server s(host, 0); }) == errc::environment);
        CHECK(code_of([&] { tcp_store s(host, 1, soon(10)); }) == errc::environment);
    }
    CHECK(code_of([] { tcp_server s("127.0.0.1", 65536); }) == errc::environment);
    CHECK(code_of([] { tcp_server s("127.0.0.1", -1); }) == errc::environment);
    CHECK(code_of([] { tcp_server s("192.0.2.1", 0); }) == errc::environment); // not an address of this host
    int port = 0;
    {
        tcp_server gone;
        port = gone.port();
    }
    const std::int64_t begin = now_ns();
    CHECK(code_of([&] { tcp_store s("127.0.0.1", port, soon(200)); }) == errc::timeout);
    CHECK(now_ns() - begin < collx_test::patient(15'000'000'000));
}

TEST_CASE("a rank whose store is not there, or goes, says which rank it is") {
    const auto rank_of = [](auto&& f) {
        try {
            f();
        } catch (const error& e) {
            return e.peer() == 0 ? e.rank() : -2;
        }
        return -3;
    };
    auto server = std::make_unique<tcp_server>();
    const int port = server->port();
    tcp_store s("127.0.0.1", port, soon(), 4);
    server.reset();
    CHECK(rank_of([&] { s.set("k", "v"); }) == 4);
    CHECK(rank_of([&] { (void)s.is_rung("bell", *std::make_unique<kept_text>()); }) == 4);
    CHECK(rank_of([&] { tcp_store none("127.0.0.1", port, soon(10), 5); }) == 5);
}

TEST_CASE("a listener that is no store is not taken for one") {
    auto a = detail::numeric_address("127.0.0.1", 0);
    const descriptor listener = detail::tcp_socket(a);
    REQUIRE(::bind(listener.get(), a.get(), a.bytes) == 0);
    REQUIRE(::listen(listener.get(), 8) == 0);
    ::getsockname(listener.get(), a.get(), &a.bytes);
    const int port = ntohs(reinterpret_cast<sockaddr_in&>(a.address).sin_port);
    std::thread parrot([&] { // sends back everything that it receives
        for (const auto until = soon(400); detail::wait_for_event(listener.get(), POLLIN, until);) {
            const descriptor guest(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
            char some[64];
            const ssize_t n = ::recv(guest.get(), some, sizeof some, 0);
            if (n > 0) (void)::send(guest.get(), some, static_cast<std::size_t>(n), MSG_NOSIGNAL);
            detail::nap_ns(10'000'000);
        }
    });
    CHECK(code_of([&] { tcp_store s("127.0.0.1", port, soon(300)); }) == errc::timeout);
    parrot.join();
}

TEST_CASE("a client that tries again says so to a server that was too slow to answer") {
    auto a = detail::numeric_address("127.0.0.1", 0);
    descriptor listener = detail::tcp_socket(a);
    const int on = 1;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    REQUIRE(::bind(listener.get(), a.get(), a.bytes) == 0);
    REQUIRE(::listen(listener.get(), 8) == 0);
    ::getsockname(listener.get(), a.get(), &a.bytes);
    const int port = ntohs(reinterpret_cast<sockaddr_in&>(a.address).sin_port);
    errc code{};
    std::thread client([&] { code = code_of([&] { tcp_store s("127.0.0.1", port, soon(), 3); }); });
    std::string heard;
    if (detail::wait_for_event(listener.get(), POLLIN, soon())) {
        const descriptor guest(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        char some[64];
        for (ssize_t n; (n = ::recv(guest.get(), some, sizeof some, 0)) > 0;)
            heard.append(some, static_cast<std::size_t>(n));
    }
    listener.close();
    const tcp_server server("127.0.0.1", port); // its second attempt succeeds
    client.join();
    CHECK(code == errc::forked);
    CHECK(heard == head(detail::tcp_word::hello, 0, 0, 3) + head(detail::tcp_word::bye, 0, 0));
}

TEST_CASE("a store at an address that no other host reaches is refused") {
    for (const char* any : {"0.0.0.0", "[::]"}) {
        std::string said;
        try {
            tcp_store s(any, 5000, soon(), 1);
        } catch (const error& e) {
            CHECK(e.code() == errc::environment);
            said = e.what();
        }
        CHECK(said.find("no other host reaches a store at") != std::string::npos);
    }
}
