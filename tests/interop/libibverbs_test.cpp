// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The libibverbs component: the choice of a device, and the reason if there is none. With devices, as in the guest of
// scripts/try_verbs: messages arrive complete, limits hold, and every failure is reported.
//
// collx-test: needs=verbs
#include <collx/interop/libibverbs.hpp>

#include <collx/core/clock.hpp>

#include <cstdlib>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>

#include "support/patience.hpp"
#include "support/skip.hpp"
#include "transport/verbs_contract.hpp"

using namespace collx;
using kind = verbs_completion::kind;

namespace {

// In the guest, tests may pull cables and forbid devices.
bool is_in_guest() { return std::getenv("TRY_VERBS_NODES") != nullptr; }

std::string device_name(int i) {
    detail::verbs_device_list list;
    return i < list.count ? ::ibv_get_device_name(list.all[i]) : "";
}
sole_ptr<verbs_device> open_named(const std::string& name) {
    verbs_choice c;
    c.device = name.c_str();
    return detail::verbs_library->open(c);
}
// The text of the error that f throws; empty if it throws none.
template <class F>
std::string thrown(errc code, F&& f) {
    try {
        f();
    } catch (const error& e) {
        CHECK(name_of(e.code()) == std::string(name_of(code)));
        return e.what();
    }
    return "";
}
bool skipped_without_devices(int needed = 1) {
    if (!device_name(needed - 1).empty()) return false;
    collx_test::skip("no RDMA device, or too few: scripts/try_verbs runs this in a guest that has some");
    return true;
}
bool skipped_outside_guest() {
    if (is_in_guest()) return false;
    collx_test::skip("changes the devices of the machine: scripts/try_verbs runs this in a guest");
    return true;
}

constexpr std::size_t memory_bytes = std::size_t{9} << 20;
constexpr verbs_limits usual{.sends = 8, .writes = 24, .receives = 8, .head_bytes = 128};

// One end: a device, registered memory (its last part receives heads) and a queue pair.
struct end {
    sole_ptr<verbs_device> device;
    std::vector<std::byte> bytes = std::vector<std::byte>(memory_bytes);
    sole_ptr<verbs_memory> memory;
    sole_ptr<queue_pair> pair;
    std::vector<verbs_completion> kept; // polled, but not asked for yet

    explicit end(const std::string& name, verbs_limits limits = usual) : device(open_named(name)) {
        memory = device->register_memory(bytes.data(), bytes.size());
        pair = device->make_queue_pair(limits);
        for (int i = 0; i < limits.receives; ++i) receive(static_cast<std::uint64_t>(i));
    }
    std::byte* head(std::uint64_t id) { return &bytes[memory_bytes - 4096 + id * 256]; }
    void receive(std::uint64_t id) { pair->post_receive(head(id), 256, memory->local_key, id); }
    verbs_write write(end& to, std::size_t from_at, std::size_t to_at, std::size_t n) {
        return {&bytes[from_at], static_cast<std::uint32_t>(n), memory->local_key,
                reinterpret_cast<std::uintptr_t>(&to.bytes[to_at]), to.memory->remote_key};
    }
    // The next completion of this kind; completions of other kinds are kept. `failed` after 20 s without one.
    verbs_completion wait(kind what) {
        const std::int64_t deadline = now_ns() + collx_test::patient(20'000'000'000);
        do {
            for (std::size_t i = 0; i < kept.size(); ++i) {
                if (kept[i].what != what && kept[i].what != kind::failed) continue;
                const verbs_completion c = kept[i];
                kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(i));
                return c;
            }
            verbs_completion some[4];
            const int n = pair->poll(some, 4);
            kept.insert(kept.end(), some, some + n);
            if (n == 0) ::usleep(50);
        } while (now_ns() < deadline || !kept.empty());
        return {kind::failed, ~0ull, 0, "nothing came for 20 s"};
    }
};
void join(end& a, end& b) {
    const auto at_a = a.pair->address(), at_b = b.pair->address();
    a.pair->connect(at_b);
    b.pair->connect(at_a);
}
// Two ends, on two devices if there are two.
struct both {
    end a, b;
    explicit both(verbs_limits limits = usual)
        : a(device_name(0), limits), b(device_name(device_name(1).empty() ? 0 : 1), limits) {
        join(a, b);
    }
};
void fill(end& e, std::size_t at, std::size_t n, unsigned seed) {
    for (std::size_t i = 0; i < n; ++i) e.bytes[at + i] = static_cast<std::byte>(seed + i * 7 + i / 251);
}
bool holds(const end& e, std::size_t at, std::size_t n, unsigned seed) {
    for (std::size_t i = 0; i < n; ++i)
        if (e.bytes[at + i] != static_cast<std::byte>(seed + i * 7 + i / 251)) return false;
    return true;
}
double seconds_until_failed(end& e, std::string& why) {
    const std::int64_t began = now_ns();
    const verbs_completion c = e.wait(kind::sent);
    why = c.what == kind::failed && c.why != nullptr ? c.why : "no failure";
    return static_cast<double>(now_ns() - began) / 1e9;
}
int shell(const std::string& command) { return std::system(command.c_str()); }

// For the contract: two devices if there are two.
struct real_world {
    sole_ptr<verbs_device> devices[2] = {open_named(device_name(0)),
                                         open_named(device_name(device_name(1).empty() ? 0 : 1))};
    verbs_device& left() { return *devices[0]; }
    verbs_device& right() { return *devices[1]; }
    void forgives() {}
    void is_impatient() {}
};

} // namespace

TEST_CASE("without a device there is a reason, and a name that is no device's is an error") {
    REQUIRE(detail::verbs_library == &detail::verbs_of_libibverbs);
    const std::string said = thrown(errc::environment, [] { open_named("no_such_device"); });
    CHECK(said.find("'no_such_device'") != std::string::npos);
    if (device_name(0).empty()) {
        CHECK_FALSE(detail::verbs_library->open({}));
        const std::string why = detail::verbs_library->reason();
        CHECK(why.find("no RDMA device") != std::string::npos);
        CHECK(why.find("ib_uverbs") != std::string::npos);
        CHECK(said.find("there is none") != std::string::npos);
    } else {
        CHECK(said.find("there are: ") != std::string::npos);
        CHECK(said.find(device_name(0)) != std::string::npos);
    }
}

TEST_CASE("a port and an address are chosen, and what is not there is said") {
    if (skipped_without_devices()) return;
    const std::string name = device_name(0);
    const auto d = detail::verbs_library->open({});
    REQUIRE(d);
    CHECK(std::string(d->name()).find(" port ") != std::string::npos);
    CHECK(d->most_write_bytes() >= 1u << 20);
    CHECK(d->most_head_bytes() >= 128);

    verbs_choice c;
    c.device = name.c_str();
    c.port = 77;
    CHECK(thrown(errc::environment, [&] { detail::verbs_library->open(c); }).find("no port 77") != std::string::npos);
    c.port = 1;
    c.gid_index = 60000;
    CHECK(thrown(errc::environment, [&] { detail::verbs_library->open(c); }).find("index 60000") != std::string::npos);
    c.gid_index = 0;
    const auto first = detail::verbs_library->open(c)->make_queue_pair(usual)->address();

    // Any other address of the port is found automatically.
    c.gid_index = -1;
    c.has_address = true;
    const auto usually = d->make_queue_pair(usual)->address();
    std::memcpy(c.address, first.gid, 16);
    auto found = detail::verbs_library->open(c)->make_queue_pair(usual)->address();
    CHECK(std::memcmp(found.gid, first.gid, 16) == 0);
    std::memcpy(c.address, usually.gid, 16);
    found = detail::verbs_library->open(c)->make_queue_pair(usual)->address();
    CHECK(std::memcmp(found.gid, usually.gid, 16) == 0);
    if (is_in_guest()) { // the configured address has priority over the link-local one
        const unsigned char given[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 88, 0, 1};
        CHECK(std::memcmp(usually.gid, given, 16) == 0);
        CHECK(usually.link == verbs_link::roce_v2);
        for (unsigned char i = 1; i <= 2; ++i) { // without a name: the device that has the address
            verbs_choice by_address{.has_address = true};
            std::memcpy(by_address.address, given, 16);
            by_address.address[15] = i;
            CHECK(detail::verbs_library->open(by_address)->name() == "rxe" + std::to_string(i) + " port 1");
        }
        CHECK(first.gid[0] == 0xfe);
    }
}

TEST_CASE("the contract of verbs, over devices") {
    if (skipped_without_devices()) return;
    SECTION("writes of all lengths are there when their head is") { collx_test::check_writes_and_heads<real_world>(); }
    SECTION("transfers alone, of all lengths") { collx_test::check_transfers<real_world>(); }
    SECTION("transfers alone stay in order") { collx_test::check_transfers_in_order<real_world>(); }
    SECTION("as many transfers alone as were asked for") { collx_test::check_transfer_limits<real_world>(); }
    SECTION("transfers that the peer has not allowed") { collx_test::check_forbidden_transfers<real_world>(); }
    SECTION("heads go alone, and are copied") { collx_test::check_heads_alone<real_world>(); }
    SECTION("one head for many writes") { collx_test::check_many_writes<real_world>(); }
    SECTION("limits are reached exactly, and ids come in order") { collx_test::check_limits<real_world>(); }
    SECTION("both directions at once") { collx_test::check_both_directions<real_world>(); }
    SECTION("before connecting") { collx_test::check_before_connecting<real_world>(); }
    SECTION("memory twice, in parts and by the byte") { collx_test::check_memory<real_world>(); }
    SECTION("what the peer has not allowed fails") { collx_test::check_forbidden_writes<real_world>(); }
    SECTION("a peer that has gone") { collx_test::check_peer_gone<real_world>(); }
    SECTION("a head without a receive") { collx_test::check_no_receive<real_world>(); }
    SECTION("ends in any order") { collx_test::check_ends<real_world>(); }
}

TEST_CASE("thousands of messages both ways within the limits, in their order") {
    if (skipped_without_devices()) return;
    both two;
    constexpr std::uint32_t messages = 3000;
    struct counts {
        std::uint32_t posted = 0, sent = 0, received = 0, credit = 8;
    } of[2];
    end* ends[] = {&two.a, &two.b};
    const std::int64_t deadline = now_ns() + collx_test::patient(60'000'000'000);
    while ((of[0].sent < messages || of[1].sent < messages || of[0].received < messages || of[1].received < messages) &&
           now_ns() < deadline)
        for (int me = 0; me < 2; ++me) {
            end &e = *ends[me], &peer = *ends[1 - me];
            counts& c = of[me];
            while (c.posted < messages && c.posted - c.sent < 8 && c.credit > 0) {
                const verbs_write w[] = {e.write(peer, c.posted % 5000, c.posted % 4000 + 8192, c.posted % 700),
                                         e.write(peer, c.posted % 5000, c.posted % 4000 + 65536, 1)};
                REQUIRE(e.pair->post(w, 2, &c.posted, sizeof c.posted, c.posted));
                ++c.posted;
                --c.credit;
            }
            verbs_completion some[5];
            const int n = e.pair->poll(some, 5);
            for (int i = 0; i < n; ++i) {
                INFO((some[i].why != nullptr ? some[i].why : ""));
                REQUIRE(some[i].what != kind::failed);
                if (some[i].what == kind::sent) REQUIRE(some[i].id == c.sent++);
                else {
                    REQUIRE(std::memcmp(e.head(some[i].id), &c.received, 4) == 0);
                    e.receive(some[i].id);
                    ++c.received;
                    ++of[1 - me].credit;
                }
            }
        }
    CHECK(of[0].sent == messages);
    CHECK(of[1].received == messages);
}

TEST_CASE("writes without heads give their places back, and more than was agreed is refused") {
    if (skipped_without_devices()) return;
    both two;
    fill(two.a, 0, 64, 9);
    int posted = 0, refused = 0;
    const std::int64_t deadline = now_ns() + collx_test::patient(20'000'000'000);
    while (posted < 1000 && now_ns() < deadline) {
        const verbs_write w[] = {two.a.write(two.b, 0, 0, 64), two.a.write(two.b, 0, 64, 64)};
        try {
            if (!two.a.pair->post(w, 2, nullptr, 0, 1)) break;
            ++posted;
        } catch (const error& e) {
            REQUIRE(e.code() == errc::resource);
            ++refused;
            verbs_completion none;
            REQUIRE(two.a.pair->poll(&none, 1) == 0);
        }
    }
    CHECK(posted == 1000);
    CHECK(refused > 0);
    // None of these was reported, and a head can be posted once some writes have completed.
    bool is_posted = false;
    for (int turn = 0; turn < 2000 && !is_posted; ++turn) {
        verbs_completion none;
        REQUIRE(two.a.pair->poll(&none, 1) == 0);
        try {
            is_posted = two.a.pair->post(nullptr, 0, "end", 3, 2);
        } catch (const error&) {
            ::usleep(1000);
        }
    }
    REQUIRE(is_posted);
    REQUIRE(two.b.wait(kind::received).what == kind::received);
    CHECK(two.a.wait(kind::sent).id == 2);
    CHECK(holds(two.b, 64, 64, 9));

    CHECK(thrown(errc::resource, [&] { two.a.device->make_queue_pair({1 << 30, 1 << 29, 8, 64}); }) != "");
    CHECK(thrown(errc::resource, [&] { two.a.device->make_queue_pair({8, 8, 8, 1 << 20}); }) != "");
}

TEST_CASE("a key that is none ends both sides") {
    if (skipped_without_devices()) return;
    both two;
    verbs_write w = two.a.write(two.b, 0, 0, 64);
    w.remote_key ^= 0x5a5a00;
    REQUIRE(two.a.pair->post(&w, 1, "x", 1, 3));
    std::string why;
    seconds_until_failed(two.a, why);
    CHECK(why == ::ibv_wc_status_str(IBV_WC_REM_ACCESS_ERR));
    CHECK_FALSE(two.a.pair->post(nullptr, 0, "x", 1, 4));
    CHECK(two.b.wait(kind::received).what == kind::failed);
}

TEST_CASE("a peer that is gone is noticed within a few seconds") {
    if (skipped_without_devices()) return;
    both two;
    two.b.pair = nullptr;
    REQUIRE(two.a.pair->post(nullptr, 0, "x", 1, 3));
    std::string why;
    const double seconds = seconds_until_failed(two.a, why);
    CHECK(why == ::ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR));
    CHECK(seconds < 12); // 1.9, but a device may take four times as long
    std::printf("a peer that is gone was noticed after %.1f s\n", seconds);
}

TEST_CASE("what cannot be registered or connected is a typed error") {
    if (skipped_without_devices()) return;
    end e(device_name(0));
    void* closed = ::mmap(nullptr, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(thrown(errc::resource, [&] {
              e.device->register_memory(static_cast<std::byte*>(closed), 8192);
          }).find("readable and writable") != std::string::npos);
    ::munmap(closed, 8192);
    queue_pair_address nonsense = e.pair->address();
    nonsense.mtu_bytes = 1000;
    CHECK(thrown(errc::environment, [&] { e.pair->connect(nonsense); }) != "");
    nonsense = e.pair->address();
    nonsense.number = 1u << 24;
    CHECK(thrown(errc::environment, [&] { e.pair->connect(nonsense); }) != "");
    if (is_in_guest()) { // there is no route to 192.0.2.1 there
        nonsense = e.pair->address();
        const unsigned char nowhere[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1};
        std::memcpy(nonsense.gid, nowhere, 16);
        CHECK(thrown(errc::environment, [&] { e.pair->connect(nonsense); }).find("c000:0201") != std::string::npos);
    }
}

TEST_CASE("a child of fork takes nothing away, and what the parent writes meanwhile is what is sent") {
    if (skipped_without_devices()) return;
    both two;
    int hold[2];
    REQUIRE(::pipe(hold) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(hold[1]);
        two.a.pair = nullptr; // like the destructors of a program that continues in a child
        two.a.memory = nullptr;
        two.a.device = nullptr;
        char none;
        (void)!::read(hold[0], &none, 1); // shares the pages until the parent has finished
        ::_exit(0);
    }
    ::close(hold[0]);
    ::usleep(100'000);
    fill(two.a, 0, 10000, 77);
    const verbs_write w = two.a.write(two.b, 0, 0, 10000);
    REQUIRE(two.a.pair->post(&w, 1, "x", 1, 5));
    CHECK(two.b.wait(kind::received).what == kind::received);
    CHECK(holds(two.b, 0, 10000, 77));
    CHECK(two.a.wait(kind::sent).id == 5);
    ::close(hold[1]);
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

TEST_CASE("a cable that is drawn, on either side, is noticed; a short cut is not") {
    if (skipped_without_devices(3) || skipped_outside_guest()) return;
    for (const char* cut : {"p2", "p1"}) {
        both two;
        REQUIRE(two.a.pair->post(nullptr, 0, "x", 1, 3));
        REQUIRE(two.a.wait(kind::sent).id == 3);
        REQUIRE(shell("ip link set " + std::string(cut) + " down") == 0);
        std::string why = "refused at once";
        const double seconds = two.a.pair->post(nullptr, 0, "y", 1, 4) ? seconds_until_failed(two.a, why) : 0.0;
        CHECK(shell("ip link set " + std::string(cut) + " up") == 0);
        CHECK(why != "no failure");
        CHECK(seconds < 12);
        std::printf("%s drawn: '%s' after %.1f s\n", cut, why.c_str(), seconds);
        ::sleep(1); // until the bridge has learned and the port is active again
    }
    both two;
    fill(two.a, 0, 100'000, 3);
    REQUIRE(shell("ip link set p2 down") == 0);
    const verbs_write w = two.a.write(two.b, 0, 0, 100'000);
    REQUIRE(two.a.pair->post(&w, 1, "x", 1, 3));
    ::usleep(300'000);
    CHECK(shell("ip link set p2 up") == 0);
    CHECK(two.a.wait(kind::sent).id == 3);
    CHECK(two.b.wait(kind::received).what == kind::received);
    CHECK(holds(two.b, 0, 100'000, 3));
}

TEST_CASE("ports that are down, devices that are forbidden and limits of locked memory get different errors") {
    if (skipped_without_devices(3) || skipped_outside_guest()) return;
    const std::string last = device_name(2);
    REQUIRE(shell("ip link set n3 down") == 0);
    const std::string down = thrown(errc::environment, [&] { open_named(last); });
    CHECK(shell("ip link set n3 up") == 0);
    CHECK(down.find(last + " port 1 is not active") != std::string::npos);

    const auto as_nobody = [](auto&& f) {
        std::fflush(nullptr);
        const pid_t child = ::fork();
        if (child == 0) {
            rlimit none{0, 0};
            if (::setrlimit(RLIMIT_MEMLOCK, &none) != 0 || ::setuid(65534) != 0) ::_exit(3);
            const bool is_good = f();
            std::fflush(stdout);
            ::_exit(is_good ? 0 : 1);
        }
        int status = -1;
        ::waitpid(child, &status, 0);
        return status == 0;
    };
    CHECK(as_nobody([&] {
        std::vector<std::byte> some(1 << 20);
        std::string said;
        try {
            const auto d = open_named(device_name(0));
            d->register_memory(some.data(), some.size());
        } catch (const error& e) {
            said = e.what();
        }
        std::printf("%s\n", said.c_str());
        return said.find("ulimit -l") != std::string::npos;
    }));
    REQUIRE(shell("chmod 600 /dev/infiniband/uverbs*") == 0);
    CHECK(as_nobody([&] {
        const bool is_null = !detail::verbs_library->open({});
        const std::string why = detail::verbs_library->reason();
        std::printf("%s\n", why.c_str());
        return is_null && why.find("/dev/infiniband/uverbs") != std::string::npos &&
               why.find("Permission denied") != std::string::npos;
    }));
    CHECK(shell("chmod 666 /dev/infiniband/uverbs*") == 0);
}
