// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The contract of verbs over the tests' fabric, and the strictness of the fabric: it detects each misuse, its faults
// occur where requested, and a premature read of memory is always reported.
//
// collx-test: timeout=240
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <set>

#include "support/sanitizers.hpp"
#include "transport/verbs_contract.hpp"
#include "transport/verbs_fabric.hpp"

using namespace collx;
using namespace collx_test;

namespace {

template <int Seed>
struct fabric_world {
    fabric net{{.seed = Seed, .most_delay_polls = Seed == 0 ? 0 : 2 * Seed, .is_messy = Seed != 0}};
    sole_ptr<verbs_device> devices[2] = {net.open({}), net.open({})};
    bool forgiving = false;
    ~fabric_world() {
        const bool has_misuses = net.misuses() != 0;
        CHECK(has_misuses == forgiving);
    }
    verbs_device& left() { return *devices[0]; }
    verbs_device& right() { return *devices[1]; }
    void forgives() { forgiving = true; } // the test makes an error that the device must detect
    void is_impatient() { net.set_patience_ns(2'000'000); }
};

struct world_with : fabric_world<1> {
    explicit world_with(void (*change)(fabric_options&) = [](fabric_options&) {}) : fabric_world<1>() {
        fabric_options o;
        change(o);
        for (const auto which :
             {&fabric_options::refuse_memory, &fabric_options::refuse_queue_pair, &fabric_options::refuse_connect,
              &fabric_options::break_pair, &fabric_options::cut_pair})
            net.inject(which, o.*which);
        is_impatient();
    }
};
constexpr verbs_limits small{.sends = 2, .writes = 3, .receives = 2, .head_bytes = 32, .transfers = 2};

errc code_of(const std::function<void()>& f) {
    try {
        f();
    } catch (const error& e) {
        return e.code();
    }
    return errc::aborted; // a code that nothing here throws
}

} // namespace

#define ALL_WORLDS fabric_world<0>, fabric_world<1>, fabric_world<2>, fabric_world<7>
TEMPLATE_TEST_CASE("verbs: writes of all lengths are there when their head is", "", ALL_WORLDS) {
    check_writes_and_heads<TestType>();
}
TEMPLATE_TEST_CASE("verbs: heads go alone, and are copied", "", ALL_WORLDS) { check_heads_alone<TestType>(); }
TEMPLATE_TEST_CASE("verbs: one head for many writes", "", ALL_WORLDS) { check_many_writes<TestType>(); }
TEMPLATE_TEST_CASE("verbs: limits are reached exactly, and ids come in order", "", ALL_WORLDS) {
    check_limits<TestType>();
}
TEMPLATE_TEST_CASE("verbs: both directions at once", "", ALL_WORLDS) { check_both_directions<TestType>(); }
TEMPLATE_TEST_CASE("verbs: before connecting", "", ALL_WORLDS) { check_before_connecting<TestType>(); }
TEMPLATE_TEST_CASE("verbs: memory twice, in parts and by the byte", "", ALL_WORLDS) { check_memory<TestType>(); }
TEMPLATE_TEST_CASE("verbs: what the peer has not allowed fails", "", ALL_WORLDS) { check_forbidden_writes<TestType>(); }
TEMPLATE_TEST_CASE("verbs: transfers alone, of all lengths", "", ALL_WORLDS) { check_transfers<TestType>(); }
TEMPLATE_TEST_CASE("verbs: transfers alone stay in order", "", ALL_WORLDS) { check_transfers_in_order<TestType>(); }
TEMPLATE_TEST_CASE("verbs: as many transfers alone as were asked for", "", ALL_WORLDS) {
    check_transfer_limits<TestType>();
}
TEMPLATE_TEST_CASE("verbs: transfers that the peer has not allowed fail", "", ALL_WORLDS) {
    check_forbidden_transfers<TestType>();
}
TEMPLATE_TEST_CASE("verbs: a peer that has gone", "", ALL_WORLDS) { check_peer_gone<TestType>(); }
TEMPLATE_TEST_CASE("verbs: a head without a receive", "", ALL_WORLDS) { check_no_receive<TestType>(); }
TEMPLATE_TEST_CASE("verbs: ends in any order", "", ALL_WORLDS) { check_ends<TestType>(); }

// ------------------------------------------------------------------------------------------------ strictness
TEST_CASE("the fabric notices each misuse") {
    struct misuse {
        const char* says;
        std::function<void(world_with&, verbs_ends&)> how;
    };
    std::byte stranger[64] = {};
    const misuse all[] = {
        {"more sends",
         [](auto&, auto& e) {
             for (std::uint64_t i = 0; i < 3; ++i) (void)e.left.post({}, i, 16);
         }},
        {"more writes",
         [](auto&, auto& e) {
             const auto w = e.write(0, 0, 1);
             (void)e.left.post({w, w}, 0, 0);
             (void)e.left.post({w, w}, 1, 16);
         }},
        {"more receives",
         [](auto&, auto& e) {
             for (std::uint64_t i = 0; i < 3; ++i) e.right.post_receive(i);
         }},
        {"head longer", [](auto&, auto& e) { (void)e.left.post({}, 0, 33); }},
        {"write longer",
         [](auto& w, auto& e) { (void)e.left.post({e.write(0, 0, w.left().most_write_bytes() + 1)}, 0, 16); }},
        {"a write from memory that is not",
         [&](auto&, auto& e) {
             auto w = e.write(0, 0, 10);
             w.from = stranger;
             (void)e.left.post({w}, 0, 16);
         }},
        {"a write from memory that is not",
         [](auto&, auto& e) {
             auto w = e.write(0, 0, 10);
             w.local_key = e.left.memory->remote_key;
             (void)e.left.post({w}, 0, 16);
         }},
        {"a write from memory that is not", [](auto&, auto& e) { (void)e.left.post({e.write(995, 0, 6)}, 0, 16); }},
        {"to where the peer",
         [](auto&, auto& e) {
             (void)e.left.post({e.write(0, 995, 6)}, 0, 16);
             e.left.next();
         }},
        {"remote key that is not",
         [](auto&, auto& e) {
             const auto w = e.write(0, 0, 6);
             e.right.memory = nullptr; // so no receive has been posted
             (void)e.left.post({w}, 0, 16);
             e.left.next();
         }},
        {"a receive into",
         [&](auto&, auto& e) { e.right.pair->post_receive(stranger, 16, e.right.heads_memory->local_key, 0); }},
        {"receive shorter",
         [](auto&, auto& e) {
             e.right.pair->post_receive(e.right.head(0), 15, e.right.heads_memory->local_key, 0);
             (void)e.left.post({}, 0, 16);
             e.left.next();
         }},
        {"forgotten while posts",
         [](auto&, auto& e) {
             (void)e.left.post({e.write(0, 0, 10)}, 0, 16);
             e.left.memory = nullptr;
         }},
        {"forgotten while posts",
         [](auto&, auto& e) {
             e.right.post_receive(0);
             e.right.heads_memory = nullptr;
         }},
        {"forgotten while the peer",
         [](auto&, auto& e) {
             (void)e.left.post({e.write(0, 0, 10)}, 0, 16);
             e.right.memory = nullptr;
         }},
        {"connected twice", [](auto&, auto& e) { e.left.pair->connect(e.right.pair->address()); }},
        {"before connect",
         [](auto& w, auto&) {
             verbs_end alone(w.left(), small, 100);
             (void)alone.post({}, 0, 16);
             CHECK(alone.next().is(done::failed, 0));
         }},
        {"more transfers",
         [](auto&, auto& e) {
             for (std::uint64_t i = 0; i < 3; ++i) (void)e.left.post_alone(i == 1, 0, e.right, 0, 8, i);
         }},
        {"transfer of nothing", [](auto&, auto& e) { (void)e.left.post_alone(true, 0, e.right, 0, 0, 0); }},
        {"a write longer",
         [](auto& w, auto& e) { (void)e.left.post_alone(true, 0, e.right, 0, w.left().most_write_bytes() + 1, 0); }},
        {"a write from memory that is not",
         [&](auto&, auto& e) {
             (void)e.left.pair->post_alone({stranger, 8, e.left.memory->local_key,
                                            reinterpret_cast<std::uint64_t>(e.right.bytes.data()),
                                            e.right.memory->remote_key, true},
                                           0);
         }},
        {"others write only",
         [](auto&, auto& e) {
             (void)e.left.pair->post_alone({e.left.bytes.data(), 8, e.left.memory->local_key,
                                            reinterpret_cast<std::uint64_t>(e.right.heads.data()),
                                            e.right.heads_memory->remote_key, true},
                                           0);
             e.left.next();
         }},
        {"forgotten while the peer",
         [](auto&, auto& e) {
             (void)e.left.post_alone(true, 0, e.right, 0, 8, 0);
             e.right.memory = nullptr;
         }},
        {"nothing is registered", [](auto& w, auto& e) { (void)w.left().register_memory(e.left.bytes.data(), 0); }},
        {"limits that no device",
         [](auto& w, auto&) { (void)w.left().make_queue_pair({.sends = 1, .head_bytes = 4096}); }},
    };
    for (const misuse& m : all) {
        CAPTURE(m.says);
        world_with w;
        w.forgives();
        {
            verbs_ends e(w, small, 1000);
            REQUIRE(w.net.misuses() == 0);
            m.how(w, e);
            CHECK(w.net.misuses() == 1);
        }
        CAPTURE(w.net.first_misuse());
        CHECK(w.net.first_misuse().find(m.says) != std::string::npos);
    }
}

// The fabric ends the program, so no test overlooks a misuse that it did not provoke.
TEST_CASE("a device closed before what it made, and a misuse that no test asked for, end the program") {
    for (const int which : {0, 1, 2}) {
        const pid_t child = ::fork();
        if (child == 0) {
            (void)::close(2);
            (void)::signal(SIGABRT, SIG_DFL);
            {
                fabric net;
                auto d = net.open({});
                std::byte b[8];
                sole_ptr<verbs_memory> m = which == 0 ? d->register_memory(b, 8) : nullptr;
                if (which == 1) (void)d->register_memory(b, 0);
                d = nullptr;
            }
            ::_exit(0);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK((which == 2 ? WIFEXITED(status) : WIFSIGNALED(status)));
    }
}

// ------------------------------------------------------------------------------------------------ lateness
// No device promises more: before their head arrives, bytes may be missing, complete or wrong.
TEST_CASE("what is read before its head may be anything") {
    std::set<std::byte> seen;
    int orders[2] = {}; // how often the send or the receive completes first
    for (int seed = 1; seed < 200; ++seed) {
        fabric net({.seed = static_cast<std::uint64_t>(seed)});
        struct {
            sole_ptr<verbs_device> l, r;
            verbs_device& left() { return *l; }
            verbs_device& right() { return *r; }
        } world{net.open({}), net.open({})};
        verbs_ends e(world, small, 64);
        std::fill(e.left.bytes.begin(), e.left.bytes.end(), std::byte{1});
        e.right.post_receive(0);
        REQUIRE(e.left.post({e.write(0, 0, 64)}, 0, 16));
        verbs_completion c;
        bool is_sent = false, is_received = false;
        while (!is_sent || !is_received) {
            is_sent = is_sent || e.left.pair->poll(&c, 1) == 1;
#if !COLLX_TEST_TSAN // ThreadSanitizer would report this deliberate race
            if (!is_received) seen.insert(e.right.bytes.begin(), e.right.bytes.end());
#endif
            const bool was_received = is_received;
            is_received = is_received || e.right.pair->poll(&c, 1) == 1;
            if (is_received && !was_received) ++orders[is_sent ? 0 : 1];
        }
        CHECK(std::count(e.right.bytes.begin(), e.right.bytes.end(), std::byte{1}) == 64);
    }
#if !COLLX_TEST_TSAN
    CHECK(seen == std::set{std::byte{0}, std::byte{1}, std::byte{0xdb}});
#endif
    CHECK((orders[0] > 20 && orders[1] > 20));
}

// A completed write may still be in transit within the peer's host; a read behind it finds it complete.
TEST_CASE("what was written alone is there when a read behind it is done, and not surely before") {
    [[maybe_unused]] int late = 0;
    for (int seed = 1; seed < 100; ++seed) {
        fabric net({.seed = static_cast<std::uint64_t>(seed)});
        struct {
            sole_ptr<verbs_device> l, r;
            verbs_device& left() { return *l; }
            verbs_device& right() { return *r; }
        } world{net.open({}), net.open({})};
        verbs_ends e(world, small, 64);
        e.left.bytes[0] = std::byte{1};
        REQUIRE(e.left.post_alone(false, 0, e.right, 0, 1, 0));
        REQUIRE(e.left.next().is(done::sent, 0));
#if !COLLX_TEST_TSAN // ThreadSanitizer would report this deliberate race
        late += e.right.bytes[0] != std::byte{1};
#endif
        REQUIRE(e.left.post_alone(true, 1, e.right, 32, 1, 1));
        REQUIRE(e.left.next().is(done::sent, 1));
        CHECK(e.right.bytes[0] == std::byte{1});
    }
#if !COLLX_TEST_TSAN
    CHECK((late > 10 && late < 90));
#endif
}

#if COLLX_TEST_TSAN
// In a single thread: it does not matter whose poll advances the fabric.
TEST_CASE("ThreadSanitizer sees who reads before the head, and who writes before it was sent") {
    enum { in_order, early_read, early_reuse, receive_read };
    for (const int what : {in_order, early_read, early_reuse, receive_read}) {
        const pid_t child = ::fork();
        if (child == 0) {
            (void)::close(2);
            fabric net({.most_delay_polls = 0});
            struct {
                sole_ptr<verbs_device> l, r;
                verbs_device& left() { return *l; }
                verbs_device& right() { return *r; }
            } world{net.open({}), net.open({})};
            verbs_ends e(world, small, 4096);
            verbs_completion c;
            volatile int sink = 0;
            e.right.post_receive(0);
            (void)e.left.post({e.write(0, 0, 4096)}, 0, 16);
            // The bytes are moved, but no completion is taken, which would order the accesses.
            for (int i = 0; i < 64; ++i) (void)e.left.pair->poll(&c, 0);
            if (what == early_read) sink = static_cast<int>(e.right.bytes[100]);
            if (what == receive_read) sink = static_cast<int>(*e.right.head(0));
            if (what == early_reuse) e.left.bytes[100] = std::byte{1};
            while (e.right.pair->poll(&c, 1) == 0) continue;
            sink = static_cast<int>(e.right.bytes[100]) + static_cast<int>(*e.right.head(0)) + sink;
            ::_exit(0); // ThreadSanitizer makes it 66 if it has reported something
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CAPTURE(what, status);
        CHECK((WIFEXITED(status) && (WEXITSTATUS(status) == 0) == (what == in_order)));
    }
}
#endif

// ------------------------------------------------------------------------------------------------ faults
TEST_CASE("faults come at the call that they were asked for") {
    std::byte b[64];
    {
        world_with w([](fabric_options& o) { o.refuse_memory = {.at = 2}; });
        const auto first = w.left().register_memory(b, 64);
        CHECK(code_of([&] { (void)w.right().register_memory(b, 64); }) == errc::resource);
        CHECK(static_cast<bool>(w.right().register_memory(b, 64)));
    }
    {
        world_with w([](fabric_options& o) { o.refuse_queue_pair = {.at = 1, .times = 2, .device = 1}; });
        CHECK(static_cast<bool>(w.left().make_queue_pair(small)));
        for (int i = 0; i < 2; ++i) CHECK(code_of([&] { (void)w.right().make_queue_pair(small); }) == errc::resource);
        CHECK(static_cast<bool>(w.right().make_queue_pair(small)));
        CHECK(code_of([&] { (void)w.right().make_queue_pair({.sends = 5000}); }) == errc::resource);
    }
    {
        world_with w([](fabric_options& o) { o.refuse_connect = {.at = 1}; });
        const auto l = w.left().make_queue_pair(small), r = w.right().make_queue_pair(small);
        CHECK(code_of([&] { l->connect(r->address()); }) == errc::environment);
        CHECK(code_of([&] { l->connect({}); }) == errc::environment);
        auto forged = r->address();
        forged.mtu_bytes = 1000;
        CHECK(code_of([&] { l->connect(forged); }) == errc::environment);
        forged = r->address();
        forged.number |= 1u << 24;
        CHECK(code_of([&] { l->connect(forged); }) == errc::environment);
        l->connect(r->address());
    }
}

TEST_CASE("a queue pair fails at a post, and its peer hears nothing of it") {
    for (const bool is_cut : {false, true}) {
        CAPTURE(is_cut);
        world_with w;
        w.net.inject(is_cut ? &fabric_options::cut_pair : &fabric_options::break_pair, {.at = 3, .device = 0});
        verbs_ends e(w, {4, 4, 4, 16}, 100);
        for (std::uint64_t i = 0; i < 4; ++i) e.right.post_receive(i);
        REQUIRE(e.left.post({e.write(0, 0, 100)}, 0, 16));
        REQUIRE(e.right.next().is(done::received, 0));
        REQUIRE(e.left.post({e.write(0, 0, 100)}, 1, 16));
        REQUIRE(e.right.next().is(done::received, 1));
        REQUIRE(e.left.next().is(done::sent, 0));
        REQUIRE(e.left.next().is(done::sent, 1));
        REQUIRE(e.left.post({e.write(0, 0, 100)}, 2, 16));
        check_failed(e, 2);
        verbs_completion c;
        for (int i = 0; i < 100; ++i) CHECK(e.right.pair->poll(&c, 1) == 0);
    }
}

TEST_CASE("from a lost device nothing comes; a wrong first packet or a one-sided connection reaches no rank") {
    for (const int what : {0, 1, 2}) {
        CAPTURE(what);
        world_with w;
        verbs_end left(w.left(), small, 10), right(w.right(), small, 10);
        auto there = right.pair->address();
        if (what == 1) there.first_packet ^= 1;
        left.pair->connect(there);
        if (what != 2) right.pair->connect(left.pair->address());
        if (what == 0) w.net.lose(1);
        right.post_receive(0);
        REQUIRE(left.post({}, 5, 16));
        CHECK(left.next().is(done::failed, 5));
        verbs_completion c;
        CHECK(right.pair->poll(&c, 1) == 0);
        if (what == 2) right.pair->connect(left.pair->address());
    }
}

TEST_CASE("what was on its way when a queue pair failed may still land, until the other side ends its own") {
    int late = 0;
    for (int seed = 1; seed < 40; ++seed) {
        fabric net({.seed = static_cast<std::uint64_t>(seed), .break_pair = {.at = 1}});
        struct {
            sole_ptr<verbs_device> l, r;
            verbs_device& left() { return *l; }
            verbs_device& right() { return *r; }
        } world{net.open({}), net.open({})};
        verbs_ends e(world, small, 16);
        e.right.post_receive(0);
        fill_message(e.left.bytes.data(), 1, 16);
        REQUIRE(e.left.post({e.write(0, 0, 16)}, 0, 16));
        REQUIRE(e.left.next().is(done::failed, 0));
        e.left.pair = nullptr;
        verbs_completion c;
        for (int i = 0; i < 20; ++i) CHECK(e.right.pair->poll(&c, 1) == 0);
        e.right.pair = nullptr; // from here on the device does not write the memory
        late += is_message(e.right.bytes.data(), 1, 16);
    }
    CHECK((late > 5 && late < 35));
}

TEST_CASE("devices by name, and the library of the program") {
    fabric net({.devices = 3});
    CHECK(detail::verbs_library == nullptr);
    {
        const fabric_installed here(net);
        REQUIRE(detail::verbs_library != nullptr);
        const auto open = detail::verbs_library->open;
        CHECK(std::string(open({.device = "fabric2"})->name()) == "fabric2 port 1");
        CHECK(std::string(open({})->name()) == "fabric0 port 1");
        for (const char* name : {"fabric3", "fabric-1", "mlx5_0", ""})
            CHECK(code_of([&] { (void)open({.device = name}); }) == errc::environment);
        CHECK(code_of([&] { (void)open({.port = 2}); }) == errc::environment);
        fabric none({.devices = 0});
        const fabric_installed instead(none);
        CHECK(!open({}));
        CHECK(std::string(detail::verbs_library->reason()) != "");
    }
    CHECK(detail::verbs_library == nullptr);
    CHECK(net.counters().devices == 2);
    CHECK(net.counters(2).devices == 1);
}

TEST_CASE("the same seed makes the same things happen") {
    const auto story = [](std::uint64_t seed) {
        fabric net({.seed = seed, .most_delay_polls = 9});
        struct {
            sole_ptr<verbs_device> l, r;
            verbs_device& left() { return *l; }
            verbs_device& right() { return *r; }
        } world{net.open({}), net.open({})};
        verbs_ends e(world, {4, 4, 4, 16}, 100);
        std::string text;
        for (std::uint64_t i = 0; i < 4; ++i) {
            e.right.post_receive(i);
            (void)e.left.post({e.write(0, 0, 9)}, i, 16);
        }
        for (int i = 0; i < 100; ++i) {
            verbs_completion c[4];
            text += static_cast<char>('0' + e.left.pair->poll(c, 4));
            text += static_cast<char>('0' + e.right.pair->poll(c, 4));
        }
        return text;
    };
    CHECK(story(5) == story(5));
    CHECK(story(5) != story(6));
}
