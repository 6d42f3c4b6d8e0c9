// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Streams whose messages go by verbs, over the tests' fabric. They keep the contract of channels, whatever devices
// may do. What a device refuses stays with the socket. A failure, or a message that no peer may send, ends the
// stream. Each test ends with a check of the fabric: nothing was misused, and no head had to wait for a receive.
//
// collx-test: timeout=240
#include <collx/transport/stream.hpp>

#include <thread>

#include "support/faulty_sockets.hpp"
#include "transport/connections.hpp"
#include "transport/verbs_ends.hpp"
#include "transport/verbs_fabric.hpp"

using namespace collx;
using namespace collx_test;
using detail::stream_frame;
using kind = stream_frame::kind;

namespace {

struct verbs_net {
    fabric net;
    sole_ptr<verbs_device> devices[2] = {net.open({}), net.open({})};
    bool may_be_silent = false, may_be_wrong = false;
    explicit verbs_net(const fabric_options& o) : net(o) {}
    ~verbs_net() {
        INFO(net.first_misuse());
        const long misuses = net.misuses();
        CHECK((misuses == 0 || may_be_wrong));
        CHECK(net.counters().not_ready == 0);
        CHECK((net.counters().sends != 0 || may_be_silent));
    }
};

template <int Family, bool BadDay, int Delay>
struct verbs_world : verbs_net {
    static constexpr int at_port = 3, ports = 5;
    static inline std::uint64_t seed = 1;
    stream left, right;
    explicit verbs_world(channel_shape s, fabric_options o = {})
        : verbs_net(delayed(o)), left(BadDay ? bad_day_calls : system_socket_calls, s, ports),
          right(BadDay ? bad_day_calls : system_socket_calls, s, ports) {
        left.use_verbs(*devices[0]);
        right.use_verbs(*devices[1]);
        auto [a, b] = connection(Family);
        left.open(std::move(a), false);
        right.open(std::move(b), false);
    }
    static fabric_options delayed(fabric_options o) {
        o.seed = ++seed;
        o.most_delay_polls = Delay;
        return o;
    }
    void carry(int times = 200) {
        for (int i = 0; i < times; ++i) {
            left.move();
            right.move();
        }
    }
    template <class Send, class Receive>
    std::pair<int, int> run(Send send, Receive receive) {
        std::pair<int, int> result{-1, -1};
        std::thread other([&] {
            struct {
                stream& s;
                sending_end end;
                std::byte* try_acquire(std::size_t bytes) {
                    s.move();
                    return end.try_acquire(bytes);
                }
                void commit(std::size_t bytes, std::uint32_t tag = 0) { end.commit(bytes, tag); }
            } tx{left, left.tx(at_port)};
            result.first = send(tx);
            if (!wait_until([&] {
                    left.move();
                    return left.is_flushed();
                }))
                result.first = 8;
        });
        struct {
            stream& s;
            receiving_end end;
            bool has_message() {
                if (!end.has_message()) s.move();
                return end.has_message();
            }
            bool is_expected(std::size_t bytes, std::uint32_t tag) const { return end.is_expected(bytes, tag); }
            const std::byte* peek(std::size_t bytes) const { return end.peek(bytes); }
            void release(std::size_t bytes) { end.release(bytes); }
        } rx{right, right.rx(at_port)};
        result.second = receive(rx);
        other.join();
        return result;
    }
};
using tcp = verbs_world<AF_INET, false, 3>;
using eager = verbs_world<AF_INET6, false, 0>;
using slow = verbs_world<AF_UNIX, false, 20>;
using bad_day_tcp = verbs_world<AF_INET, true, 5>;
using sluggish = verbs_world<AF_UNIX, false, 200>; // slower than the socket

std::size_t size_of(std::uint64_t m, std::size_t most) {
    const std::size_t s = interesting_sizes[(m * 5 + m / 13) % std::size(interesting_sizes)];
    return s < most ? s : most;
}
// Sends one message after the other from left to right, moving both streams in this thread, until one stream has
// ended or all have arrived. Returns the number of correct messages that arrived.
template <class World>
std::uint64_t pump(World& w, std::uint64_t messages, std::size_t most_bytes) {
    auto tx = w.left.tx(World::at_port);
    auto rx = w.right.rx(World::at_port);
    std::uint64_t sent = 0, got = 0;
    const bool in_time = wait_until([&] {
        for (; sent < messages; ++sent) {
            std::byte* const to = tx.try_acquire(size_of(sent, most_bytes));
            if (to == nullptr) break;
            fill_message(to, sent, size_of(sent, most_bytes));
            tx.commit(size_of(sent, most_bytes), static_cast<std::uint32_t>(sent));
        }
        w.left.move();
        w.right.move();
        for (; rx.has_message(); ++got) {
            const std::size_t bytes = size_of(got, most_bytes);
            REQUIRE(rx.is_expected(bytes, static_cast<std::uint32_t>(got)));
            REQUIRE(is_message(rx.peek(bytes), got, bytes));
            rx.release(bytes);
        }
        // The caller may make another end of the same channel, so everything sent must have been acknowledged.
        return (got == messages && w.left.is_flushed()) || !w.left.is_live() || !w.right.is_live();
    });
    CHECK(in_time);
    return got;
}

} // namespace

TEMPLATE_TEST_CASE("streams by verbs keep order and content", "", tcp, eager, slow, bad_day_tcp) {
    check_order_and_content<TestType>();
}
TEMPLATE_TEST_CASE("streams by verbs carry many short messages", "", tcp, slow) { check_short_messages<TestType>(); }

TEST_CASE("once a port has switched, each message is one post, and long ones one write") {
    tcp w({.depth = 4, .slot_bytes = 65536});
    CHECK(pump(w, 40, 65536) == 40);
    REQUIRE(w.left.sends_by_verbs(tcp::at_port));
    REQUIRE(w.right.receives_by_verbs());
    const auto before = w.net.counters(0);
    auto tx = w.left.tx(tcp::at_port);
    auto rx = w.right.rx(tcp::at_port);
    for (std::uint64_t m = 0; m < 50; ++m) {
        const std::size_t bytes = m % 2 == 0 ? slot_header::inline_bytes : 5000;
        fill_message(tx.try_acquire(bytes), m, bytes);
        tx.commit(bytes);
        REQUIRE(wait_until([&] {
            w.carry(1);
            return rx.has_message();
        }));
        REQUIRE(is_message(rx.peek(bytes), m, bytes));
        rx.release(bytes);
        REQUIRE(wait_until([&] {
            w.carry(1);
            return w.left.is_flushed();
        }));
        w.carry(20);
    }
    const auto after = w.net.counters(0);
    CHECK(after.sends - before.sends == 50);
    CHECK(after.writes - before.writes == 25);
    CHECK(after.bytes_written - before.bytes_written == 25 * 5000);
}

// In a single thread and any order, so that one side may not move for long while the other does all it can.
TEMPLATE_TEST_CASE("many ports in both directions, whichever end moves", "", slow, bad_day_tcp) {
    for (std::uint64_t seed = 1; seed < static_cast<std::uint64_t>(times(16, 6)); ++seed) {
        CAPTURE(seed);
        fabric_detail::dice roll{seed * 77};
        const int depth = 1 + static_cast<int>(roll(5));
        TestType w({.depth = depth, .slot_bytes = 4096});
        struct way {
            sending_end tx;
            receiving_end rx;
            std::uint64_t sent = 0, got = 0;
        };
        std::vector<way> ways;
        for (int p = 0; p < w.ports; ++p) {
            ways.push_back({w.left.tx(p), w.right.rx(p)});
            ways.push_back({w.right.tx(p), w.left.rx(p)});
        }
        for (std::size_t step = 0, side = 0; step < 10'000; ++step) {
            if (roll(60) == 0) side = roll(3); // 0, 1: only this side moves; 2: both
            way& at = ways[roll(ways.size())];
            const std::size_t sender = static_cast<std::size_t>(&at - ways.data()) % 2, bytes = size_of(at.sent, 4096);
            if (side != 1 - sender && at.sent < 200)
                if (std::byte* const to = at.tx.try_acquire(bytes)) {
                    fill_message(to, at.sent, bytes);
                    at.tx.commit(bytes, static_cast<std::uint32_t>(at.sent++));
                }
            if (side != sender && at.rx.has_message()) {
                REQUIRE(at.rx.is_expected(size_of(at.got, 4096), static_cast<std::uint32_t>(at.got)));
                REQUIRE(is_message(at.rx.peek(size_of(at.got, 4096)), at.got, size_of(at.got, 4096)));
                at.rx.release(size_of(at.got, 4096));
                ++at.got;
            }
            if (side != 1) w.left.move();
            if (side != 0) w.right.move();
        }
        REQUIRE(w.left.is_live());
        REQUIRE(w.right.is_live());
        std::uint64_t got = 0;
        for (const way& at : ways) got += at.got;
        CHECK(got > 100);
    }
}

TEST_CASE("a goodbye waits for the messages before it, also by verbs") {
    for (int before = 0; before < 12; ++before) {
        CAPTURE(before);
        sluggish w({.depth = 8, .slot_bytes = 1024});
        const bool is_warm = before % 2 == 0;
        if (is_warm) CHECK(pump(w, 40, 1024) == 40);
        else w.may_be_silent = true;
        auto tx = w.left.tx(sluggish::at_port);
        auto rx = w.right.rx(sluggish::at_port);
        for (int i = 0; i < before / 2; ++i) {
            REQUIRE(tx.try_acquire(1000) != nullptr);
            fill_message(tx.try_acquire(1000), 7, 1000);
            tx.commit(1000);
        }
        w.left.say_bye();
        REQUIRE(wait_until([&] {
            w.left.move();
            before % 3 == 0 || w.right.move();
            return w.left.has_said_bye();
        }));
        w.left.release_socket();
        REQUIRE(wait_until([&] {
            w.right.move();
            return !w.right.is_live();
        }));
        CHECK(w.right.state() == stream::phase::left);
        for (int i = 0; i < before / 2; ++i) {
            REQUIRE(rx.has_message());
            REQUIRE(is_message(rx.peek(1000), 7, 1000));
            rx.release(1000);
        }
    }
}

TEST_CASE("either end may go at any time, whatever is under way") {
    for (int steps = 0; steps < 60; ++steps)
        for (const bool is_left_first : {false, true}) {
            auto w = std::make_unique<verbs_net>(fabric_options{.seed = static_cast<std::uint64_t>(steps) + 1});
            w->may_be_silent = true;
            auto ends = connection(AF_UNIX);
            std::unique_ptr<stream> s[2];
            for (int i : {0, 1}) {
                s[i] = std::make_unique<stream>(system_socket_calls, channel_shape{.depth = 3, .slot_bytes = 2048}, 2);
                s[i]->use_verbs(*w->devices[i]);
                s[i]->open(std::move(i == 0 ? ends.first : ends.second), false);
            }
            auto tx = s[0]->tx(1);
            for (int i = 0; i < steps; ++i) {
                if (tx.try_acquire(2000) != nullptr) tx.commit(2000);
                s[i % 2]->move();
                auto rx = s[1]->rx(1);
                if (i % 3 == 0 && rx.has_message()) rx.release(2000);
            }
            s[is_left_first ? 0 : 1] = nullptr;
            auto& other = *s[is_left_first ? 1 : 0];
            CHECK(wait_until([&] {
                other.move();
                return !other.is_live();
            }));
        }
}

// -------------------------------------------------------------------------------------------- what a device refuses
TEST_CASE("what a device refuses stays with the socket") {
    int by_verbs = 0;
    for (const auto which :
         {&fabric_options::refuse_memory, &fabric_options::refuse_queue_pair, &fabric_options::refuse_connect})
        for (const int device : {0, 1})
            for (int at = 1; at < 5; ++at) {
                CAPTURE(device, at, which == &fabric_options::refuse_memory);
                fabric_options o;
                o.*which = {.at = at, .times = 1, .device = device};
                tcp w({.depth = 3, .slot_bytes = 4096}, o);
                w.may_be_silent = true;
                CHECK(pump(w, 60, 4096) == 60);
                by_verbs += w.left.sends_by_verbs(tcp::at_port);
                if (which != &fabric_options::refuse_memory && at == 1) CHECK(w.net.counters().sends == 0);
            }
    CHECK((by_verbs >= 12 && by_verbs < 24));
    fabric_options o;
    o.refuse_memory = {.at = 1, .times = 1000};
    tcp none({.depth = 3, .slot_bytes = 4096}, o);
    none.may_be_silent = true;
    CHECK(pump(none, 60, 4096) == 60);
    CHECK(none.net.counters().sends == 0);
}

TEST_CASE("a device that is too small for a channel's messages is not used") {
    for (const bool is_head : {false, true}) {
        fabric_options o;
        (is_head ? o.most_head_bytes : o.most_write_bytes) = is_head ? 127 : 4095;
        tcp w({.depth = 3, .slot_bytes = 4096}, o);
        w.may_be_silent = true;
        CHECK(pump(w, 60, 4096) == 60);
        CHECK(w.net.counters().queue_pairs == 0);
    }
}

TEST_CASE("one side without a device: all goes over the socket") {
    tcp w({.depth = 3, .slot_bytes = 4096});
    w.may_be_silent = true;
    stream plain(system_socket_calls, {.depth = 3, .slot_bytes = 4096}, 5),
        mine(system_socket_calls, {.depth = 3, .slot_bytes = 4096}, 5);
    mine.use_verbs(*w.devices[0]);
    auto [a, b] = connection(AF_INET);
    plain.open(std::move(a), false);
    mine.open(std::move(b), false);
    auto tx = mine.tx(0);
    auto rx = plain.rx(0);
    for (std::uint64_t m = 0; m < 50; ++m) {
        REQUIRE(wait_until([&] {
            mine.move();
            plain.move();
            return tx.try_acquire(3000) != nullptr;
        }));
        fill_message(tx.try_acquire(3000), m, 3000);
        tx.commit(3000);
        REQUIRE(wait_until([&] {
            mine.move();
            plain.move();
            return rx.has_message();
        }));
        REQUIRE(is_message(rx.peek(3000), m, 3000));
        rx.release(3000);
    }
    CHECK(w.net.counters().sends == 0);
}

// ------------------------------------------------------------------------------------------------ what breaks
TEST_CASE("a queue pair that fails, or reaches no peer any more, ends the stream, and what came before is right") {
    int ended = 0;
    for (const auto which : {&fabric_options::break_pair, &fabric_options::cut_pair})
        for (const int device : {0, 1})
            for (const int at : {1, 2, 3, 4, 5, 7, 9, 14, 20, 33}) {
                CAPTURE(device, at, which == &fabric_options::cut_pair);
                fabric_options o;
                o.patience_ns = 3'000'000;
                o.*which = {.at = at, .times = 1, .device = device};
                tcp w({.depth = 3, .slot_bytes = 4096}, o);
                const std::uint64_t got = pump(w, 500, 4096);
                const bool has_left_ended = !w.left.is_live(), has_right_ended = !w.right.is_live();
                REQUIRE((has_left_ended || has_right_ended));
                CHECK(got < 500);
                CHECK(!(has_left_ended ? w.left : w.right).is_nonsense());
                CHECK((has_left_ended ? w.left : w.right).state() == stream::phase::lost);
                // The other end learns of it from the socket.
                (has_left_ended ? w.left : w.right).release_socket();
                stream& other = has_left_ended ? w.right : w.left;
                CHECK(wait_until([&] {
                    other.move();
                    return !other.is_live();
                }));
                CHECK(other.state() == stream::phase::lost);
                ++ended;
            }
    CHECK(ended == 40);
}

// ------------------------------------------------------------------------------------------------ what no peer may say
namespace {

// A stream whose peer is the test, with its own queue pair.
struct half_verbs : verbs_net {
    static constexpr channel_shape shape{.depth = 4, .slot_bytes = 4096};
    verbs_end mine{
        *devices[1], {.sends = 16, .writes = 16, .receives = 64, .head_bytes = 128}, 4 * (4096 + page_bytes)};
    stream s{system_socket_calls, shape, 5};
    descriptor test;
    std::vector<stream_frame> heard;
    queue_pair_address there;

    half_verbs() : verbs_net({}) {
        may_be_silent = true;
        s.use_verbs(*devices[0]);
        auto [a, b] = connection(AF_UNIX);
        s.open(std::move(a), false);
        test = std::move(b);
        for (std::uint64_t i = 0; i < 64; ++i) mine.post_receive(i);
        (void)s.tx(0);
    }
    void say(const void* bytes, std::size_t n) {
        REQUIRE(::send(test.get(), bytes, n, MSG_NOSIGNAL) == static_cast<ssize_t>(n));
    }
    void say(stream_frame f) { say(&f, sizeof f); }
    void say(const queue_pair_address& a) {
        say({.what = kind::queue_pair, .bytes = sizeof a});
        say(&a, sizeof a);
    }
    bool hear(kind what) {
        return wait_until([&] {
            s.move();
            stream_frame f;
            if (::recv(test.get(), &f, sizeof f, MSG_DONTWAIT) == sizeof f) {
                heard.push_back(f);
                if (f.what == kind::queue_pair && ::recv(test.get(), &there, sizeof there, 0) != sizeof there)
                    return true;
            }
            return !heard.empty() && heard.back().what == what;
        });
    }
    void say_slots(int port = 0, std::uint64_t off_by = 0, std::uint32_t wrong_key = 0) {
        const auto at = reinterpret_cast<std::uint64_t>(mine.bytes.data()) + off_by;
        say({.what = kind::slots,
             .at_port = static_cast<std::uint8_t>(port),
             .bytes = static_cast<std::uint32_t>(at),
             .tag = static_cast<std::uint32_t>(at >> 32),
             .taken = mine.memory->remote_key ^ wrong_key});
    }
    // Runs until messages of port 0 may go by verbs in both directions.
    void begin() {
        say(mine.pair->address());
        REQUIRE(hear(kind::queue_pair));
        mine.pair->connect(there);
        REQUIRE(hear(kind::slots));
    }
    void open() {
        begin();
        say_slots();
        say({.what = kind::switched});
        REQUIRE(hear(kind::switched));
    }
    void send_head(const void* head, std::size_t bytes) {
        REQUIRE(mine.pair->post(nullptr, 0, head, static_cast<std::uint32_t>(bytes), 1));
    }
    void send_head(stream_frame f, std::size_t bytes = sizeof(stream_frame)) {
        std::byte all[128] = {};
        std::memcpy(all, &f, sizeof f);
        send_head(all, bytes);
    }
    bool ends() {
        return wait_until([&] {
            s.move();
            return !s.is_live();
        });
    }
};

} // namespace

TEST_CASE("where messages come by verbs, a socket that is known to have something is read at once, and to the end") {
    half_verbs w;
    w.open();
    REQUIRE(w.s.receives_by_verbs());
    const failure word(errc::aborted, 1);
    const stream_frame f{.what = kind::failure,
                         .bytes = static_cast<std::uint32_t>(word.word),
                         .tag = static_cast<std::uint32_t>(word.word >> 32)};
    w.say(&f, 9);
    w.s.move(stream::socket_has::nothing);
    CHECK(w.s.receives_by_verbs());
    w.s.move(stream::socket_has::something);
    CHECK(!w.s.receives_by_verbs()); // the rest of the frame is to come
    w.say(reinterpret_cast<const char*>(&f) + 9, sizeof f - 9);
    w.s.move();
    CHECK(w.s.heard_failure() == word.word);
}

TEST_CASE("a goodbye that comes when the queue pair has already failed is a goodbye") {
    half_verbs w;
    w.open();
    auto tx = w.s.tx(0);
    REQUIRE(tx.try_acquire(100) != nullptr);
    tx.commit(100);
    w.mine.pair = nullptr; // the message, or the acknowledgement of another, finds the peer gone
    REQUIRE(wait_until([&] {
        w.s.move();
        return !w.s.reaches_memory(0);
    }));
    w.say({.what = kind::bye});
    w.test.close();
    CHECK(w.ends());
    CHECK(w.s.state() == stream::phase::left);
}

TEST_CASE("what no schedule allows ends a stream by verbs and nothing else") {
    const auto is_refused = [](const char* what, auto&& speak) {
        half_verbs h;
        CAPTURE(what);
        speak(h);
        CHECK(h.ends());
        CHECK(h.s.is_nonsense());
    };
    is_refused("two queue pairs", [](auto& h) {
        h.begin();
        h.say(h.mine.pair->address());
    });
    is_refused("half an address", [](auto& h) { h.say({.what = kind::queue_pair, .bytes = 16}); });
    is_refused("a long address", [](auto& h) { h.say({.what = kind::queue_pair, .bytes = 1u << 30}); });
    is_refused("slots of a port too far", [](auto& h) {
        h.begin();
        h.say_slots(5);
    });
    is_refused("slots at no address", [](auto& h) {
        h.begin();
        h.say({.what = kind::slots, .taken = 5});
    });
    is_refused("slots twice", [](auto& h) {
        h.begin();
        h.say_slots();
        h.say_slots();
    });
    is_refused("a port too far switched", [](auto& h) {
        h.begin();
        h.say({.what = kind::switched, .at_port = 5});
    });
    is_refused("a port switched that was not offered", [](auto& h) {
        h.begin();
        h.say({.what = kind::switched, .at_port = 1});
    });
    is_refused("a port switched at once", [](auto& h) { h.say({.what = kind::switched}); });
    is_refused("a port switched twice", [](auto& h) {
        h.open();
        h.say({.what = kind::switched});
    });

    is_refused("less than a head", [](auto& h) {
        h.open();
        h.send_head("123456789012345", 15);
    });
    is_refused("another magic", [](auto& h) {
        h.open();
        h.send_head({.magic = 0x1234});
    });
    is_refused("a port too far", [](auto& h) {
        h.open();
        h.send_head({.at_port = 5});
    });
    is_refused("longer than a slot", [](auto& h) {
        h.open();
        h.send_head({.bytes = 4097});
    });
    is_refused("less than it says", [](auto& h) {
        h.open();
        h.send_head({.bytes = 100}, 16 + 99);
    });
    is_refused("more than it says", [](auto& h) {
        h.open();
        h.send_head({.bytes = 8}, 16 + 9);
    });
    is_refused("bytes behind the head of a long one", [](auto& h) {
        h.open();
        h.send_head({.bytes = 4096}, 17);
    });
    is_refused("a credit with bytes", [](auto& h) {
        h.open();
        h.send_head({.what = kind::credit}, 17);
    });
    is_refused("has taken what was not sent", [](auto& h) {
        h.open();
        h.send_head({.what = kind::credit, .taken = 1});
    });
    for (int k = 0; k <= 20; ++k)
        if (k != static_cast<int>(kind::message) && k != static_cast<int>(kind::credit))
            is_refused("a word that is not for verbs", [&](auto& h) {
                h.open();
                h.send_head({.what = static_cast<kind>(k), .bytes = 1});
            });
    is_refused("more than there are slots", [](auto& h) {
        h.open();
        for (int i = 0; i <= half_verbs::shape.depth; ++i) h.send_head({.bytes = 0});
    });
    is_refused("a message over the socket after the last word", [](auto& h) {
        h.open();
        h.say({.bytes = 0});
    });
}

TEST_CASE("an address that leads nowhere leaves the messages with the socket") {
    for (int what = 0; what < 4; ++what) {
        half_verbs h;
        auto a = h.mine.pair->address();
        if (what == 0) a.gid[3] ^= 1;
        if (what == 1) a.mtu_bytes = 0;
        if (what == 2) a.number = UINT32_MAX;
        if (what == 3) a.link = collx::verbs_link::roce_v1;
        h.say(a);
        REQUIRE(h.hear(kind::queue_pair));
        auto rx = h.s.rx(2);
        for (std::uint64_t m = 0; m < 20; ++m) {
            h.say({.at_port = 2, .bytes = 5});
            h.say("12345", 5);
            REQUIRE(wait_until([&] {
                h.s.move();
                return rx.has_message();
            }));
            rx.release(5);
        }
        CHECK(h.s.is_live());
        // Slots are offered on a connected queue pair.
        for (stream_frame f; ::recv(h.test.get(), &f, sizeof f, MSG_DONTWAIT) == sizeof f;)
            CHECK(f.what != kind::slots);
    }
}

TEST_CASE("slots that the peer has not registered end the stream, and no others are written") {
    for (const bool is_key : {false, true}) {
        half_verbs h;
        h.may_be_wrong = true; // the test makes errors
        h.begin();
        h.say_slots(0, is_key ? 0 : 4 * (4096 + page_bytes) - 100, is_key ? 0xff00 : 0);
        h.say({.what = kind::switched});
        REQUIRE(h.hear(kind::switched));
        auto tx = h.s.tx(0);
        REQUIRE(tx.try_acquire(2000) != nullptr);
        std::memset(tx.try_acquire(2000), 1, 2000);
        tx.commit(2000);
        CHECK(h.ends());
        CHECK(h.s.state() == stream::phase::lost);
        CHECK(std::count(h.mine.bytes.begin(), h.mine.bytes.end(), std::byte{}) ==
              static_cast<std::ptrdiff_t>(h.mine.bytes.size()));
    }
}
