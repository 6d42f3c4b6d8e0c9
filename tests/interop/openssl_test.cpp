// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sealed connections: changed, repeated, swapped, truncated and inserted records are detected; others arrive, with
// normal and faulty system calls, alone and under a communicator. Also measures the cost.
//
// collx-test: needs=openssl timeout=240
#include <collx/interop/openssl.hpp>

#include <collx/collx.hpp>
#include <collx/net.hpp>
#include <collx/transport/detail/sealed_socket.hpp>
#include <collx/transport/socket_connector.hpp>

#include <algorithm>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "support/faulty_sockets.hpp"
#include "support/patience.hpp"

using namespace collx;

namespace {

detail::secret session_of(unsigned char c) {
    detail::secret s;
    std::memset(s.bytes, c, sizeof s.bytes);
    return s;
}
std::string hex(const unsigned char* bytes, std::size_t n) {
    std::string text;
    for (std::size_t i = 0; i < n; ++i) {
        text += "0123456789abcdef"[bytes[i] >> 4];
        text += "0123456789abcdef"[bytes[i] & 15];
    }
    return text;
}

// A network in memory: records sent by one end are stored for the test to change.
struct wires {
    static inline std::string sent, to_come;
    static ssize_t sendmsg(int, const msghdr* m, int) {
        ssize_t n = 0;
        for (std::size_t i = 0; i < m->msg_iovlen; ++i) {
            sent.append(static_cast<const char*>(m->msg_iov[i].iov_base), m->msg_iov[i].iov_len);
            n += static_cast<ssize_t>(m->msg_iov[i].iov_len);
        }
        return n;
    }
    static ssize_t recvmsg(int, msghdr* m, int) {
        if (to_come.empty()) {
            errno = EAGAIN;
            return -1;
        }
        const std::size_t n = std::min(to_come.size(), m->msg_iov[0].iov_len);
        std::memcpy(m->msg_iov[0].iov_base, to_come.data(), n);
        to_come.erase(0, n);
        return static_cast<ssize_t>(n);
    }
};
constexpr socket_calls wire_calls{::socket, ::connect, ::accept4, wires::sendmsg, wires::recvmsg, ::epoll_wait};

sole_ptr<detail::wire_layer> end_of(protection level, bool is_connecting, unsigned char session = 1) {
    return detail::seal_connection(level, session_of(session), is_connecting, wire_calls);
}
// The record made of a text.
std::string record(detail::wire_layer& from, std::string text) {
    wires::sent.clear();
    iovec v{text.data(), text.size()};
    msghdr m{};
    m.msg_iov = &v;
    m.msg_iovlen = 1;
    REQUIRE(from.send(0, m) == static_cast<ssize_t>(text.size()));
    return wires::sent;
}
// The received text; "BROKEN" for a broken seal.
std::string heard(detail::wire_layer& at, const std::string& records) {
    wires::to_come = records;
    std::string text(200'000, '\0');
    iovec v{text.data(), text.size()};
    msghdr m{};
    m.msg_iov = &v;
    m.msg_iovlen = 1;
    const ssize_t n = at.receive(0, m);
    if (n < 0) return errno == EBADMSG ? "BROKEN" : "";
    text.resize(static_cast<std::size_t>(n));
    return text;
}

} // namespace

TEST_CASE("the component computes HMAC-SHA256 as others do") {
    REQUIRE(detail::seals == &detail::seals_of_openssl);
    unsigned char key[32] = {}, tag[32]; // RFC 4231, case 1
    std::memset(key, 0x0b, 20);
    detail::macs_of_openssl.sign(key, "Hi There", 8, tag);
    CHECK(hex(tag, 32) == "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    CHECK(detail::macs != nullptr);
}

TEST_CASE("tags are equal in all bytes or not at all") {
    unsigned char tag[32] = {1, 2, 3}, other[32] = {1, 2, 3};
    const auto is_equal = collx::detail::macs_of_openssl.is_equal;
    CHECK(is_equal(tag, other, 32));
    for (unsigned char& c : other) {
        c ^= 0x80;
        CHECK_FALSE(is_equal(tag, other, 32));
        c ^= 0x80;
    }
}

TEST_CASE("each direction of each protection has a key and a first nonce of its own") {
    collx::detail::secret session, another;
    another.bytes[31] = 1;
    std::vector<std::string> seen;
    for (const auto* of : {&session, &another})
        for (const bool from_connecting : {false, true})
            for (const bool hides : {false, true}) {
                const collx::detail::direction_secret d(*of, from_connecting, hides);
                seen.emplace_back(reinterpret_cast<const char*>(d.key), sizeof d.key);
                seen.emplace_back(reinterpret_cast<const char*>(d.nonce), sizeof d.nonce);
            }
    std::sort(seen.begin(), seen.end());
    CHECK(std::unique(seen.begin(), seen.end()) == seen.end());
    CHECK(seen.size() == 16);
}

TEST_CASE("records come out as they went in, and no others") {
    for (const protection level : {protection::integrity, protection::encrypted}) {
        INFO(name_of(level));
        const auto fresh = [&] { return std::pair{end_of(level, true), end_of(level, false)}; };
        {
            auto [a, b] = fresh();
            const std::string first = record(*a, "the first"), second = record(*a, std::string(100'000, 'x'));
            CHECK(heard(*b, first) == "the first");
            CHECK(heard(*b, second) == std::string(100'000, 'x'));
            CHECK((first.find("the first") == std::string::npos) == (level == protection::encrypted));
            CHECK(heard(*a, record(*b, "back")) == "back");
            CHECK(heard(*b, record(*a, "third")) == "third");
        }
        { // a flip of each bit
            const std::string good = [&] { return record(*end_of(level, true), "some words"); }();
            for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
                std::string bad = good;
                bad[bit / 8] ^= static_cast<char>(1 << bit % 8);
                const auto b = end_of(level, false);
                const std::string came = heard(*b, bad);
                // A larger length waits for bytes that never arrive; nothing is delivered.
                CHECK((came == "BROKEN" || came.empty()));
                if (came.empty()) CHECK(heard(*b, std::string(70'000, '\0')) == "BROKEN");
                CHECK(heard(*b, good) == "BROKEN"); // and it stays broken
            }
        }
        {
            auto [a, b] = fresh();
            const std::string one = record(*a, "one"), two = record(*a, "two");
            CHECK(heard(*b, one) == "one");
            CHECK(heard(*b, one) == "BROKEN"); // repeated
        }
        {
            auto [a, b] = fresh();
            const std::string one = record(*a, "one"), two = record(*a, "two");
            CHECK(heard(*b, two + one) == "BROKEN"); // swapped
        }
        {
            auto [a, b] = fresh();
            (void)record(*a, "one");
            CHECK(heard(*b, record(*a, "two")) == "BROKEN"); // one is missing
        }
        {
            auto [a, b] = fresh();
            CHECK(heard(*a, record(*a, "mine")) == "BROKEN"); // sent back
        }
        {
            const auto a = end_of(level, true, 1), b = end_of(level, false, 2);
            CHECK(heard(*b, record(*a, "x")) == "BROKEN"); // a record of another connection
        }
        {
            const auto a = end_of(level, true);
            const auto b =
                end_of(level == protection::integrity ? protection::encrypted : protection::integrity, false);
            CHECK(heard(*b, record(*a, "x")) == "BROKEN");
        }
        {
            auto [a, b] = fresh();
            CHECK(heard(*b, record(*a, "half of it").substr(0, 20)).empty());
            CHECK(heard(*b, std::string("\0\0\0\0", 4) + std::string(100, 'x')) == "BROKEN");
        }
    }
}

namespace {

std::vector<std::pair<errc, int>> seen_by_ranks(int n, const job_protection& by, const socket_calls& calls,
                                                void (*body)(communicator&), int lanes = 1) {
    std::vector<int> hosts;
    for (int r = 0; r < n; ++r) hosts.push_back(r);
    const std::vector all(static_cast<std::size_t>(n), by);
    auto jobs = detail::thread_jobs(hosts, calls, all.data(), "127.0.0.1", lanes);
    std::vector<std::pair<errc, int>> seen(all.size(), {errc::forked, -1});
    std::vector<std::thread> ranks;
    for (int r = 0; r < n; ++r)
        ranks.emplace_back([&, r] {
            auto mine = std::move(jobs[static_cast<std::size_t>(r)]);
            try {
                communicator w(mine);
                w.set_timeout(collx_test::patient(std::chrono::seconds(20)));
                body(w);
            } catch (const error& e) {
                seen[static_cast<std::size_t>(r)] = {e.code(), e.peer()};
            }
        });
    for (auto& t : ranks) t.join();
    return seen;
}
void sums(communicator& w) {
    for (const std::size_t m : {std::size_t{1}, std::size_t{1000}, std::size_t{200'003}}) {
        std::vector<int> x(m, w.rank() + 1), y(m * static_cast<std::size_t>(w.size()));
        all_reduce(w, x);
        if (x[m - 1] != w.size() * (w.size() + 1) / 2) fail(errc::protocol, w.rank(), -1, "", "a wrong sum");
        all_gather(w, x, y);
        if (y.back() != x[0]) fail(errc::protocol, w.rank(), -1, "", "a wrong gather");
    }
    auto half = w.split(w.rank() % 2);
    barrier(half);
}

// A communicator that shares its connections with others of this rank.
communicator shared_one(communicator& w) {
    w.membership()->connector->of_sockets()->hub()->set_most_own(1);
    return w.split(0);
}

// The system's calls, until a bit is flipped in transit.
struct bad_wire {
    static inline std::atomic<bool> strikes{false};
    static inline std::atomic<int> struck{0};
    static ssize_t recvmsg(int fd, msghdr* m, int flags) {
        const ssize_t n = ::recvmsg(fd, m, flags);
        if (n > 40 && strikes.exchange(false)) {
            static_cast<char*>(m->msg_iov[0].iov_base)[n / 2] ^= 16;
            ++struck;
        }
        return n;
    }
};
constexpr socket_calls bad_wire_calls{::socket, ::connect, ::accept4, ::sendmsg, bad_wire::recvmsg, ::epoll_wait};

// Communicators, and the thread of a unique_id, may outlive what OpenSSL does at exit: its destructor ends this program
// with a signal if it does anything.
struct signs_at_exit {
    ~signs_at_exit() { (void)job_key(std::string(64, 'k')).fingerprint("job"); }
} after_all_tests;

} // namespace

TEST_CASE("communicators compute over sealed connections, on good days and bad") {
    for (const protection level : {protection::integrity, protection::encrypted})
        for (const auto* calls : {&system_socket_calls, &collx_test::bad_day_calls})
            for (const auto& [code, peer] :
                 seen_by_ranks(4, {level, job_key(std::string(64, 'k'))}, *calls, [](communicator& w) {
                     sums(w);
                     communicator shared = shared_one(w);
                     sums(shared);
                 })) {
                INFO(name_of(level) << " " << static_cast<int>(code) << " about " << peer);
                CHECK(code == errc::forked);
            }
}

TEST_CASE("a bit turned on the way is an error that names the connection's other end, on all ranks") {
    static bool is_shared; // static, because the ranks run a plain function
    for (const bool shares : {false, true}) {
        is_shared = shares;
        const protection level = is_shared ? protection::encrypted : protection::integrity;
        bad_wire::struck = 0;
        const auto seen =
            seen_by_ranks(3, {level, job_key(std::string(64, 'k'))}, bad_wire_calls, [](communicator& world) {
                communicator w = is_shared ? shared_one(world) : world.split(0);
                for (int i = 0; i < 2000; ++i) {
                    std::vector<int> x(5000, 1);
                    if (i == 20 && w.rank() == 0) bad_wire::strikes = true; // all connections exist
                    all_reduce(w, x);
                    if (x[4999] != w.size()) fail(errc::protocol, w.rank(), -1, "", "a wrong sum");
                }
            });
        CHECK(bad_wire::struck == 1);
        for (const auto& [code, peer] : seen) {
            INFO(static_cast<int>(code) << " about " << peer);
            CHECK(code == errc::security);
            CHECK((peer >= 0 && peer < 3));
        }
    }
}

TEST_CASE("each lane of a pair has seals of its own, and a bit turned on any of them is found") {
    for (const bool strikes : {false, true, true, true}) {
        bad_wire::struck = 0;
        static bool strikes_now;
        strikes_now = strikes;
        const auto seen = seen_by_ranks(
            2, {protection::encrypted, job_key(std::string(64, 'k'))}, bad_wire_calls,
            [](communicator& w) {
                std::vector<int> x(300'000), all(600'000);
                const auto gather = [&](int i) {
                    for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<int>(k) * (w.rank() + 2) + i;
                    all_gather(w, x, all);
                    for (std::size_t k = 0; k < x.size(); ++k)
                        if (all[k] != static_cast<int>(k) * 2 + i || all[x.size() + k] != static_cast<int>(k) * 3 + i)
                            fail(errc::protocol, w.rank(), -1, "", "a wrong gather");
                };
                int least = 0;
                for (int i = 0; i < 500 && least < 3; ++i) {
                    gather(i);
                    least = w.internals().net.remote()->connections();
                    all_reduce(w, value(least), min{});
                }
                if (least != 3) fail(errc::protocol, w.rank(), -1, "", "%d of 3 lanes", least);
                if (strikes_now && w.rank() == 0) bad_wire::strikes = true;
                for (int i = 0; i < 20; ++i) gather(i);
            },
            3);
        CHECK(bad_wire::struck == (strikes ? 1 : 0));
        for (int r = 0; r < 2; ++r) {
            INFO("rank " << r << ": " << static_cast<int>(seen[static_cast<std::size_t>(r)].first));
            CHECK(seen[static_cast<std::size_t>(r)].first == (strikes ? errc::security : errc::forked));
        }
        CHECK(seen[0].second == seen[1].second); // the end that found it names the other, and all ranks name that one
        CHECK((seen[0].second >= 0) == strikes);
    }
}

TEST_CASE("survivors of several hosts prove and seal as well") {
    for (const protection level : {protection::auth_only, protection::encrypted})
        for (const int victim : {0, 2}) {
            const std::vector<int> hosts{0, 1, 1, 2};
            const std::vector all(hosts.size(), job_protection{level, job_key(std::string(64, 'k'))});
            std::atomic<int> went_on{0};
            try {
                detail::run_thread_jobs(detail::thread_jobs(hosts, system_socket_calls, all.data()),
                                        [&](communicator& w) {
                                            const int me = w.rank();
                                            if (me == victim) {
                                                barrier(w); // now all ranks have made their communicators
                                                throw std::runtime_error("of the program");
                                            }
                                            try {
                                                for (;;) barrier(w);
                                            } catch (const peer_failed&) {
                                            }
                                            communicator rest = w.shrink();
                                            int bits = 1 << me;
                                            all_reduce(rest, value(bits));
                                            went_on += rest.size() == 3 && bits == (0xf & ~(1 << victim));
                                        });
            } catch (const std::runtime_error& e) {
                CHECK(std::string(e.what()) == "of the program");
            }
            INFO(name_of(level) << ", victim " << victim);
            CHECK(went_on == 3);
        }
}

TEST_CASE("what seals cost") {
    double mb_per_s[4] = {};
    for (const protection level : {protection::integrity, protection::encrypted}) {
        const detail::secret s = session_of(3);
        const auto a = detail::seals->make(s, true, level == protection::encrypted);
        const auto b = detail::seals->make(s, false, level == protection::encrypted);
        std::vector<unsigned char> text(64 * 1024, 7);
        unsigned char tag[16], head[4] = {};
        constexpr int times = 200;
        int right = 0;
        const std::int64_t begin = now_ns();
        for (int i = 0; i < times; ++i)
            right += a->seal(head, 4, text.data(), text.size(), tag) && b->open(head, 4, text.data(), text.size(), tag);
        mb_per_s[static_cast<int>(level)] =
            static_cast<double>(text.size()) * times / 1e6 / (static_cast<double>(now_ns() - begin) / 1e9);
        CHECK(right == times);
        CHECK(text[1000] == 7);
    }
    std::printf("sealing and opening on one core: integrity %.0f MB/s, encrypted %.0f MB/s\n", mb_per_s[2],
                mb_per_s[3]);
}
