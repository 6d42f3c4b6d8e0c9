// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=240 sanitize=thread
//
// Windows of ranks on several hosts that have devices for RDMA, over the tests' fabric. Puts and gets use RDMA writes
// and reads, the target takes no part, and their order with respect to messages holds. What a device refuses is sent
// as messages. A failure is named. Each test ends with a check of the fabric: nothing was misused.
#include <chrono>
#include <random>
#include <thread>

#include <collx/comm/window.hpp>

#include "support.hpp"
#include "support/sanitizers.hpp"
#include "transport/verbs_fabric.hpp"

using namespace collx_test;
using namespace std::chrono_literals;
using collx::errc;

namespace {

struct over_fabric {
    fabric net;
    const fabric_installed here{net};
    explicit over_fabric(const fabric_options& o = {}) : net(o) {}
    ~over_fabric() {
        INFO(net.first_misuse());
        CHECK(net.misuses() == 0);
    }
};
#if COLLX_TEST_TSAN
constexpr int many = 20;
#else
constexpr int many = 100;
#endif

// Messages go over the socket until both ends have exchanged their slot addresses; RDMA transfers begin then.
template <class T>
void warm_up(collx::communicator& w, collx::window<T>& x) {
    for (int k = 0; k < 20; ++k) {
        for (int r = 0; r < w.size(); ++r)
            if (r != w.rank()) x.signal(r);
        for (int r = 0; r < w.size(); ++r)
            if (r != w.rank()) x.wait(r);
    }
    x.fence();
}

} // namespace

TEST_CASE("what is put is there when its signal is waited for, of any size, by writes from 4 KiB on") {
    for (const int n : {2, 3}) {
        over_fabric f({.seed = static_cast<std::uint64_t>(n)});
        on_hosts(n, {.ranks_per_host = 1}, [&](collx::communicator& w) {
            constexpr std::size_t most = 400'000;
            collx::window<int> x(w, most);
            warm_up(w, x);
            const int to = (w.rank() + 1) % n, from = (w.rank() + n - 1) % n;
            for (const std::size_t elems : {1u, 1000u, 1023u, 1024u, 1025u, 32'768u, 32'769u, 400'000u})
                for (int step = 0; step < 2; ++step) {
                    std::vector<int> v(elems);
                    for (std::size_t i = 0; i < elems; ++i) v[i] = w.rank() * 1000 + step + static_cast<int>(i);
                    x.put_signal(to, most - elems, v);
                    std::fill(v.begin(), v.end(), -1); // the buffer may be reused
                    x.wait(from);
                    at("%zu elements", elems);
                    for (std::size_t i = 0; i < elems; ++i)
                        EXPECT_AT(i, x.local()[most - elems + i] == from * 1000 + step + static_cast<int>(i));
                    x.signal(from);
                    x.wait(to); // my put has been read
                }
            x.fence();
        });
        CHECK(f.net.counters().transfers ==
              static_cast<std::uint64_t>(n) * 2 * (1 + 1 + 1 + 2 + 13)); // pieces of 128 KiB
    }
}

TEST_CASE("a target that makes no call is written and read meanwhile") {
    over_fabric f({.seed = 7});
    std::atomic<bool> is_done{false};
    on_hosts(2, {.ranks_per_host = 1}, [&](collx::communicator& w) {
        collx::window<int> x(w, 200'000);
        warm_up(w, x);
        if (w.rank() == 0) {
            std::vector<int> v(150'000), got(150'000);
            for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<int>(i * 3);
            x.put(1, 10, v);
            x.get(1, 10, got);
            EXPECT(got == v);
            EXPECT(x.get(1, 10 + 77) == 77 * 3);
            x.put(1, 10, std::vector<int>(5000, 4));
            x.flush(1);
            is_done = true;
        } else {
            until([&] { return is_done.load(); }); // not in a call
            EXPECT(is_done);
        }
        x.fence();
        if (w.rank() == 1)
            for (std::size_t i = 0; i < 150'000; ++i)
                EXPECT_AT(i, x.local()[10 + i] == (i < 5000 ? 4 : static_cast<int>(i * 3)));
    });
    CHECK(f.net.counters().bytes_read >= 600'000);
}

TEST_CASE("puts of all sizes, gets, combinations and flushes of one rank are in their order") {
    over_fabric f({.seed = 11});
    on_hosts(3, {.ranks_per_host = 1}, [&](collx::communicator& w) {
        constexpr std::size_t room = 60'000;
        collx::window<int> x(w, room * 3); // each rank has its own range in every part
        warm_up(w, x);
        const int to = (w.rank() + 1) % 3;
        const std::size_t mine = room * static_cast<std::size_t>(w.rank());
        std::vector<int> there(room);
        std::minstd_rand dice(static_cast<unsigned>(w.rank()) + 5);
        for (int turn = 0; turn < many; ++turn) {
            const std::size_t longest = dice() % 3 == 0 ? 40 : dice() % 2 == 0 ? 3000 : room;
            const std::size_t n = dice() % longest + 1, place = dice() % (room - n + 1);
            at("turn %d: %zu at %zu", turn, n, place);
            std::vector<int> v(n);
            for (int& e : v) e = static_cast<int>(dice() % 1000);
            switch (dice() % 5) {
                case 0:
                    x.accumulate(to, mine + place, v, collx::plus{});
                    for (std::size_t i = 0; i < n; ++i) there[place + i] += v[i];
                    break;
                case 1:
                    x.get(to, mine + place, v);
                    for (std::size_t i = 0; i < n; ++i) EXPECT_AT(i, v[i] == there[place + i]);
                    break;
                case 2: x.flush(to); break;
                case 3:
                    EXPECT(x.fetch_add(to, mine + place, 5) == there[place]);
                    there[place] += 5;
                    break;
                default:
                    x.put(to, mine + place, v);
                    std::copy(v.begin(), v.end(), there.begin() + static_cast<long>(place));
            }
        }
        std::vector<int> all(room);
        x.get(to, mine, all);
        for (std::size_t i = 0; i < room; ++i) EXPECT_AT(i, all[i] == there[i]);
        x.fence();
        collx::send(w, there, to);
        collx::recv(w, all, (w.rank() + 2) % 3);
        for (std::size_t i = 0; i < room; ++i)
            EXPECT_AT(i, x.local()[room * static_cast<std::size_t>((w.rank() + 2) % 3) + i] == all[i]);
    });
    CHECK(f.net.counters().transfers > many / 2);
}

TEST_CASE("a fence completes writes, and a buffer of the program is written where it lies") {
    constexpr int n = 5; // two of them exchange no message in a barrier
    over_fabric f({.seed = 3});
    on_hosts(n, {.ranks_per_host = 1}, [&](collx::communicator& w) {
        constexpr std::size_t each = 6000;
        std::vector<double> part(n * each, -1);
        collx::window<double> x(w, part);
        warm_up(w, x);
        for (int step = 0; step < many / 5; ++step) {
            for (int r = 0; r < n; ++r)
                x.put(r, each * static_cast<std::size_t>(w.rank()), std::vector<double>(each, w.rank() * 100 + step));
            x.fence();
            for (std::size_t i = 0; i < part.size(); ++i)
                EXPECT_AT(i, part[i] == static_cast<double>(i / each * 100) + step);
            x.fence();
        }
    });
    CHECK(f.net.counters().transfers > 0);
}

TEST_CASE("after a flush what was put is there, also when no message of collx says so") {
    over_fabric f({.seed = 13});
    std::atomic<int> put{0}, seen{0}; // the ranks are threads: these counters order them, not messages
    on_hosts(2, {.ranks_per_host = 1}, [&](collx::communicator& w) {
        constexpr std::size_t most = 5000;
        collx::window<int> x(w, most);
        warm_up(w, x);
        for (int step = 1; step <= many; ++step) {
            if (w.rank() == 0) {
                x.put(1, 0, std::vector<int>(most, step));
                x.flush(1);
                put = step;
                until([&] { return seen == step; });
                EXPECT(x.get(1, most - 1) == step);
            } else {
                until([&] { return put == step; });
                for (std::size_t i = 0; i < most; ++i) EXPECT_AT(i, x.local()[i] == step);
                seen = step;
            }
        }
        x.fence();
    });
    CHECK(f.net.counters(0).transfers >= 2u * many);
}

TEST_CASE("a device that takes no memory, or is not there, leaves its rank's part to messages") {
    for (const bool has_device : {true, false}) {
        // The counts are per rank: a window registers its memory after headers and slots.
        over_fabric f({.seed = 5, .devices = has_device ? 64 : 0});
        if (has_device) f.net.inject(&fabric_options::refuse_memory, {.at = 1, .times = 1 << 20, .device = 1});
        on_hosts(2, {.ranks_per_host = 1}, [&](collx::communicator& w) {
            collx::window<int> x(w, 50'000);
            warm_up(w, x);
            std::vector<int> v(50'000, w.rank() + 1), got(50'000);
            x.put_signal(1 - w.rank(), 0, v);
            x.wait(1 - w.rank());
            x.get(1 - w.rank(), 0, got);
            EXPECT(got == v && x.local()[49'999] == 2 - w.rank());
            x.fence();
        });
        CHECK(f.net.counters().transfers == 0);
    }
}

TEST_CASE("a device that breaks in the middle of puts is the peer's failure, named on both sides") {
    over_fabric f({.seed = 9});
    on_hosts(2, {.ranks_per_host = 1}, [&](collx::communicator& w) {
        collx::window<int> x(w, 100'000);
        try {
            warm_up(w, x); // rank 1 may still be in its last fence when rank 0 breaks the device
            if (w.rank() == 0) f.net.break_all(0);
            const std::vector<int> v(100'000, 1);
            std::vector<int> got(100'000);
            for (int k = 0; k < 1000; ++k) {
                if (w.rank() == 0) {
                    x.put(1, 0, v);
                    x.get(1, 0, got);
                } else x.wait(0, 1, 20s);
            }
            EXPECT(false);
        } catch (const collx::error& e) {
            at("%s", e.what());
            EXPECT(e.code() == errc::peer_failed && e.peer() == 1 - w.rank());
        }
    });
}
