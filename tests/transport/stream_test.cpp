// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The contract of channels over connections (TCP over IPv4 and IPv6, unix sockets; with normal and faulty system
// calls). How a stream reacts to invalid data and to all kinds of ends. The listener that strangers connect to.
//
// collx-test: timeout=240
#include <collx/transport/remote_links.hpp>
#include <collx/transport/socket_hub.hpp>

#include <arpa/inet.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <random>
#include <thread>
#include <utility>

#include "support/faulty_sockets.hpp"
#include "support/open_files.hpp"
#include "support/processes.hpp"
#include "support/skip.hpp"
#include "transport/channel_contract.hpp"
#include "transport/connections.hpp"

using namespace collx;
using namespace collx_test;
using detail::stream_frame;
using kind = stream_frame::kind;

namespace {

// Channel ends that advance their stream while they wait, as a communicator does.
struct carrying_tx {
    stream& s;
    sending_end end;
    std::byte* try_acquire(std::size_t bytes) {
        s.move();
        return end.try_acquire(bytes);
    }
    void commit(std::size_t bytes, std::uint32_t tag = 0) { end.commit(bytes, tag); }
};
struct carrying_rx {
    stream& s;
    receiving_end end;
    bool has_message() {
        if (!end.has_message()) s.move();
        return end.has_message();
    }
    bool is_expected(std::size_t bytes, std::uint32_t tag) const { return end.is_expected(bytes, tag); }
    const std::byte* peek(std::size_t bytes) const { return end.peek(bytes); }
    void release(std::size_t bytes) { end.release(bytes); }
};

// The two ends of a trunk.
struct trunk_pair {
    detail::mutual_help helpers{system_socket_calls};
    detail::trunk_arrivals arrivals;
    counted_ptr<detail::trunk> left, right;
    trunk_pair(int family, const socket_calls& calls)
        : left(make_counted<detail::trunk>(calls, 1, 0u, helpers, arrivals)),
          right(make_counted<detail::trunk>(calls, 0, 0u, helpers, arrivals)) {
        auto [a, b] = connection(family);
        left->open(std::move(a), false, false, {});
        right->open(std::move(b), false, false, {});
    }
    void open(stream& l, stream& r, std::uint64_t communicator) {
        l.open(make_sole<detail::trunk_end>(left, communicator, 0));
        r.open(make_sole<detail::trunk_end>(right, communicator, 0));
    }
};

template <int Family, bool BadDay, int Lanes = 1, bool Shared = false>
struct socket_world {
    static constexpr int at_port = 3;
    sole_ptr<trunk_pair> all; // outlives the streams
    stream left, right;
    int lane_fds[8] = {}; // file descriptors of the left end's lanes, from lane 1 on
    explicit socket_world(channel_shape s)
        : left(BadDay ? bad_day_calls : system_socket_calls, s, 5),
          right(BadDay ? bad_day_calls : system_socket_calls, s, 5) {
        if constexpr (Shared) {
            all = make_sole<trunk_pair>(Family, BadDay ? bad_day_calls : system_socket_calls);
            all->open(left, right, 17);
            return;
        }
        auto [a, b] = connection(Family);
        left.open(std::move(a), false);
        right.open(std::move(b), false);
        left.allow_lanes(Lanes);
        right.allow_lanes(Lanes);
        for (int k = 1; k < Lanes; ++k) {
            auto [c, d] = connection(Family);
            lane_fds[k] = c.get();
            left.use_lane(k, std::move(c), {});
            right.adopt_lane(k, 1, std::move(d), {});
        }
    }
    // The bytes sent over a lane other than the leading one, as far as the system counts them.
    std::uint64_t bytes_over(int k) const {
        std::uint64_t sent = 0; // the C library's tcp_info lacks this field
        unsigned char all[512] = {};
        socklen_t bytes = sizeof all;
        (void)::getsockopt(lane_fds[k], IPPROTO_TCP, TCP_INFO, all, &bytes);
        std::memcpy(&sent, all + 120, sizeof sent); // tcpi_bytes_acked
        return sent;
    }
    template <class Send, class Receive>
    std::pair<int, int> run(Send send, Receive receive) {
        std::pair<int, int> result{-1, -1};
        std::thread other([&] {
            carrying_tx tx{left, left.tx(at_port)};
            result.first = send(tx);
            if (!wait_until([&] {
                    left.move();
                    return left.is_flushed();
                }))
                result.first = 8;
        });
        carrying_rx rx{right, right.rx(at_port)};
        result.second = receive(rx);
        other.join();
        return result;
    }
};
using tcp4 = socket_world<AF_INET, false>;
using tcp6 = socket_world<AF_INET6, false>;
using local = socket_world<AF_UNIX, false>;
using bad_tcp = socket_world<AF_INET, true>;
using bad_local = socket_world<AF_UNIX, true>;
using tcp_lanes = socket_world<AF_INET, false, 3>;
using bad_lanes = socket_world<AF_INET6, true, 4>;
using local_lanes = socket_world<AF_UNIX, false, 2>;
using shared_tcp = socket_world<AF_INET, false, 1, true>;
using bad_shared = socket_world<AF_UNIX, true, 1, true>;

// A stream whose peer is the test.
struct half_open {
    static constexpr channel_shape shape{.depth = 4, .slot_bytes = 4096};
    stream s{system_socket_calls, shape, 5};
    descriptor test;
    explicit half_open(int family = AF_UNIX) {
        auto [a, b] = connection(family);
        s.open(std::move(a), false);
        test = std::move(b);
    }
    void say(const void* bytes, std::size_t n) { REQUIRE(::send(test.get(), bytes, n, 0) == static_cast<ssize_t>(n)); }
    void say(stream_frame f) { say(&f, sizeof f); }
    void message(int port, std::size_t bytes) {
        say({.at_port = static_cast<std::uint8_t>(port), .bytes = static_cast<std::uint32_t>(bytes)});
        const std::vector<char> payload(bytes, 'x');
        say(payload.data(), bytes);
    }
};

} // namespace

TEMPLATE_TEST_CASE("streams keep order and content", "", tcp4, tcp6, local, bad_tcp, bad_local, shared_tcp,
                   bad_shared) {
    check_order_and_content<TestType>();
}
TEMPLATE_TEST_CASE("streams carry many short messages", "", tcp4, local, bad_tcp, shared_tcp) {
    check_short_messages<TestType>();
}

TEST_CASE("a sender fills its own slots and those of the receiver, and no more until they are taken") {
    constexpr channel_shape shape{.depth = 4, .slot_bytes = 1024};
    tcp4 world(shape);
    auto tx = world.left.tx(1);
    auto rx = world.right.rx(1);
    const auto carry = [&] {
        for (int i = 0; i < 200; ++i) {
            world.left.move();
            world.right.move();
        }
    };
    int sent = 0;
    for (int tries = 0; tries < 100; ++tries) {
        if (tx.try_acquire(500) != nullptr) {
            tx.commit(500);
            ++sent;
        }
        carry();
    }
    CHECK(sent == 2 * shape.depth);
    CHECK(!world.left.is_flushed());
    for (int taken = 0; taken < 2; ++taken) {
        REQUIRE(rx.has_message());
        rx.release(500);
    }
    carry(); // half of the slots are free: the sender gets credit
    int more = 0;
    while (tx.try_acquire(500) != nullptr) {
        tx.commit(500);
        ++more;
        carry();
    }
    CHECK(more == 2);
}

TEST_CASE("both ends use the memory again that was used last, and none that is still in use") {
    constexpr channel_shape shape{.depth = 4, .slot_bytes = 1024};
    tcp4 world(shape);
    auto tx = world.left.tx(1);
    auto rx = world.right.rx(1);
    const auto carry = [&] {
        for (int i = 0; i < 200; ++i) {
            world.left.move();
            world.right.move();
        }
    };
    int sent = 0, seen = 0;
    const auto send = [&](std::size_t bytes) {
        std::byte* const at = tx.try_acquire(bytes);
        std::memset(at, ++sent, bytes);
        tx.commit(bytes);
        return at;
    };
    const auto is_next = [&](std::size_t bytes) {
        const std::vector<std::byte> expected(bytes, std::byte(++seen));
        return rx.has_message() && std::memcmp(rx.peek(bytes), expected.data(), bytes) == 0;
    };
    const std::byte* const first = send(500);
    carry();
    const std::byte* const place = rx.peek(500);
    for (int i = 0; i < 9; ++i) { // at most one message at a time: always the same memory
        REQUIRE(is_next(500));
        CHECK(rx.peek(500) == place);
        rx.release(500);
        CHECK(send(500) == first);
        carry();
    }
    // a message that is not released keeps its memory; a short one uses none
    send(100);
    send(600);
    carry();
    REQUIRE(is_next(500));
    rx.release(500);
    REQUIRE(is_next(100));
    rx.release(100);
    CHECK(rx.peek(600) != place);
    // behind it, in front of another one, and between them
    send(700);
    send(800);
    send(1024);
    carry();
    for (std::size_t bytes : {600, 700, 800, 1024}) {
        REQUIRE(is_next(bytes));
        rx.release(bytes);
    }
}

TEST_CASE("ports do not wait for each other") {
    tcp4 world({.depth = 2, .slot_bytes = 64});
    auto stuck = world.left.tx(0), goes = world.left.tx(4);
    auto rx = world.right.rx(4);
    for (int i = 0; i < 50; ++i) {
        if (stuck.try_acquire(60) != nullptr) stuck.commit(60); // its receiver releases none of these
        world.left.move();
        world.right.move();
    }
    for (std::uint64_t m = 0; m < 100; ++m) {
        REQUIRE(wait_until([&] {
            world.left.move();
            world.right.move();
            return goes.try_acquire(40) != nullptr;
        }));
        fill_message(goes.try_acquire(40), m, 40);
        goes.commit(40);
        REQUIRE(wait_until([&] {
            world.left.move();
            world.right.move();
            return rx.has_message();
        }));
        REQUIRE(is_message(rx.peek(40), m, 40));
        rx.release(40);
    }
}

TEST_CASE("words beside messages: failure, waiting, goodbye, and the end after each") {
    local world({.depth = 2, .slot_bytes = 64});
    atomic<std::uint64_t> here[3]{}, there[3]{};
    world.left.set_waiting_words({here, 3});
    world.right.set_waiting_words({there, 3});
    const std::int64_t now = collx::now_ns();
    world.left.say_waiting(0); // and what is known of the ranks behind it
    waiting_words{here, 3}.say(0, waiting_word(now, {2, awaited::why::room}));
    waiting_words{here, 3}.say(2, waiting_word(now - 5'000'000'000, {1, awaited::why::message}));
    world.left.say_failure(0x3'0000'0005);
    world.left.move();
    world.right.move();
    const waiting_words heard{there, 3};
    CHECK((heard.of(0).peer() == 2 && heard.of(0).what() == awaited::why::room));
    CHECK((heard.of(2).peer() == 1 && heard.of(2).what() == awaited::why::message));
    CHECK(collx::now_ns() - heard.of(2).said_at_ns() >= 4'900'000'000); // the age is transmitted
    CHECK(now - heard.of(0).said_at_ns() < 1'000'000'000);
    CHECK(heard.of(1).word == 0);
    CHECK(world.right.heard_failure() == 0x3'0000'0005);
    CHECK(world.right.state() == stream::phase::open);
    world.left.say_waiting(0);
    world.left.say_bye(); // the words may belong to another communicator from here on
    waiting_words{there, 3}.say(1, waiting_word(now, {2, awaited::why::room}));
    world.right.say_waiting(1);
    world.right.move();
    world.left.move();
    world.left.move();
    CHECK(here[1].load() == 0);
    CHECK(world.left.has_said_bye());
    world.left.release_socket();
    CHECK(wait_until([&] {
        world.right.move();
        return !world.right.is_live();
    }));
    CHECK(world.right.state() == stream::phase::left);
    CHECK(world.right.is_flushed());

    local cut({.depth = 2, .slot_bytes = 64});
    cut.left.release_socket();
    CHECK(wait_until([&] {
        cut.right.move();
        return !cut.right.is_live();
    }));
    CHECK(cut.right.state() == stream::phase::lost);
    CHECK(!cut.right.is_nonsense());

    half_open half;
    half.say("CL", 1); // half a frame
    half.test.close();
    CHECK(wait_until([&] {
        half.s.move();
        return !half.s.is_live();
    }));
    CHECK(half.s.state() == stream::phase::lost);
}

TEST_CASE("news of a failure is said again over the connection that replaces one that was given up") {
    auto first = connection(AF_INET), second = connection(AF_INET);
    stream left(system_socket_calls, {.depth = 2, .slot_bytes = page_bytes}, 1);
    stream right(system_socket_calls, {.depth = 2, .slot_bytes = page_bytes}, 1);
    left.say_failure(0x3'0000'0005);
    left.open(std::move(first.first), true); // a failure may be sent without a welcome
    while (!left.has_said_failure()) (void)left.move();
    left.close();
    left.open(std::move(second.first), false);
    right.open(std::move(second.second), false);
    for (const deadline until = deadline::in_ns(collx_test::patient(30'000'000'000));
         right.heard_failure() == 0 && !until.passed();) {
        (void)left.move();
        (void)right.move();
    }
    CHECK(right.heard_failure() == 0x3'0000'0005);
}

TEST_CASE("a rank whose listener is closed is found gone, however early its system says so") {
    socket_address mine = loopback(false), gone = loopback(false);
    descriptor listener = socket_hub::listen_on(mine);
    socket_hub::listen_on(gone).close();
    auto hub = make_counted<socket_hub>(std::move(listener), "a job", std::vector<socket_address>{gone, mine}, 0);
    collx::atomic<std::uint64_t> failed{0};
    remote_links links(
        hub, {.id = 1, .rank = 1, .ranks = {0, 1}, .shape = {.depth = 2, .slot_bytes = page_bytes}, .ports = 1});
    links.begin(failed);
    (void)links.tx(0, 0);
    for (const deadline until = deadline::in_ns(collx_test::patient(30'000'000'000));
         links.find_gone(0, now_ns()) != 0 && !until.passed();)
        (void)links.move();
    CHECK(links.find_gone(0, now_ns()) == 0);
    links.say_bye();
}

TEST_CASE("a goodbye waits for the messages before it") {
    tcp4 world({.depth = 2, .slot_bytes = 1024});
    auto tx = world.left.tx(0);
    auto rx = world.right.rx(0);
    int sent = 0;
    for (int tries = 0; tries < 20; ++tries) {
        if (tx.try_acquire(1000) != nullptr) {
            tx.commit(1000);
            ++sent;
        }
        world.left.move();
        world.right.move();
    }
    world.left.say_bye();
    world.left.move();
    CHECK(!world.left.has_said_bye());
    for (int got = 0; got < sent; ++got) {
        REQUIRE(wait_until([&] {
            world.left.move();
            world.right.move();
            return rx.has_message();
        }));
        rx.release(1000);
    }
    CHECK(wait_until([&] {
        world.left.move();
        world.right.move();
        return world.left.has_said_bye();
    }));
}

TEST_CASE("what no schedule allows ends the stream and nothing else") {
    const auto is_refused = [](const char* what, auto&& speak) {
        half_open h;
        (void)h.s.tx(0); // its memory exists
        speak(h);
        const bool ended = wait_until([&] {
            h.s.move();
            return !h.s.is_live();
        });
        INFO(what);
        CHECK(ended);
        CHECK(h.s.is_nonsense());
    };
    is_refused("another magic", [](auto& h) { h.say({.magic = 0x1234}); });
    is_refused("an unknown kind", [](auto& h) { h.say({.what = static_cast<kind>(0)}); });
    is_refused("an unknown kind", [](auto& h) { h.say({.what = static_cast<kind>(7)}); });
    is_refused("a port too far", [](auto& h) { h.say({.at_port = 5, .bytes = 1}); });
    is_refused("a port too far", [](auto& h) { h.say({.what = kind::credit, .at_port = 15}); });
    is_refused("longer than a slot", [](auto& h) { h.say({.bytes = half_open::shape.slot_bytes + 1}); });
    is_refused("much longer than a slot", [](auto& h) { h.say({.bytes = UINT32_MAX}); });
    is_refused("a single copy", [](auto& h) { h.say({.bytes = 8 | slot_header::single_copy_bit}); });
    is_refused("more than there are slots", [](auto& h) {
        for (int i = 0; i < half_open::shape.depth; ++i) h.message(2, 100);
        h.message(2, 100);
    });
    is_refused("a filler behind a word", [](auto& h) {
        h.say({.what = kind::credit, .filler_units = 1});
        h.say(stream_frame{}); // the filler
    });
    is_refused("a filler behind the head of a short message", [](auto& h) {
        h.say({.filler_units = 1, .bytes = 100});
        h.say(stream_frame{});
    });
    is_refused("more filler than a line", [](auto& h) {
        h.say({.filler_units = 4, .bytes = half_open::shape.slot_bytes});
        for (int i = 0; i < 4; ++i) h.say(stream_frame{});
    });
    is_refused("has taken what was not sent", [](auto& h) { h.say({.what = kind::credit, .taken = 1}); });
    is_refused("has given back", [](auto& h) { h.say({.what = kind::credit, .taken = UINT32_MAX}); });
    is_refused("a welcome without a guest", [](auto& h) { h.say({.what = kind::welcome}); });
    is_refused("parts on lanes that there are not", [](auto& h) { h.say({.what = kind::striped, .bytes = 4096}); });
    is_refused("parts of a short message", [](auto& h) {
        h.s.allow_lanes(2);
        h.say({.what = kind::striped, .bytes = 4096});
    });
    is_refused("a wish for lanes where neither end has them", [](auto& h) { h.say({.what = kind::lane}); });
    is_refused("a lane too far", [](auto& h) {
        h.s.allow_lanes(2);
        h.say({.what = kind::lane, .bytes = 2});
    });
    is_refused("has received what wants no answer", [](auto& h) { h.say({.what = kind::received, .bytes = 1}); });
    is_refused("has received less than before", [](auto& h) { h.say({.what = kind::received, .bytes = UINT32_MAX}); });
    is_refused("longer than a slot, with an answer",
               [](auto& h) { h.say({.what = kind::answered, .bytes = half_open::shape.slot_bytes + 1}); });
    is_refused("an empty failure", [](auto& h) { h.say({.what = kind::failure}); });
    is_refused("words after the goodbye", [](auto& h) {
        h.say({.what = kind::bye});
        h.message(0, 10);
    });
}

TEST_CASE("random bytes, and good frames with random bits turned, never do harm") {
    std::mt19937 random(20261121);
    const auto below = [&](unsigned n) { return random() % n; };
    int ended = 0;
    for (int round = 0; round < 400; ++round) {
        half_open h;
        std::vector<receiving_end> rx;
        for (int p = 0; p < 5; ++p) rx.push_back(h.s.rx(p));
        std::vector<std::byte> bytes;
        for (int f = 0; f < 30; ++f) {
            stream_frame frame{.what = static_cast<kind>(below(5) == 0 ? 2 + below(5) : 1),
                               .at_port = static_cast<std::uint8_t>(below(5)),
                               .bytes = static_cast<std::uint32_t>(below(4) == 0 ? below(4097) : below(120))};
            if (frame.what != kind::message) frame.bytes = 1;
            const auto* head = reinterpret_cast<const std::byte*>(&frame);
            bytes.insert(bytes.end(), head, head + sizeof frame);
            if (frame.what == kind::message) bytes.resize(bytes.size() + frame.bytes, std::byte{1});
        }
        for (unsigned i = below(4); i > 0; --i)
            bytes[below(static_cast<unsigned>(bytes.size()))] ^= std::byte(1u << below(8));
        for (std::size_t at = 0; at < bytes.size() && h.s.is_live();) {
            const std::size_t n = std::min<std::size_t>(bytes.size() - at, 1 + below(3000));
            (void)::send(h.test.get(), bytes.data() + at, n, MSG_NOSIGNAL);
            at += n;
            h.s.move();
            for (auto& end : rx)
                while (end.has_message()) end.release(0);
        }
        ended += !h.s.is_live();
    }
    CHECK(ended > 100);
}

TEST_CASE("strangers cost the listener nothing, and ranks get in among them") {
    const int before = open_files();
    {
        socket_address a = loopback(false);
        descriptor listener = socket_hub::listen_on(a);
        socket_hub hub(std::move(listener), "0123456789abcdef0123456789abcdef", {a, a}, 1'000'000'000);
        std::vector<descriptor> strangers;
        const auto send_as_stranger = [&](const void* bytes, std::size_t n) {
            descriptor s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
            if (::connect(s.get(), a.get(), a.bytes) != 0) std::abort();
            (void)::send(s.get(), bytes, n, MSG_NOSIGNAL);
            strangers.push_back(std::move(s));
        };
        detail::stream_hello h;
        h.communicator = 42;
        h.from = 1;
        h.set_token("0123456789abcdef0123456789abcdef", 32);
        const auto changed = [&](auto&& change) {
            detail::stream_hello other = h;
            change(other);
            send_as_stranger(&other, sizeof other);
        };
        int came = 0;
        // Until `expected` connections have arrived, and a little longer. (A busy machine may take a while.)
        const auto look = [&](std::uint64_t id, int expected) {
            const deadline until = deadline::in_ns(collx_test::patient(20'000'000'000));
            for (int i = 0; i < 20 || (came < expected && !until.passed()); ++i) {
                hub.look(id,
                         [&](const detail::stream_hello& heard, descriptor, const auto&) { came += heard.from == 1; });
                ::usleep(500);
            }
        };
        send_as_stranger("GET / HTTP/1.0\r\n\r\n", 18);
        send_as_stranger("", 0);
        send_as_stranger(&h, 30); // half a hello
        changed([](auto& x) { x.token[31] ^= 1; });
        changed([](auto& x) { x.token[0] = 0; });
        changed([](auto& x) { x.magic ^= 1; });
        changed([](auto& x) { x.from_side = static_cast<detail::stream_hello::side>(3); });
        look(42, 0);
        CHECK(came == 0);
        send_as_stranger(&h, sizeof h);
        changed([](auto& x) { x.communicator = 43; });
        look(42, 1);
        CHECK(came == 1);
        look(43, 2); // it waited until its receiver asked for it
        CHECK(came == 2);
        for (int i = 0; i < 200; ++i) send_as_stranger("x", 1);
        changed([](auto& x) { x.communicator = 44; });
        look(44, 3); // the connection that was silent longest had to go
        CHECK(came == 3);
    }
    CHECK(open_files() == before);
}

TEST_CASE("strangers at the listener leave the job its descriptors") {
    rlimit usual{};
    ::getrlimit(RLIMIT_NOFILE, &usual);
    socket_address a = loopback(false);
    descriptor listener = socket_hub::listen_on(a);
    socket_hub hub(std::move(listener), "0123456789abcdef0123456789abcdef", {a, a}, 1'000'000'000);
    const auto look = [&] { hub.look(42, [](const detail::stream_hello&, descriptor, const auto&) {}); };
    std::vector<descriptor> strangers, filler;
    for (int i = 0; i < 80; ++i) strangers.push_back(descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
    const int before = open_files();
    const rlimit low{static_cast<rlim_t>(before + 60), usual.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &low);
    const int share = static_cast<int>(low.rlim_cur / 4);
    int held = 0;
    for (const descriptor& s : strangers) {
        const bool is_connected = ::connect(s.get(), a.get(), a.bytes) == 0;
        look();
        const int now = is_connected ? open_files() - before : 1000;
        if (now > held) held = now;
    }
    while (filler.empty() || filler.back().is_open()) filler.push_back(descriptor(::dup(0)));
    descriptor own = hub.connect_to(1); // takes the place of the oldest stranger
    ::setrlimit(RLIMIT_NOFILE, &usual); // no CHECK before this: sanitizers need descriptors for it
    CHECK(own.is_open());
    CHECK(held <= share + 1);
    CHECK(held >= 8);
}

namespace {

// Large messages between two buffers of the test.
struct remote_pair {
    static constexpr std::size_t bytes = 12 << 20; // more than the system buffers, also with three lanes
    std::vector<std::byte> from, to;
    remote_pair() : from(bytes), to(bytes, std::byte{0xee}) { fill_message(from.data(), 1, bytes); }
    bool is_there() const { return std::memcmp(to.data(), from.data(), bytes) == 0; } // == takes seconds under TSan
};
constexpr channel_shape remote_shape{.depth = 4, .slot_bytes = remote_pair::bytes};

} // namespace

TEMPLATE_TEST_CASE("what is committed as a single copy is sent from where it is, and arrives in a pre-posted buffer",
                   "", tcp4, local, bad_tcp, tcp_lanes, bad_lanes, local_lanes, shared_tcp, bad_shared) {
    TestType world(remote_shape);
    auto tx = world.left.tx(1);
    auto rx = world.right.rx(1);
    remote_pair a;
    for (int i = 0; i < 6; ++i) {
        std::memset(a.to.data(), 0xee, a.bytes);
        REQUIRE(tx.has_room(a.bytes));
        tx.commit_single_copy(a.from.data(), a.bytes, 7);
        CHECK(!tx.has_all_back());
        rx.want_at(a.to.data(), a.bytes, 7);
        REQUIRE(wait_until([&] {
            world.left.move();
            world.right.move();
            return rx.has_message();
        }));
        CHECK(rx.is_expected(a.bytes, 7));
        REQUIRE(rx.is_posted());
        CHECK(a.is_there());
        rx.release_posted();
        CHECK(wait_until([&] {
            world.left.move();
            world.right.move();
            return tx.has_all_back();
        }));
    }
    // Without a posted receive, or with one for another tag, the message arrives in a slot.
    for (const std::uint32_t tag : {0u, 8u}) {
        tx.commit_single_copy(a.from.data(), 100'000, 7);
        if (tag != 0) rx.want_at(a.to.data(), 100'000, tag);
        REQUIRE(wait_until([&] {
            world.left.move();
            world.right.move();
            return rx.has_message();
        }));
        CHECK(!rx.is_posted());
        CHECK(is_message(rx.peek(100'000), 1, 100'000));
        rx.release(100'000);
    }
}

TEST_CASE("a large message waits a few looks for a receiver that has pre-posted others, no more") {
    tcp4 world(remote_shape);
    auto tx = world.left.tx(1), other = world.left.tx(2);
    auto rx = world.right.rx(1), other_rx = world.right.rx(2);
    remote_pair a;
    rx.want_at(a.to.data(), 100'000, 0);
    tx.commit_single_copy(a.from.data(), 100'000, 0);
    REQUIRE(wait_until([&] {
        world.left.move();
        world.right.move();
        return rx.has_message();
    }));
    rx.release_posted();
    tx.commit_single_copy(a.from.data(), 100'000, 0);
    REQUIRE(wait_until([&] {
        world.left.move();
        return tx.has_all_back();
    }));
    other.commit(0);
    REQUIRE(wait_until([&] {
        world.left.move();
        return world.left.is_flushed();
    }));
    REQUIRE(wait_until([&] { return world.right.move(); })); // reads its head
    for (int looks = 1; looks < stream::most_looks; ++looks) {
        CHECK(world.right.move()); // data is pending: neither end may sleep
        CHECK(!rx.has_message());
    }
    rx.want_at(a.to.data(), 100'000, 0);
    REQUIRE(wait_until([&] {
        world.right.move();
        return rx.has_message();
    }));
    CHECK(rx.is_posted());
    rx.release_posted();
    REQUIRE(wait_until([&] {
        world.right.move();
        return other_rx.has_message();
    }));
    other_rx.release(0);
    tx.commit_single_copy(a.from.data(), 100'000,
                          0); // no receive is posted: later messages arrive nevertheless
    other.commit(0);
    REQUIRE(wait_until([&] {
        world.left.move();
        return world.left.is_flushed();
    }));
    CHECK(wait_until([&] {
        world.right.move();
        return other_rx.has_message();
    }));
    CHECK((rx.has_message() && !rx.is_posted()));
    rx.release(100'000);
    for (const bool posts : {true, false}) { // all of it has arrived, so the socket does not become readable again
        if (posts) rx.want_at(a.to.data(), stream::least_posted_bytes, 0);
        tx.commit_single_copy(a.from.data(), stream::least_posted_bytes, 0);
        REQUIRE(wait_until([&] {
            world.left.move();
            return tx.has_all_back();
        }));
        REQUIRE(wait_until([&] { return world.right.move(); }));
        CHECK(wait_until([&] {
            world.right.move(posts ? stream::socket_has::unknown : stream::socket_has::nothing);
            return rx.has_message();
        }));
        REQUIRE(rx.is_posted() == posts);
        if (posts) rx.release_posted();
    }
}

namespace {

int receiving_calls = 0;
ssize_t counted_recvmsg(int fd, msghdr* m, int flags) {
    ++receiving_calls;
    return ::recvmsg(fd, m, flags);
}
constexpr socket_calls counting_calls{::socket, ::connect, ::accept4, ::sendmsg, counted_recvmsg, ::epoll_wait};

// A stream that has received one large message on port 1; its peer is the test.
struct after_a_large_one {
    static constexpr std::size_t bytes = 40'000, most = 64 * 1024;
    stream s{counting_calls, {.depth = 4, .slot_bytes = most}, 5};
    descriptor test;
    std::vector<std::byte> line, wanted = std::vector<std::byte>(bytes, std::byte{0xee});
    receiving_end rx = s.rx(1), other = s.rx(2), third = s.rx(3);
    after_a_large_one() {
        auto [a, b] = connection(AF_UNIX);
        s.open(std::move(a), false);
        test = std::move(b);
        add(1, bytes, 1);
        say();
        REQUIRE(wait_until([&] {
            s.move();
            return rx.has_message();
        }));
        rx.release(bytes);
    }
    void add(int port, std::size_t n, std::uint64_t seed, unsigned filler_units = 0) {
        const stream_frame f{.at_port = static_cast<std::uint8_t>(port),
                             .filler_units = static_cast<std::uint8_t>(filler_units),
                             .bytes = static_cast<std::uint32_t>(n)};
        const std::size_t at = line.size(), head = sizeof f + filler_of(f);
        line.resize(at + head + n);
        std::memcpy(line.data() + at, &f, sizeof f);
        fill_message(line.data() + at + head, seed, n);
    }
    void say() {
        REQUIRE(::send(test.get(), line.data(), line.size(), 0) == static_cast<ssize_t>(line.size()));
        line.clear();
    }
    // Everything sent has arrived at the first look; one call reads as much as fits.
    int calls_of_a_look() {
        receiving_calls = 0;
        CHECK(s.move());
        return receiving_calls;
    }
};

} // namespace

TEST_CASE("a large message like the last is read where it goes by one call") {
    after_a_large_one w;
    w.add(1, w.bytes, 2);
    w.say();
    CHECK(w.calls_of_a_look() == 1);
    REQUIRE(w.rx.has_message());
    CHECK(is_message(w.rx.peek(w.bytes), 2, w.bytes));
    w.rx.release(w.bytes);
    for (const std::uint64_t seed : {3, 4}) {
        w.rx.want_at(w.wanted.data(), w.bytes, 0);
        w.add(1, w.bytes, seed);
        w.say();
        CHECK(w.calls_of_a_look() == 1);
        REQUIRE((w.rx.has_message() && w.rx.is_posted()));
        CHECK(is_message(w.wanted.data(), seed, w.bytes));
        w.rx.release_posted();
    }
}

TEST_CASE("what comes where another message was expected is put right") {
    after_a_large_one w;
    const auto all_came = [&](std::size_t at_third) {
        REQUIRE(wait_until([&] {
            w.s.move();
            return w.rx.has_message() && w.third.has_message();
        }));
        REQUIRE(w.third.is_expected(at_third));
        CHECK(is_message(w.third.peek(at_third), 6, at_third));
        w.third.release(at_third);
    };
    for (const bool is_wanted : {false, true, true}) { // into a slot, or into the wanted buffer
        if (is_wanted) w.rx.want_at(w.wanted.data(), w.bytes, 0);
        w.add(2, 100, 5);
        w.add(3, 30'000, 6);
        w.add(1, w.bytes, 7);
        w.say();
        all_came(30'000);
        REQUIRE(w.other.has_message());
        CHECK(is_message(w.other.peek(100), 5, 100));
        w.other.release(100);
        REQUIRE(w.rx.is_posted() == is_wanted);
        CHECK(is_message(is_wanted ? w.wanted.data() : w.rx.peek(w.bytes), 7, w.bytes));
        w.rx.release(w.bytes);
        // a large one again, so that the next is predicted
        w.add(1, w.bytes, 1);
        w.say();
        REQUIRE(wait_until([&] {
            w.s.move();
            return w.rx.has_message();
        }));
        w.rx.release(w.bytes);
    }
    w.rx.want_at(w.wanted.data(), w.bytes, 0);
    // a larger one of another port: it takes all that was read
    w.add(3, w.most, 6);
    w.add(1, w.bytes, 7);
    w.say();
    all_came(w.most);
    REQUIRE(w.rx.is_posted());
    CHECK(is_message(w.wanted.data(), 7, w.bytes));
    w.rx.release_posted();
    w.rx.want_at(w.wanted.data(), w.bytes, 0);
    // another size than the receiver expects, which it must detect
    w.add(1, w.most, 8);
    w.say();
    REQUIRE(wait_until([&] {
        w.s.move();
        return w.rx.has_message();
    }));
    CHECK(!w.rx.is_expected(w.bytes));
    CHECK(is_message(w.rx.peek(w.most), 8, w.most));
}

TEST_CASE("what fills up to the payload of a large message goes nowhere, expected or not, whole or in two goes") {
    after_a_large_one w;
    for (const bool is_wanted : {false, true})
        for (unsigned before = 0; before <= 3; ++before)
            for (unsigned now = 0; now <= 3; ++now) {
                INFO("wanted " << is_wanted << " filler units " << before << ", then " << now);
                w.add(1, w.bytes, 1, before);
                w.say();
                REQUIRE(wait_until([&] {
                    w.s.move();
                    return w.rx.has_message();
                }));
                CHECK(is_message(w.rx.peek(w.bytes), 1, w.bytes));
                w.rx.release(w.bytes);
                if (is_wanted) w.rx.want_at(w.wanted.data(), w.bytes, 0);
                w.add(1, w.bytes, 2, now);
                w.add(2, 100, 3);
                w.say();
                if (now == before && !is_wanted) CHECK(w.calls_of_a_look() == 1);
                REQUIRE(wait_until([&] {
                    w.s.move();
                    return w.rx.has_message() && w.other.has_message();
                }));
                REQUIRE(w.rx.is_posted() == is_wanted);
                CHECK(is_message(is_wanted ? w.wanted.data() : w.rx.peek(w.bytes), 2, w.bytes));
                CHECK(is_message(w.other.peek(100), 3, 100));
                w.rx.release(w.bytes);
                w.other.release(100);
                if (is_wanted) w.rx.want_at(w.wanted.data(), w.bytes, 0);
                for (const std::size_t cut : {3, 16, 20, 32, 64, 70}) { // sent in two parts
                    w.add(1, w.bytes, 4 + cut, now);
                    REQUIRE(::send(w.test.get(), w.line.data(), cut, 0) == static_cast<ssize_t>(cut));
                    w.s.move();
                    w.s.move();
                    const auto rest = w.line.size() - cut;
                    REQUIRE(::send(w.test.get(), w.line.data() + cut, rest, 0) == static_cast<ssize_t>(rest));
                    w.line.clear();
                    REQUIRE(wait_until([&] {
                        w.s.move();
                        return w.rx.has_message();
                    }));
                    CHECK(is_message(w.rx.is_posted() ? w.wanted.data() : w.rx.peek(w.bytes), 4 + cut, w.bytes));
                    w.rx.release(w.bytes);
                    if (is_wanted) w.rx.want_at(w.wanted.data(), w.bytes, 0);
                }
                if (!is_wanted) continue;
                // for the receive that is still posted
                w.add(1, w.bytes, 1, now);
                w.say();
                REQUIRE(wait_until([&] {
                    w.s.move();
                    return w.rx.has_message();
                }));
                w.rx.release(w.bytes);
            }
}

TEST_CASE("a large message lies in its cache line on the wire as it does in memory, a shorter one after one like it") {
    for (const std::size_t bytes : {200'000, 40'000})
        for (const std::size_t at : {0, 4, 16, 32, 48, 60}) {
            auto [a, b] = connection(AF_INET);
            stream s(system_socket_calls, {.depth = 4, .slot_bytes = 200'000}, 5);
            s.set_copy_mode(single_copy_mode::never);
            s.open(std::move(a), false);
            std::vector<std::byte> memory(bytes + 2 * 64), got(bytes + 64);
            std::byte* from = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64 + at;
            sending_end tx = s.tx(2);
            const std::size_t best = (at + 48) % 64 / 16 * 16;
            CHECK((sizeof(stream_frame) + best) % 64 == at / 16 * 16);
            for (const std::uint64_t seed : {8, 9}) {
                fill_message(from, seed, bytes);
                tx.commit_single_copy(from, bytes, 0);
                const std::size_t filler = bytes < 128 * 1024 && seed == 8 ? 0 : best,
                                  all = sizeof(stream_frame) + filler + bytes;
                for (std::size_t done = 0; done != all;) {
                    (void)s.move();
                    const ssize_t n = ::recv(b.get(), got.data() + done, all - done, MSG_DONTWAIT);
                    if (n > 0) done += static_cast<std::size_t>(n);
                    else REQUIRE((n < 0 && errno == EAGAIN));
                }
                stream_frame f;
                std::memcpy(&f, got.data(), sizeof f);
                INFO("at " << at << ", " << bytes << " bytes, message " << seed);
                CHECK(filler_of(f) == filler);
                CHECK(is_message(got.data() + sizeof f + filler, seed, bytes));
            }
        }
}

namespace {

// The last call's number of parts, and the address of the first.
struct noted_call {
    std::size_t parts = 0;
    const std::byte* at = nullptr;
    void note(const msghdr& m) {
        parts = m.msg_iovlen;
        at = static_cast<const std::byte*>(m.msg_iov->iov_base);
    }
};
noted_call last_sent, last_filled;
ssize_t noted_sendmsg(int fd, const msghdr* m, int flags) {
    last_sent.note(*m);
    return ::sendmsg(fd, m, flags);
}
ssize_t noted_recvmsg(int fd, msghdr* m, int flags) {
    const noted_call now{m->msg_iovlen, static_cast<const std::byte*>(m->msg_iov->iov_base)};
    const ssize_t got = ::recvmsg(fd, m, flags);
    if (got > 0) last_filled = now;
    return got;
}
constexpr socket_calls noting_calls{::socket, ::connect, ::accept4, noted_sendmsg, noted_recvmsg, ::epoll_wait};

} // namespace

TEST_CASE("a message of a slot goes out and comes in as one part, its head in front of it") {
    for (const channel_shape shape : {channel_shape{.depth = 4, .slot_bytes = 64 * 1024}, {2, 4096}, {3, 200}}) {
        auto [a, b] = connection(AF_UNIX);
        stream left(noting_calls, shape, 5), right(noting_calls, shape, 5);
        left.open(std::move(a), false);
        right.open(std::move(b), false);
        sending_end tx = left.tx(3);
        receiving_end rx = right.rx(3);
        const std::size_t bytes = shape.slot_bytes < 40'000 ? shape.slot_bytes : 40'000;
        for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
            const std::size_t n = seed % 2 == 0 && bytes > 4000 ? bytes : bytes / 3 * 2;
            fill_message(tx.try_acquire(n), seed, n);
            tx.commit(n);
            REQUIRE(left.move());
            CHECK(last_sent.parts == 1);
            REQUIRE(wait_until([&] {
                right.move();
                return rx.has_message();
            }));
            if (n < 16 * 1024 && seed > 1 && bytes < 16 * 1024) {
                CHECK(last_filled.parts == 1);
                CHECK(last_filled.at + sizeof(stream_frame) == rx.peek(n)); // read in place, not copied
            }
            CHECK(is_message(rx.peek(n), seed, n));
            rx.release(n);
            // credits
            (void)right.move();
            (void)left.move();
        }
    }
}

TEST_CASE("what comes with, before or instead of a message that is not large finds its place") {
    half_open h;
    receiving_end rx = h.s.rx(1), other = h.s.rx(2);
    std::vector<std::byte> line;
    const auto add = [&](int port, std::size_t n, std::uint64_t seed) {
        const stream_frame f{.at_port = static_cast<std::uint8_t>(port), .bytes = static_cast<std::uint32_t>(n)};
        const std::size_t at = line.size();
        line.resize(at + sizeof f + n);
        std::memcpy(line.data() + at, &f, sizeof f);
        fill_message(line.data() + at + sizeof f, seed, n);
    };
    const auto takes = [&](receiving_end& from, std::size_t n, std::uint64_t seed) {
        REQUIRE(wait_until([&] {
            h.s.move();
            return from.has_message();
        }));
        REQUIRE(from.is_expected(n));
        CHECK(is_message(from.peek(n), seed, n));
        from.release(n);
    };
    const auto first = [&] { // so that another one is predicted on port 1
        add(1, 1000, 9);
        h.say(line.data(), line.size());
        line.clear();
        takes(rx, 1000, 9);
    };
    for (const std::size_t cut : {0, 1, 15, 16, 17, 1015, 1016, 1020, 2032, 2040}) { // sent in two parts
        first();
        add(1, 1000, 1);
        add(1, 2000, 2);
        add(2, 50, 3);
        add(2, 3000, 4);
        add(1, 4096, 5);
        h.say(line.data(), cut);
        (void)h.s.move();
        (void)h.s.move();
        h.say(line.data() + cut, line.size() - cut);
        line.clear();
        takes(rx, 1000, 1);
        takes(rx, 2000, 2);
        takes(other, 50, 3);
        takes(other, 3000, 4);
        takes(rx, 4096, 5);
        first();
        // starts with another port's message
        add(2, 4000, 6);
        add(1, 10, 7);
        add(1, 200, 8);
        h.say(line.data(), cut < 10 ? cut : 10);
        (void)h.s.move();
        h.say(line.data() + (cut < 10 ? cut : 10), line.size() - (cut < 10 ? cut : 10));
        line.clear();
        takes(other, 4000, 6);
        takes(rx, 10, 7);
        takes(rx, 200, 8);
    }
    first();
    h.message(1, 5000); // larger than a slot
    CHECK(wait_until([&] {
        h.s.move();
        return !h.s.is_live();
    }));
    CHECK(h.s.is_nonsense());
}

TEMPLATE_TEST_CASE("after a failure nothing goes from or to the user's memory", "", tcp4, tcp_lanes) {
    for (const bool wanted : {false, true}) {
        TestType world(remote_shape);
        auto tx = world.left.tx(1);
        auto rx = world.right.rx(1);
        remote_pair a;
        tx.commit_single_copy(a.from.data(), a.bytes, 0);
        if (wanted) rx.want_at(a.to.data(), a.bytes, 0);
        world.left.move(); // a part is in transit
        REQUIRE(wait_until([&] {
            world.right.move();
            return !wanted || a.to[0] == a.from[0];
        })); // some has arrived
        REQUIRE(!tx.has_all_back());
        REQUIRE(!rx.has_message());
        if (wanted) world.right.settle();
        const auto original = a.from, arrived = a.to;
        CHECK((arrived[0] == original[0]) == wanted);
        world.left.settle();
        a.from.assign(a.bytes, std::byte{0xdd}); // the user's memory again
        REQUIRE(wait_until([&] {
            world.left.move();
            world.right.move();
            return rx.has_message();
        }));
        CHECK(a.to == arrived);
        CHECK(rx.is_posted() == wanted);
        if (!wanted) CHECK(std::memcmp(rx.peek(a.bytes), original.data(), a.bytes) == 0);
    }
}

TEMPLATE_TEST_CASE("when an end has left, nothing goes to its user's memory", "", tcp4, tcp_lanes) {
    for (const bool has_begun : {true, false}) {
        TestType world(remote_shape);
        auto tx = world.left.tx(1);
        auto rx = world.right.rx(1);
        remote_pair a;
        rx.want_at(a.to.data(), a.bytes, 0);
        tx.commit_single_copy(a.from.data(), a.bytes, 0);
        if (has_begun) { // a part is in transit, and some of it has arrived
            world.left.move();
            REQUIRE(wait_until([&] {
                world.right.move();
                return a.to[0] == a.from[0];
            }));
        }
        REQUIRE(!rx.has_message());
        CHECK((a.to[0] == a.from[0]) == has_begun);
        const auto before = a.to;
        world.right.say_bye();
        REQUIRE(wait_until([&] {
            world.left.move();
            world.right.move();
            return rx.has_message();
        }));                     // in its slot
        CHECK((a.to == before)); // not shown where they differ: there are 12 MiB
    }
}

// ---------------------------------------------------------------------------------------------- more lanes

TEMPLATE_TEST_CASE("large messages go over all lanes, small ones over one, and all of them in order", "", tcp_lanes,
                   bad_lanes, local_lanes) {
    constexpr std::size_t least = detail::stream_lanes::least_bytes;
    constexpr std::size_t large[] = {least + 1, 10, 1 << 20, 0, least, least - 1, 700'001, 70'000, 1'000'003};
    TestType world({.depth = 4, .slot_bytes = 1 << 20});
    std::uint64_t sent[2] = {}, got[2] = {};
    sending_end tx[2] = {world.left.tx(0), world.left.tx(4)};
    receiving_end rx[2] = {world.right.rx(0), world.right.rx(4)};
    const auto size_of = [&](int p, std::uint64_t m) { return p == 1 ? m % 3 * 60 : large[m % std::size(large)]; };
    constexpr std::uint64_t messages = 45;
    REQUIRE(wait_until([&] {
        for (int p = 0; p < 2; ++p) {
            const std::size_t bytes = size_of(p, sent[p]);
            if (std::byte* to = sent[p] < messages ? tx[p].try_acquire(bytes) : nullptr) {
                fill_message(to, sent[p], bytes);
                tx[p].commit(bytes, static_cast<std::uint32_t>(sent[p]++));
            }
            world.left.move();
            world.right.move();
            if (!rx[p].has_message()) continue;
            const std::size_t expected = size_of(p, got[p]);
            if (!rx[p].is_expected(expected, static_cast<std::uint32_t>(got[p])) ||
                !is_message(rx[p].peek(expected), got[p], expected))
                throw std::runtime_error("message " + std::to_string(got[p]) + " of port " + std::to_string(p));
            rx[p].release(expected);
            ++got[p];
        }
        return got[0] == messages && got[1] == messages;
    }));
    CHECK(wait_until([&] {
        world.left.move();
        world.right.move();
        return world.left.is_flushed();
    }));
    if constexpr (!std::is_same_v<TestType, local_lanes>) {
        std::size_t all = 0; // of the messages that are large enough for lanes
        for (std::uint64_t m = 0; m < messages; ++m) all += size_of(0, m) >= least ? size_of(0, m) : 0;
        const auto lanes = static_cast<std::size_t>(world.left.lanes());
        for (int k = 1; k < world.left.lanes(); ++k) {
            CHECK(world.bytes_over(k) > all / lanes * 99 / 100);
            CHECK(world.bytes_over(k) < all / lanes * 101 / 100);
        }
    }
}

TEST_CASE("without its lanes a stream sends large messages over one, and asks for them") {
    tcp4 world({.depth = 2, .slot_bytes = 1 << 20});
    world.left.allow_lanes(3);
    world.right.allow_lanes(3);
    auto tx = world.left.tx(1);
    auto rx = world.right.rx(1);
    const auto send = [&](std::size_t bytes) {
        fill_message(tx.try_acquire(bytes), 1, bytes);
        tx.commit(bytes);
        REQUIRE(wait_until([&] {
            world.left.move();
            world.right.move();
            return rx.has_message();
        }));
        CHECK(is_message(rx.peek(bytes), 1, bytes));
        rx.release(bytes);
    };
    send(1000);
    CHECK((!world.left.wants_lanes() && !world.right.wants_lanes()));
    send(1 << 20);
    CHECK((world.left.wants_lanes() && world.right.wants_lanes()));
    for (int k = 1; k < 3; ++k) {
        auto [a, b] = connection(AF_INET);
        CHECK(!world.right.has_arrived(k, 1));
        world.left.adopt_lane(k, 7, std::move(a), {});
        CHECK(wait_until([&] {
            world.left.move();
            world.right.move();
            return world.right.has_arrived(k, 7);
        }));
        CHECK(!world.right.has_arrived(k, 6)); // not an earlier attempt
        if (k == 2) {                          // the other end may use the lanes before this one knows
            fill_message(tx.try_acquire(1 << 20), 1, 1 << 20);
            tx.commit(1 << 20);
            for (int i = 0; i < 50; ++i) {
                world.left.move();
                world.right.move();
            }
            CHECK(!rx.has_message());
        }
        world.right.use_lane(k, std::move(b), {});
    }
    REQUIRE(wait_until([&] {
        world.left.move();
        world.right.move();
        return rx.has_message();
    }));
    CHECK(is_message(rx.peek(1 << 20), 1, 1 << 20));
    rx.release(1 << 20);
    CHECK((!world.left.wants_lanes() && !world.right.wants_lanes()));
}

TEST_CASE("a stream ends with any of its lanes, whether something is on its way there or not") {
    for (const int k : {1, 2})
        for (const bool busy : {false, true}) {
            tcp_lanes world({.depth = 4, .slot_bytes = 16 << 20});
            auto tx = world.left.tx(1);
            auto rx = world.right.rx(1);
            if (busy) {
                fill_message(tx.try_acquire(16 << 20), 1, 16 << 20);
                tx.commit(16 << 20);
                world.left.move();
                world.right.move();
                REQUIRE(!rx.has_message());
            }
            world.left.release_lane(k);
            CHECK(wait_until([&] {
                world.right.move();
                return !world.right.is_live();
            }));
            CHECK(world.right.state() == stream::phase::lost);
            CHECK(!world.right.is_nonsense());
            CHECK(!rx.has_message());
            CHECK(wait_until([&] {
                world.left.move();
                return !world.left.is_live();
            }));
            CHECK(world.left.state() == stream::phase::lost);
        }
}

TEST_CASE("a goodbye that overtakes other lanes does not end the stream before they have brought all") {
    for (const bool breaks : {false, true}) {
        constexpr std::size_t bytes = 1 << 20;
        local world({.depth = 2, .slot_bytes = bytes});
        world.left.allow_lanes(2);
        world.right.allow_lanes(2);
        auto ends = connection(AF_UNIX);
        auto &a = ends.first, &b = ends.second;
        auto [c, d] = connection(AF_UNIX); // the test forwards what b receives to c, when it likes
        world.left.use_lane(1, std::move(a), {});
        world.right.use_lane(1, std::move(d), {});
        auto tx = world.left.tx(1);
        auto rx = world.right.rx(1);
        fill_message(tx.try_acquire(bytes), 5, bytes);
        tx.commit(bytes);
        world.left.say_bye();
        std::vector<char> held;
        REQUIRE(wait_until([&] {
            world.left.move();
            world.right.move();
            char some[4096];
            for (ssize_t n; (n = ::recv(b.get(), some, sizeof some, MSG_DONTWAIT)) > 0;)
                held.insert(held.end(), some, some + n);
            return world.left.has_said_bye();
        }));
        (void)world.left.release_socket(); // the leading lane's socket
        for (int i = 0; i < 300; ++i) world.right.move();
        CHECK(world.right.is_live());
        CHECK(!rx.has_message());
        if (breaks) {
            c.close();
            CHECK(wait_until([&] {
                world.right.move();
                return !world.right.is_live();
            }));
            CHECK(world.right.state() == stream::phase::lost);
            continue;
        }
        for (std::size_t at = 0; at < held.size();) {
            const ssize_t n = ::send(c.get(), held.data() + at, held.size() - at, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n > 0) at += static_cast<std::size_t>(n);
            world.right.move();
        }
        CHECK(wait_until([&] {
            world.right.move();
            return !world.right.is_live();
        }));
        CHECK(world.right.state() == stream::phase::left);
        REQUIRE(rx.has_message());
        CHECK(is_message(rx.peek(bytes), 5, bytes));
    }
}

namespace {

// recvmsg() fails for lack of memory on this descriptor.
struct short_of_memory {
    static inline int fd = -1;
    static ssize_t recvmsg(int at, msghdr* m, int flags) {
        if (at == fd) {
            errno = ENOMEM;
            return -1;
        }
        return ::recvmsg(at, m, flags);
    }
};
constexpr socket_calls short_of_memory_calls{::socket,    ::connect, ::accept4, ::sendmsg, short_of_memory::recvmsg,
                                             ::epoll_wait};

} // namespace

TEST_CASE("who has said goodbye is not lost because the end of another lane is seen before it") {
    constexpr channel_shape shape{.depth = 2, .slot_bytes = 4096};
    stream left(system_socket_calls, shape, 5), right(short_of_memory_calls, shape, 5);
    auto [a, b] = connection(AF_UNIX);
    auto [c, d] = connection(AF_UNIX);
    short_of_memory::fd = b.get();
    left.open(std::move(a), false);
    right.open(std::move(b), false);
    left.allow_lanes(2);
    right.allow_lanes(2);
    left.use_lane(1, std::move(c), {});
    right.adopt_lane(1, 1, std::move(d), {});
    auto tx = left.tx(1);
    auto rx = right.rx(1);
    fill_message(tx.try_acquire(4096), 5, 4096);
    tx.commit(4096);
    left.say_bye();
    REQUIRE(wait_until([&] {
        left.move();
        return left.has_said_bye();
    }));
    (void)left.release_lane(1);
    (void)left.release_socket();
    for (int i = 0; i < 300; ++i) right.move(); // checks idle lanes now and then
    CHECK(right.is_live());
    short_of_memory::fd = -1;
    CHECK(wait_until([&] {
        right.move();
        return !right.is_live();
    }));
    CHECK(right.state() == stream::phase::left);
    REQUIRE(rx.has_message());
    CHECK(is_message(rx.peek(4096), 5, 4096));
}

// ---------------------------------------------------------------------------------------------- unix listeners
namespace {

constexpr char a_token[] = "0123456789abcdef0123456789abcdef";
constexpr channel_shape small_shape{.depth = 2, .slot_bytes = page_bytes};

// A connect() that is refused for now, as by a unix socket whose queue is full.
struct full_queue {
    static inline std::atomic<int> left{0};
    static int connect(int fd, const sockaddr* a, socklen_t bytes) {
        if (left.fetch_sub(1) > 0) {
            errno = EAGAIN;
            return -1;
        }
        return ::connect(fd, a, bytes);
    }
};
constexpr socket_calls full_queue_calls{::socket, full_queue::connect, ::accept4, ::sendmsg, ::recvmsg, ::epoll_wait};

// Runs f as another user; returns false where this process may not do that.
template <class F>
bool as_another_user(F&& f) {
    if (::geteuid() != 0) return false;
    const pid_t child = ::fork();
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::alarm(static_cast<unsigned>(collx_test::patient_s(20)));
        if (::setresuid(65534, 65534, 65534) != 0) ::_exit(1);
        ::_exit(f() ? 0 : 2);
    }
    int status = 1;
    return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

} // namespace

TEST_CASE("names of unix sockets are of one length, and what is no name of ours is not taken for one") {
    const std::string name = detail::new_unix_name();
    CHECK(detail::is_unix_name(name));
    CHECK(name != detail::new_unix_name());
    for (const char* directory : {"", "/run/collx"}) {
        const socket_address a = detail::unix_address(directory, name);
        CHECK(a.is_unix());
        CHECK(detail::unix_name_of(a) == name);
    }
    for (const char* other :
         {"", "collx", "../../../etc/passwd-aaaaaa", "collx0123456789abcde/0123", "collx0123456789ABCDEF0123"})
        CHECK(!detail::is_unix_name(other));
    CHECK_THROWS_AS(detail::unix_address(std::string(100, 'd'), name), error);
}

TEST_CASE("a rank comes through a unix listener with a long queue, and a closed one is found gone") {
    socket_address at[2];
    descriptor listeners[2];
    for (int r = 0; r < 2; ++r) {
        at[r] = detail::unix_address("", detail::new_unix_name());
        listeners[r] = socket_hub::listen_on(at[r]);
    }
    const std::vector<socket_address> peers{at[0], at[1]};
    auto zero = make_counted<socket_hub>(std::move(listeners[0]), a_token, peers, 0, full_queue_calls);
    auto one = make_counted<socket_hub>(std::move(listeners[1]), a_token, peers, 0, full_queue_calls);
    CHECK(one->is_unix());
    collx::atomic<std::uint64_t> failed{0}, other_failed{0};
    {
        full_queue::left = 3;
        remote_links here(one, {.id = 1, .rank = 1, .ranks = {0, 1}, .shape = small_shape, .ports = 1});
        remote_links there(zero, {.id = 1, .rank = 0, .ranks = {0, 1}, .shape = small_shape, .ports = 1});
        here.begin(failed);
        there.begin(other_failed);
        auto tx = here.tx(0, 0);
        auto rx = there.rx(0, 1);
        tx.commit(0, 9);
        CHECK(wait_until([&] {
            here.move();
            there.move();
            return rx.has_message();
        }));
        CHECK(full_queue::left < 0);
        CHECK((failed.load() == 0 && other_failed.load() == 0));
        here.say_bye();
        there.say_bye();
    }
    zero = {};
    for (const int rank : {0, 1}) { // a closed listener refuses every connection at once
        socket_address mine = detail::unix_address("", detail::new_unix_name());
        descriptor listener = socket_hub::listen_on(mine);
        auto hub = make_counted<socket_hub>(std::move(listener), a_token,
                                            rank == 0 ? std::vector{mine, at[0]} : std::vector{at[0], mine}, 0);
        failed.store(0);
        remote_links links(hub, {.id = 2, .rank = rank, .ranks = {0, 1}, .shape = small_shape, .ports = 1});
        links.begin(failed);
        (void)links.tx(0, 1 - rank);
        CHECK(wait_until([&] {
            links.move();
            return links.find_gone(1 - rank, now_ns()) == 1 - rank;
        }));
        CHECK(failed.load() == 0);
        links.say_bye();
    }
}

TEST_CASE("a child that fork() made ends without a word to others and leaves the listener") {
    char directory[] = "/tmp/collx-listener-XXXXXX";
    REQUIRE(::mkdtemp(directory) != nullptr);
    socket_address at = detail::unix_address(directory, detail::new_unix_name());
    const char* const file = reinterpret_cast<const sockaddr_un&>(at.address).sun_path;
    descriptor listener = socket_hub::listen_on(at);
    {
        auto hub = make_counted<socket_hub>(std::move(listener), a_token, std::vector{at},
                                            collx_test::patient(20'000'000'000));
        auto [here, there] = connection(AF_UNIX);
        auto left = make_sole<stream>(system_socket_calls, small_shape, 1);
        left->open(std::move(here), false);
        sending_end tx = left->tx(0);
        for (int i = 0; i < small_shape.depth; ++i) {
            REQUIRE(tx.try_acquire(8) != nullptr);
            tx.commit(8);
        }
        left->push();
        REQUIRE(tx.try_acquire(8) != nullptr); // waits for a free slot at the peer
        tx.commit(8);
        left->say_bye();
        hub->linger(std::move(left));
        processes p;
        p.start(0, [&] {
            hub = {}; // as at the end of the program
            return 0;
        });
        p.wait();
        CHECK(p[0].exit_code == 0);
        CHECK(p[0].took_ns < collx_test::patient(10'000'000'000));
        CHECK(::access(file, F_OK) == 0);
        hub->shorten_linger(0);
    }
    CHECK(::access(file, F_OK) != 0);
    ::rmdir(directory);
}

namespace {

// A process without memory or without descriptors for a connection that waits at its listener.
struct narrow_listener {
    static inline int throws_after = 0;
    static inline int refusal = 0;         // errno of calls that would make a descriptor
    static inline bool may_accept = false; // all the same
    static int accept4(int fd, sockaddr* a, socklen_t* bytes, int flags) {
        if (throws_after > 0 && --throws_after == 0) throw std::bad_alloc();
        if (refusal == 0 || may_accept) return ::accept4(fd, a, bytes, flags);
        errno = refusal;
        return -1;
    }
    static int socket(int domain, int type, int protocol) {
        if (refusal == 0) return ::socket(domain, type, protocol);
        errno = refusal;
        return -1;
    }
};
constexpr socket_calls narrow_calls{
    narrow_listener::socket, ::connect, narrow_listener::accept4, ::sendmsg, ::recvmsg, ::epoll_wait};

} // namespace

TEST_CASE("an exception while connections are moved on keeps no rank out for ever") {
    processes p; // in a process, so that a hang ends
    p.start(0, [] {
        socket_address at[2] = {loopback(false), loopback(false)};
        descriptor listener = socket_hub::listen_on(at[0]), other_listener = socket_hub::listen_on(at[1]);
        auto hub = make_counted<socket_hub>(std::move(listener), a_token, std::vector{at[0], at[1]}, 0, narrow_calls);
        collx::atomic<std::uint64_t> failed{0}, other_failed{0};
        remote_links links(hub, {.id = 1, .rank = 0, .ranks = {0, 1}, .shape = small_shape, .ports = 1});
        remote_links other(hub, {.id = 2, .rank = 0, .ranks = {0, 1}, .shape = small_shape, .ports = 1});
        links.begin(failed);
        other.begin(other_failed);
        (void)links.rx(0, 1);                          // makes every move() look at the listener
        for (remote_links* mover : {&links, &other}) { // on its own, and helped by the other
            narrow_listener::throws_after = 1;
            bool has_thrown = false;
            for (int i = 0; i < 100 && !has_thrown; ++i) {
                try {
                    (void)mover->move();
                } catch (const std::bad_alloc&) {
                    has_thrown = true;
                }
            }
            if (!has_thrown) return 2;
            (void)links.connections();
            (void)other.connections();
        }
        links.say_bye();
        other.say_bye();
        return 0;
    });
    p.wait(20'000);
    CHECK(p[0].exit_code == 0);
}

TEST_CASE(
    "a rank that gets no more descriptors says so, and blames neither who connects to it nor to whom it connects") {
    for (const int reason : {EMFILE, ENFILE, ENOMEM, ENOBUFS})
        for (const auto& [accepts, shares] : {std::pair{true, false}, {false, false}, {true, true}, {false, true}}) {
            CAPTURE(reason, accepts, shares);
            const std::uint64_t id = remote_members::id_of(1, shares);
            const int me = accepts ? 0 : 1;
            socket_address at[2] = {loopback(false), loopback(false)};
            descriptor listeners[2] = {socket_hub::listen_on(at[0]), socket_hub::listen_on(at[1])};
            if (accepts) at[1] = socket_address(); // not known yet, as during the exchange of addresses
            auto hub = make_counted<socket_hub>(std::move(listeners[me]), a_token, std::vector{at[0], at[1]}, me,
                                                narrow_calls);
            collx::atomic<std::uint64_t> failed{0};
            remote_links links(hub, {.id = id, .rank = me, .ranks = {0, 1}, .shape = small_shape, .ports = 1});
            links.begin(failed);
            narrow_listener::refusal = reason;
            narrow_listener::may_accept = !accepts;
            CHECK(hub->look(id, [](auto&&...) {}) == (accepts ? reason : 0));
            for (int i = 0; i < 1000; ++i) (void)links.move();
            CHECK(failed.load() == 0); // this rank waits for no other
            if (accepts) (void)links.rx(0, 1);
            else (void)links.tx(0, 0);
            (void)links.move();
            narrow_listener::refusal = 0;
            const auto what = collx::detail::shortage_of_descriptor(reason);
            CHECK(failed.load() == failure(errc::resource, me, what).word);
            CHECK((failure(failed.load()).code() == errc::resource && failure(failed.load()).rank() == me));
            CHECK(failure(failed.load()).short_of() == what);
            links.say_bye();
        }
}

TEST_CASE("a rank that has no memory for what comes says so to the sender, and does not blame it") {
    // Slots that no address space has room for.
    const channel_shape huge{.depth = 4, .slot_bytes = std::size_t{1} << 44};
    socket_address at[2] = {loopback(false), loopback(false)};
    descriptor listeners[2] = {socket_hub::listen_on(at[0]), socket_hub::listen_on(at[1])};
    const std::vector<socket_address> peers(at, at + 2);
    auto hub = make_counted<socket_hub>(std::move(listeners[0]), a_token, peers, 0);
    const auto other = make_counted<socket_hub>(std::move(listeners[1]), a_token, peers, 0);
    collx::atomic<std::uint64_t> failed{0};
    remote_links links(hub, {.id = 1, .rank = 0, .ranks = {0, 1}, .shape = huge, .ports = 5});
    links.begin(failed);
    const descriptor one = other->connect_to(0);
    const struct {
        detail::stream_hello hello;
        stream_frame head{.bytes = 8};
        char message[8] = {};
    } said{other->hello(1, 1, 0, huge)};
    REQUIRE(wait_until([&] { return ::send(one.get(), &said, sizeof said, MSG_NOSIGNAL) == sizeof said; }));
    REQUIRE(wait_until([&] {
        links.move();
        return failed.load() != 0;
    }));
    const failure why(failed.load());
    CHECK((why.code() == errc::resource && why.rank() == 0));
    stream_frame heard;
    ssize_t got = 0;
    REQUIRE(wait_until([&] {
        links.move();
        return (got = ::recv(one.get(), &heard, sizeof heard, MSG_DONTWAIT)) >= 0 || errno != EAGAIN;
    }));
    REQUIRE(got == sizeof heard);
    CHECK(heard.what == kind::failure);
    CHECK((std::uint64_t{heard.tag} << 32 | heard.bytes) == why.word);
    links.say_bye();
}

// The hubs of three ranks over TCP.
static std::vector<counted_ptr<socket_hub>> three_hubs() {
    socket_address at[3] = {loopback(false), loopback(false), loopback(false)};
    descriptor listeners[3];
    for (int r = 0; r < 3; ++r) listeners[r] = socket_hub::listen_on(at[r]);
    const std::vector<socket_address> peers(at, at + 3);
    std::vector<counted_ptr<socket_hub>> hubs;
    for (auto& listener : listeners) hubs.push_back(make_counted<socket_hub>(std::move(listener), a_token, peers, 0));
    return hubs;
}
static remote_members one_of_three(std::uint64_t id, int rank) {
    return {.id = id, .rank = rank, .ranks = {0, 1, 2}, .shape = small_shape, .ports = 1};
}

TEST_CASE("who has said goodbye is helped no more: its connections are the hub's, its word may be another's") {
    const std::vector<counted_ptr<socket_hub>> hubs = three_hubs();
    collx::atomic<std::uint64_t> failed[4]{};
    remote_links zero(hubs[0], one_of_three(1, 0)), one(hubs[1], one_of_three(1, 1)),
        leaving(hubs[2], one_of_three(1, 2)), staying(hubs[2], one_of_three(2, 2));
    zero.begin(failed[0]);
    one.begin(failed[1]);
    leaving.begin(failed[2]);
    staying.begin(failed[3]);
    sending_end tx[2] = {leaving.tx(0, 0), leaving.tx(0, 1)}, back = zero.tx(0, 2);
    (void)one.rx(0, 2);
    REQUIRE(wait_until([&] {
        (void)zero.move();
        (void)one.move();
        (void)leaving.move();
        return zero.connections() == 1 && one.connections() == 1 && leaving.connections() == 2;
    }));
    // One message more than there are free slots at the others, so that the goodbye has to wait.
    for (int i = 0; i <= small_shape.depth; ++i) {
        REQUIRE(wait_until([&] {
            leaving.move();
            return tx[0].try_acquire(8) != nullptr;
        }));
        tx[0].commit(8);
    }
    leaving.say_bye();
    REQUIRE(back.try_acquire(8) != nullptr);
    back.commit(8); // and one to receive
    REQUIRE(wait_until([&] {
        zero.move();
        return back.is_drained();
    }));
    failed[2].store(7);
    for (int i = 0; i < 3000; ++i) (void)staying.move();
    CHECK(leaving.connections() == 0);
    CHECK(failed[2].load() == 7);
    zero.say_bye();
    one.say_bye();
    staying.say_bye();
}

namespace {

// The hubs of two ranks.
void make_hubs(counted_ptr<socket_hub> (&hubs)[2]) {
    socket_address at[2] = {loopback(false), loopback(false)};
    descriptor listeners[2] = {socket_hub::listen_on(at[0]), socket_hub::listen_on(at[1])};
    const std::vector<socket_address> peers(at, at + 2);
    for (int r = 0; r < 2; ++r) hubs[r] = make_counted<socket_hub>(std::move(listeners[r]), a_token, peers, 0);
}
remote_members of(std::uint64_t id, int rank) { // a communicator of both
    return {.id = id, .rank = rank, .ranks = {0, 1}, .shape = small_shape, .ports = 1};
}

} // namespace

TEST_CASE("connections that come for communicators that have gone are closed when their other ends are") {
    counted_ptr<socket_hub> hubs[2];
    make_hubs(hubs);
    collx::atomic<std::uint64_t> failed[2]{};
    remote_links zero(hubs[0], of(1, 0)), one(hubs[1], of(1, 1));
    zero.begin(failed[0]);
    one.begin(failed[1]);
    const auto send = [](remote_links& from) {
        sending_end tx = from.tx(0, 0);
        REQUIRE(tx.try_acquire(8) != nullptr);
        tx.commit(8);
        REQUIRE(wait_until([&] {
            from.move();
            return tx.is_drained();
        }));
    };
    const auto move_both = [&] {
        for (int i = 0; i < 200; ++i) {
            (void)zero.move();
            (void)one.move();
        }
    };
    // Those that have come for communicators which are not made yet stay, with what their other ends said before they
    // ended.
    collx::atomic<std::uint64_t> early_failed{0}, late_failed{0};
    for (std::uint64_t id = 7; id < 7 + 2 * detail::few_strangers; ++id) {
        remote_links early(hubs[1], of(id, 1));
        early.begin(early_failed);
        send(early);
        early.say_bye();
    }
    move_both();

    const int before = open_files();
    for (std::uint64_t id = 100; id < 160; ++id) {
        collx::atomic<std::uint64_t> none[2]{};
        remote_links left(hubs[0], of(id, 0)), late(hubs[1], of(id, 1));
        left.begin(none[0]);
        late.begin(none[1]);
        left.say_bye();
        send(late); // connects
        move_both();
        late.say_bye();
        move_both();
    }
    CHECK(wait_until([&] {
        move_both();
        return open_files() - before < 20;
    }));

    remote_links late(hubs[0], of(7, 0));
    late.begin(late_failed);
    receiving_end rx = late.rx(0, 1);
    CHECK(wait_until([&] {
        late.move();
        one.move();
        return rx.has_message();
    }));
    CHECK(failed[0].load() == 0);
    CHECK(failed[1].load() == 0);
    late.say_bye();
    zero.say_bye();
    one.say_bye();
}

TEST_CASE("who connects to a communicator that the other end has left learns what ended it") {
    counted_ptr<socket_hub> hubs[2];
    make_hubs(hubs);
    std::uint64_t id = 2;
    for (const int late : {0, 1})
        for (const bool has_failed : {true, false})
            for (const bool comes_first : {true, false}) { // before the other end leaves
                const int left = 1 - late;
                collx::atomic<std::uint64_t> failed[2]{}, other_failed{0};
                remote_links other(hubs[left], of(1, left)); // moves the hub
                other.begin(other_failed);
                remote_links leaving(hubs[left], of(++id, left)), waiting(hubs[late], of(id, late));
                leaving.begin(failed[left]);
                waiting.begin(failed[late]);
                if (comes_first) (void)waiting.rx(0, left);
                for (int i = 0; comes_first && i < 50; ++i) waiting.move();
                if (has_failed) failed[left].store(failure(errc::aborted, left).word);
                leaving.say_bye();
                failed[left].store(failure(errc::timeout, late).word); // another communicator's by now
                if (!comes_first) (void)waiting.rx(0, left);
                CHECK(wait_until([&] {
                    waiting.move();
                    other.move();
                    return waiting.find_gone(left, collx::now_ns()) == left;
                }));
                const failure heard(failed[late].load());
                CHECK(static_cast<bool>(heard) == has_failed);
                if (has_failed) CHECK((heard.code() == errc::aborted && heard.rank() == left));
                CHECK(other_failed.load() == 0);
                waiting.say_bye();
                other.say_bye();
            }
}

namespace {

struct late_hearing {
    std::uint64_t heard = 0; // the failure's word
    int lost = -1;           // a rank whose connection has ended instead
};
// Rank 1 of 4 has ended; rank `first` found it and has met none of the others. What rank 2, which comes late, hears.
late_hearing hear_late(int first) {
    const auto of = [](int rank) {
        return remote_members{.id = 5, .rank = rank, .ranks = {0, 1, 2, 3}, .shape = small_shape, .ports = 2};
    };
    socket_address at[4];
    descriptor listeners[4];
    for (int r = 0; r < 4; ++r) {
        at[r] = detail::unix_address("", detail::new_unix_name());
        listeners[r] = socket_hub::listen_on(at[r]);
    }
    const auto hub_of = [&](int r) {
        return make_counted<socket_hub>(std::move(listeners[r]), a_token, std::vector(at, at + 4), 0);
    };
    late_hearing result;
    std::atomic<bool> is_over{false};
    std::thread late([&] {
        auto hub = hub_of(2);
        collx::atomic<std::uint64_t> failed{0};
        remote_links links(hub, of(2));
        links.begin(failed);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        (void)links.tx(1, first);
        int moves_after = 0; // when nothing more is said, what was said is there
        (void)wait_until([&] {
            if (is_over) ++moves_after;
            (void)links.move();
            if (result.lost < 0) result.lost = links.find_gone(first, now_ns());
            return failed.load() != 0 || result.lost >= 0 || moves_after > 100;
        });
        result.heard = failed.load();
    });
    const auto hub = hub_of(first);
    hub->set_near({1, 3 - first}); // these do not connect
    collx::atomic<std::uint64_t> failed{failure(errc::peer_failed, 1).word};
    remote_links links(hub, of(first));
    links.begin(failed);
    links.announce_failure(true);
    is_over = true;
    late.join();
    return result;
}

} // namespace

TEST_CASE("while ranks still connect, a failure waits for those that come late") {
    for (const int first : {0, 3}) { // a lower rank than the one that comes, or a higher one
        INFO("rank " << first << " found it");
        late_hearing one;
        // The failure waits for 200 ms: a rank that has no core for so long misses it, but not each time.
        for (int tries = 0; tries < 5 && failure(one.heard).code() != errc::peer_failed; ++tries)
            one = hear_late(first);
        CHECK(failure(one.heard).code() == errc::peer_failed);
        CHECK(failure(one.heard).rank() == 1);
        CHECK(one.lost == -1);
    }
}

TEST_CASE("a failure waits only for ranks that may still come, and not for ever") {
    struct {
        bool is_young, is_near, waits;
    } const cases[] = {{true, false, true}, {true, true, false}, {false, false, false}};
    for (const auto& c : cases) {
        CAPTURE(c.is_young, c.is_near);
        const auto time_to_announce = [&] {
            socket_address at[2] = {loopback(false), loopback(false)};
            descriptor listeners[2];
            for (int r = 0; r < 2; ++r) listeners[r] = socket_hub::listen_on(at[r]);
            const auto hub = make_counted<socket_hub>(std::move(listeners[0]), a_token, std::vector(at, at + 2), 0);
            if (c.is_near) hub->set_near({0, 1});
            collx::atomic<std::uint64_t> failed{failure(errc::peer_failed, 1).word};
            remote_links links(hub, {.id = 1, .rank = 0, .ranks = {0, 1}, .shape = small_shape, .ports = 1});
            links.begin(failed);
            const std::int64_t began = now_ns();
            links.announce_failure(c.is_young);
            return now_ns() - began;
        };
        constexpr std::int64_t limit = 200'000'000;
        std::int64_t took = time_to_announce();
        if (c.waits) CHECK(took >= limit);
        // It may be late because this thread had no core, but not each time.
        const std::int64_t most = c.waits ? collx_test::patient(5 * limit) : limit / 2;
        for (int tries = 1; tries < 10 && took >= most; ++tries) took = std::min(took, time_to_announce());
        CHECK(took < most);
    }
}

TEST_CASE("lanes that come too early, twice, from the wrong side or with a number that there is not do no harm") {
    socket_address at[2] = {loopback(false), loopback(false)};
    descriptor listeners[2] = {socket_hub::listen_on(at[0]), socket_hub::listen_on(at[1])};
    const std::vector<socket_address> peers{at[0], at[1]};
    auto zero = make_counted<socket_hub>(std::move(listeners[0]), a_token, peers, 0);
    auto one = make_counted<socket_hub>(std::move(listeners[1]), a_token, peers, 0);
    zero->set_lanes(3);
    one->set_lanes(3);
    const channel_shape shape{.depth = 2, .slot_bytes = 1 << 20};
    collx::atomic<std::uint64_t> failed{0}, other_failed{0};
    remote_links here(one, {.id = 1, .rank = 1, .ranks = {0, 1}, .shape = shape, .ports = 1});
    remote_links there(zero, {.id = 1, .rank = 0, .ranks = {0, 1}, .shape = shape, .ports = 1});
    here.begin(failed);
    there.begin(other_failed);
    std::vector<descriptor> strange;
    const auto say_hello = [&](int to, std::uint32_t lane) {
        detail::stream_hello h = (to == 0 ? one : zero)->hello(1, 1 - to, to, shape);
        h.lane = lane;
        h.attempt = 1;
        auto s = descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        REQUIRE(::connect(s.get(), at[to].get(), at[to].bytes) == 0);
        REQUIRE(::send(s.get(), &h, sizeof h, MSG_NOSIGNAL) == sizeof h);
        strange.push_back(std::move(s));
    };
    say_hello(0, 1); // early: no rank has connected yet
    auto tx = here.tx(0, 0), back = there.tx(0, 1);
    auto rx = there.rx(0, 1), back_rx = here.rx(0, 0);
    const auto go = [&] {
        here.move();
        there.move();
        return ::usleep(200);
    };
    tx.commit(0, 9);
    REQUIRE(wait_until([&] {
        go();
        return rx.has_message();
    }));
    rx.release(0);
    for (const std::uint32_t lane : {3u, 8u, 31u, 0x8000'0001u, UINT32_MAX}) say_hello(0, lane);
    for (const std::uint32_t lane : {1u, 2u, UINT32_MAX}) say_hello(1, lane); // a lower rank makes no lanes
    for (int i = 0; i < 600; ++i) go();
    CHECK((here.connections() == 1 && there.connections() == 1));
    std::uint64_t sent = 0;
    REQUIRE(wait_until([&] { // until all lanes exist at both ends
        for (auto* both : {&tx, &back})
            if (std::byte* to = both->try_acquire(1 << 20)) {
                fill_message(to, 1, 1 << 20);
                both->commit(1 << 20);
                ++sent;
            }
        for (auto* both : {&rx, &back_rx}) {
            REQUIRE(wait_until([&] {
                here.move();
                there.move();
                return both->has_message();
            }));
            if (!is_message(both->peek(1 << 20), 1, 1 << 20)) throw std::runtime_error("another message");
            both->release(1 << 20);
        }
        return here.connections() == 3 && there.connections() == 3;
    }));
    say_hello(0, 1); // again
    for (int i = 0; i < 300; ++i) go();
    CHECK((here.connections() == 3 && there.connections() == 3));
    CHECK((failed.load() == 0 && other_failed.load() == 0));
    CHECK(sent > 2);
    here.say_bye();
    there.say_bye();
}

TEST_CASE("a process of another user neither comes in through a unix listener nor is taken for a rank") {
    if (::geteuid() != 0) return skip("being another user needs root");
    socket_address at = detail::unix_address("", detail::new_unix_name());
    descriptor listener = socket_hub::listen_on(at);
    socket_hub hub(std::move(listener), a_token, {at, at}, 0);
    const detail::stream_hello h = hub.hello(42, 1, 0, small_shape);
    std::atomic<int> came{0};
    std::atomic<bool> is_over{false};
    std::thread looking([&] {
        while (!is_over) {
            hub.look(42, [&](const detail::stream_hello&, descriptor, const auto&) { ++came; });
            ::usleep(500);
        }
    });
    const auto greet = [&] { // not open if it was closed before
        descriptor s(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (::connect(s.get(), at.get(), at.bytes) != 0 || ::send(s.get(), &h, sizeof h, MSG_NOSIGNAL) < 0)
            s = descriptor();
        return s;
    };
    const timeval patience{collx_test::patient_s(20), 0};
    CHECK(as_another_user([&] { // is closed without an answer
        const descriptor s = greet();
        if (!s.is_open()) return true;
        ::setsockopt(s.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        char c;
        const ssize_t n = ::recv(s.get(), &c, 1, 0);
        return n == 0 || (n < 0 && errno == ECONNRESET);
    }));
    CHECK(came == 0);
    const descriptor of_this_user = greet();
    CHECK(wait_until([&] { return came > 0; }));
    is_over = true;
    looking.join();
    CHECK(came == 1);

    // Conversely, another process has taken the name.
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const socket_address theirs = detail::unix_address("", detail::new_unix_name());
    const pid_t squatter = ::fork();
    if (squatter == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::alarm(static_cast<unsigned>(collx_test::patient_s(20)));
        if (::setresuid(65534, 65534, 65534) != 0) ::_exit(1);
        socket_address a = theirs;
        const descriptor d = socket_hub::listen_on(a);
        (void)!::write(ready[1], "x", 1);
        for (;;) ::pause();
    }
    char c;
    REQUIRE(::read(ready[0], &c, 1) == 1);
    ::close(ready[0]);
    ::close(ready[1]);
    socket_address mine = detail::unix_address("", detail::new_unix_name());
    descriptor my_listener = socket_hub::listen_on(mine);
    auto mine_hub = make_counted<socket_hub>(std::move(my_listener), a_token, std::vector{theirs, mine}, 0);
    collx::atomic<std::uint64_t> failed{0};
    remote_links links(mine_hub, {.id = 3, .rank = 1, .ranks = {0, 1}, .shape = small_shape, .ports = 1});
    links.begin(failed);
    (void)links.tx(0, 0);
    CHECK(wait_until([&] {
        links.move();
        return failed.load() != 0;
    }));
    CHECK(failure(failed.load()).code() == errc::security);
    CHECK(failure(failed.load()).rank() == 0);
    links.say_bye();
    ::kill(squatter, SIGKILL);
    ::waitpid(squatter, nullptr, 0);
}

namespace {

void send_one(stream& s, sending_end& tx, std::size_t bytes, char with) {
    std::byte* to = nullptr;
    REQUIRE(wait_until([&] {
        s.move();
        return (to = tx.try_acquire(bytes)) != nullptr;
    }));
    std::memset(to, with, bytes);
    tx.commit(bytes);
}
bool comes(stream& s, receiving_end& rx, std::size_t bytes, char with) {
    if (!wait_until([&] {
            s.move();
            return rx.has_message();
        }))
        return false;
    const auto* const at = reinterpret_cast<const char*>(rx.peek(bytes));
    bool is_same = true;
    for (std::size_t i = 0; i < bytes; ++i) is_same = is_same && at[i] == with;
    rx.release(bytes);
    return is_same;
}

} // namespace

TEST_CASE("who does not read one line of a shared connection stops no other, and finds all of it later") {
    constexpr channel_shape shape{.depth = 4, .slot_bytes = 512 * 1024};
    for (const bool is_bad_day : {false, true}) {
        const socket_calls& calls = is_bad_day ? bad_day_calls : system_socket_calls;
        trunk_pair all(AF_INET, calls);
        stream left[2]{{calls, shape, 1}, {calls, shape, 1}}, right[2]{{calls, shape, 1}, {calls, shape, 1}};
        for (int k = 0; k < 2; ++k) all.open(left[k], right[k], static_cast<std::uint64_t>(k) + 1);
        sending_end slow = left[0].tx(0), fast = left[1].tx(0);
        receiving_end slow_rx = right[0].rx(0), fast_rx = right[1].rx(0);
        int sent = 0; // will exceed the system's buffers
        for (int i = 0; i < 200; ++i) {
            if (slow.try_acquire(shape.slot_bytes) != nullptr) {
                std::memset(slow.try_acquire(shape.slot_bytes), 'a' + sent, shape.slot_bytes);
                slow.commit(shape.slot_bytes);
                ++sent;
            }
            (void)left[0].move();
            (void)right[1].move();
        }
        CHECK(sent > shape.depth);
        for (char c = 'A'; c <= 'Z'; ++c) {
            send_one(left[1], fast, 100'000, c);
            CHECK(wait_until([&] {
                left[1].move();
                right[1].move();
                return fast_rx.has_message();
            }));
            CHECK(comes(right[1], fast_rx, 100'000, c));
        }
        for (int i = 0; i < sent; ++i) {
            CHECK(wait_until([&] {
                left[0].move();
                right[0].move();
                return slow_rx.has_message();
            }));
            CHECK(comes(right[0], slow_rx, shape.slot_bytes, static_cast<char>('a' + i)));
        }
    }
}

TEST_CASE(
    "a rank that waits elsewhere reads all its shared connections, also where no descriptor is left to poll them") {
    const std::uint64_t shared_id = remote_members::id_of(7, true), own_id = remote_members::id_of(8, false);
    const std::vector<counted_ptr<socket_hub>> hubs = three_hubs();
    collx::atomic<std::uint64_t> failed[4]{};
    remote_links zero(hubs[0], one_of_three(shared_id, 0)), one(hubs[1], one_of_three(shared_id, 1)),
        two(hubs[2], one_of_three(shared_id, 2)), waiting(hubs[0], one_of_three(own_id, 0));
    zero.begin(failed[0]);
    one.begin(failed[1]);
    two.begin(failed[2]);
    waiting.begin(failed[3]);
    receiving_end rx[2] = {zero.rx(0, 1), zero.rx(0, 2)};
    const auto send = [](remote_links& from, sending_end& tx) {
        REQUIRE(tx.try_acquire(8) != nullptr);
        tx.commit(8);
        REQUIRE(wait_until([&] {
            from.move();
            return tx.is_drained();
        }));
    };
    sending_end from_one = one.tx(0, 0);
    REQUIRE(from_one.try_acquire(8) != nullptr);
    from_one.commit(8);
    REQUIRE(wait_until([&] {
        zero.move();
        one.move();
        return rx[0].has_message();
    }));
    sending_end from_two = two.tx(0, 0);
    send(two, from_two);

    rlimit usual{};
    ::getrlimit(RLIMIT_NOFILE, &usual);
    const int next = descriptor(::dup(2)).get();
    const rlimit low{static_cast<rlim_t>(next + 1), usual.rlim_max}; // one more: that of the connection
    ::setrlimit(RLIMIT_NOFILE, &low);
    const bool came = wait_until([&] {
        zero.move();
        return hubs[0]->shared().count() == 2;
    });
    ::setrlimit(RLIMIT_NOFILE, &usual);
    REQUIRE(came);
    REQUIRE_FALSE(hubs[0]->shared().can_tell());
    REQUIRE(wait_until([&] {
        zero.move();
        return rx[1].has_message();
    }));
    rx[0].release(8);
    rx[1].release(8);
    for (int turn = 0; turn < 3; ++turn) {
        send(one, from_one);
        send(two, from_two);
        for (receiving_end& end : rx) {
            REQUIRE(wait_until([&] {
                waiting.move();
                return end.has_message();
            }));
            end.release(8);
        }
    }
    waiting.say_bye();
    zero.say_bye();
    one.say_bye();
    two.say_bye();
}

TEST_CASE("a line that comes before its communicator is made keeps what was said, its end too") {
    constexpr channel_shape shape{.depth = 4, .slot_bytes = 4096};
    trunk_pair all(AF_INET, system_socket_calls);
    {
        stream early(system_socket_calls, shape, 1);
        early.open(make_sole<detail::trunk_end>(all.left, 5, 0));
        sending_end tx = early.tx(0);
        send_one(early, tx, 100, 'e');
        REQUIRE(wait_until([&] {
            early.move();
            return early.is_flushed();
        }));
        early.say_failure(0x3'0000'0005);
        early.say_bye();
        REQUIRE(wait_until([&] {
            early.move();
            return early.has_said_bye();
        }));
    }
    all.right->pump();
    CHECK(all.arrivals.take(5) == 0);
    CHECK(all.arrivals.take(5) == -1);
    stream late(system_socket_calls, shape, 1);
    (void)late.rx(0);
    late.open(make_sole<detail::trunk_end>(all.right, 5, 0));
    CHECK(wait_until([&] {
        late.move();
        return late.state() == stream::phase::left;
    }));
    receiving_end rx = late.rx(0);
    CHECK(rx.has_message());
    CHECK(late.heard_failure() == 0x3'0000'0005);
    // Both ends have closed the line and nothing of it is left, so a line with the same id is a new one.
    all.left->pump();
    stream again(system_socket_calls, shape, 1);
    again.open(make_sole<detail::trunk_end>(all.left, 5, 0));
    for (int i = 0; i < 100; ++i) (void)again.move();
    CHECK(again.is_live());
}

TEST_CASE("a line that has closed throws away what still comes for it, and others go on") {
    constexpr channel_shape shape{.depth = 4, .slot_bytes = 64 * 1024};
    trunk_pair all(AF_INET, system_socket_calls);
    stream left[2]{{system_socket_calls, shape, 1}, {system_socket_calls, shape, 1}},
        right[2]{{system_socket_calls, shape, 1}, {system_socket_calls, shape, 1}};
    for (int k = 0; k < 2; ++k) all.open(left[k], right[k], static_cast<std::uint64_t>(k) + 1);
    sending_end tx[2] = {left[0].tx(0), left[1].tx(0)};
    receiving_end rx = right[1].rx(0);
    (void)right[0].rx(0);
    right[0].say_bye();
    REQUIRE(wait_until([&] {
        right[0].move();
        return right[0].has_said_bye();
    }));
    right[0].~stream();
    new (&right[0]) stream(system_socket_calls, shape, 1);
    for (int i = 0; i < 4; ++i)
        if (tx[0].try_acquire(shape.slot_bytes) != nullptr) tx[0].commit(shape.slot_bytes);
    (void)left[0].move();
    send_one(left[1], tx[1], 1000, 'x');
    CHECK(wait_until([&] {
        left[0].move();
        left[1].move();
        right[1].move();
        return rx.has_message();
    }));
    CHECK(comes(right[1], rx, 1000, 'x'));
    CHECK(wait_until([&] {
        left[0].move();
        return left[0].state() == stream::phase::left;
    }));
    CHECK(left[1].is_live());
}

TEST_CASE("the end of a shared connection is that of all its lines, after what was said on them") {
    constexpr channel_shape shape{.depth = 4, .slot_bytes = 4096};
    for (const bool is_nonsense : {false, true}) {
        detail::mutual_help helpers{system_socket_calls};
        detail::trunk_arrivals arrivals;
        auto [a, b] = connection(AF_UNIX);
        auto mine = make_counted<detail::trunk>(system_socket_calls, 1, 0u, helpers, arrivals);
        mine->open(std::move(a), false, false, {});
        stream one(system_socket_calls, shape, 1), other(system_socket_calls, shape, 1);
        (void)one.rx(0);
        (void)other.rx(0);
        one.open(make_sole<detail::trunk_end>(mine, 1, 0));
        other.open(make_sole<detail::trunk_end>(mine, 2, 0));
        const struct {
            detail::segment head{.bytes = sizeof(stream_frame), .communicator = 1};
            stream_frame bad_news{.what = kind::failure, .bytes = 5, .tag = 3};
            detail::segment wrong{.magic = 1};
        } said;
        REQUIRE(::send(b.get(), &said, is_nonsense ? sizeof said : offsetof(decltype(said), wrong), 0) > 0);
        if (!is_nonsense) b.close();
        CHECK(wait_until([&] {
            other.move();
            return !other.is_live();
        })); // the inbox of the other line is kept
        CHECK(other.heard_failure() == 0);
        CHECK(wait_until([&] {
            one.move();
            return !one.is_live();
        }));
        CHECK(one.heard_failure() == 0x3'0000'0005);
        CHECK(one.state() == stream::phase::lost);
        CHECK(one.is_nonsense() == is_nonsense);
        CHECK(other.is_nonsense() == is_nonsense);
    }
}
