// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300
//
// Windows in device memory over the fake runtime: ranks are threads with a device each, kernels are threads, too. The
// results of puts by kernels and streams are compared with a serial program. Errors are reported on the rank whose
// kernel made them, and end the window on the other ranks. tests/gpu/windows.cu is the test on a device.
#include <memory>
#include <random>
#include <stdexcept>

#include "fake_devices.hpp"
#include "support/patience.hpp"

#include <collx/gpu/device_window.hpp>

namespace {

template <class T>
using window = basic_device_window<T, fake_runtime>;

device_window_options some(unsigned lines = 8) {
    device_window_options o;
    o.lines = lines;
    o.settings = small();
    return o;
}

// Launches f(block of the window, its number, number of blocks) on each of `blocks` blocks.
template <class T, class F>
void launch(window<T>& x, fake_runtime r, int blocks, device::fake_stream& s, F f) {
    r.launch_lanes(
        [handle = x.handle(), f](auto& env, int block, int count) {
            auto b = handle.on_block(env, static_cast<unsigned>(block));
            f(b, block, count);
        },
        blocks, &s);
}

// Whether f() throws an error with this code, peer and text.
template <class F>
bool refuses(errc code, int peer, std::string_view text, F&& f) {
    try {
        f();
    } catch (const error& e) {
        if (e.code() == code && (peer == -2 || e.peer() == peer) && std::string_view(e.what()).find(text) != text.npos)
            return true;
        fail_check(std::string("another error: ") + e.what());
    }
    return false;
}

} // namespace

TEST_CASE("a kernel's halo exchange gives what the serial program gives") {
    fake_gpus g;
    on_gpus(3, g, [&](communicator& w, fake_runtime r) {
        constexpr std::size_t width = 37;
        constexpr int steps = 20;
        const int n = w.size(), me = w.rank(), left = (me + n - 1) % n, right = (me + 1) % n;
        window<double> halo(w, 4 * 1, r, some());
        device_memory<double> row(g, me, width), next(g, me, width);
        std::vector<double> all(width * static_cast<std::size_t>(n)), then(all.size());
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(i * i % 101);
        for (std::size_t i = 0; i < width; ++i) row[i] = all[static_cast<std::size_t>(me) * width + i];
        device::fake_stream s(me);
        launch(halo, r, 1, s, [&](auto& b, int, int) {
            for (int step = 0; step < steps; ++step) {
                const std::size_t at = static_cast<std::size_t>(step % 2) * 2;
                b.put_signal(right, at, row.data() + width - 1, 1);
                b.put_signal(left, at + 1, row.data(), 1);
                if (!b.wait(left) || !b.wait(right)) return;
                const double* from = halo.local();
                for (std::size_t i = 0; i < width; ++i) {
                    const double before = i == 0 ? from[at] : row[i - 1],
                                 after = i + 1 == width ? from[at + 1] : row[i + 1];
                    next[i] = (before + 2 * row[i] + after) / 4;
                }
                for (std::size_t i = 0; i < width; ++i) row[i] = next[i];
            }
        });
        halo.synchronize(&s);
        for (int step = 0; step < steps; ++step) {
            for (std::size_t i = 0; i < all.size(); ++i)
                then[i] = (all[(i + all.size() - 1) % all.size()] + 2 * all[i] + all[(i + 1) % all.size()]) / 4;
            all.swap(then);
        }
        for (std::size_t i = 0; i < width; ++i) EXPECT_AT(i, row[i] == all[static_cast<std::size_t>(me) * width + i]);
    });
    CHECK(g.pieces() == 0); // nothing stays allocated or mapped
}

TEST_CASE("puts and gets of any place and length, by streams and by kernels of several blocks") {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const int me = w.rank(), peer = 1 - me;
        const std::size_t room = me == 0 ? 3000 : 500; // parts differ in size
        window<std::uint16_t> x(w, room, r, some());
        EXPECT(x.size(me) == room && x.size(peer) == (me == 0 ? 500u : 3000u) && x.size(7) == 0);
        device_memory<std::uint16_t> mine(g, me, 3000), back(g, me, 3000);
        std::vector<std::uint16_t> there(x.size(peer), 0); // the expected content of the peer's part
        device::fake_stream s(me);
        std::minstd_rand dice(17 + static_cast<unsigned>(me));
        for (int turn = 0; turn < 60; ++turn) {
            const std::size_t place = dice() % there.size(), n = dice() % (there.size() - place + 1), from = dice() % 8;
            const std::size_t count = n < 3000 - from ? n : 3000 - from;
            for (std::size_t i = 0; i < count; ++i)
                mine[from + i] = there[place + i] = static_cast<std::uint16_t>(dice());
            if (turn % 2 == 0) x.put(peer, place, mine.data() + from, count, &s);
            else
                launch(x, r, 2, s, [&, place, from, count](auto& b, int block, int blocks) {
                    const std::size_t each =
                        (count + static_cast<std::size_t>(blocks) - 1) / static_cast<std::size_t>(blocks);
                    const std::size_t first = std::min(count, each * static_cast<std::size_t>(block));
                    b.put(peer, place + first, mine.data() + from + first, std::min(each, count - first));
                });
            if (turn % 3 == 0) x.get(peer, 0, back.data(), there.size(), &s);
            else launch(x, r, 1, s, [&](auto& b, int, int) { b.get(peer, 0, back.data(), there.size()); });
            x.synchronize(&s);
            for (std::size_t i = 0; i < there.size(); ++i) EXPECT_AT(i, back[i] == there[i]);
        }
        for (std::size_t i = 0; i < 3; ++i) mine[i] = static_cast<std::uint16_t>(100 * me + static_cast<int>(i));
        x.put(peer, 5, mine.data(), 3, &s);
        x.fence(&s);
        for (std::size_t i = 0; i < 3; ++i) EXPECT_AT(i, x.local()[5 + i] == 100 * peer + static_cast<int>(i));
    });
    CHECK(g.pieces() == 0);
}

TEST_CASE("blocks of several threads: what all of them put is there when the peer's threads go on") {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        constexpr unsigned threads = 3;
        constexpr std::size_t n = 100;
        const int me = w.rank(), peer = 1 - me;
        window<int> x(w, n, r, some(1));
        std::vector<int> out(n), seen(n);
        device::twin_barrier barrier(threads);
        std::vector<std::thread> block;
        std::atomic<int> wrong{0};
        for (unsigned t = 0; t < threads; ++t)
            block.emplace_back([&, t] {
                device::twin_env env(t, threads, 0, 1, barrier, barrier);
                auto b = x.handle().on_block(env, 0);
                for (int step = 1; step <= 50; ++step) {
                    for (std::size_t i = t; i < n; i += threads) out[i] = step * 1000 + static_cast<int>(i) + me;
                    env.sync_block();
                    b.put_signal(peer, 0, out.data(), n);
                    if (!b.wait(peer)) return void(wrong += 1000);
                    for (std::size_t i = t; i < n; i += threads)
                        if (x.local()[i] != step * 1000 + static_cast<int>(i) + peer) ++wrong;
                    b.signal(peer); // my part has been read
                    if (!b.wait(peer)) return void(wrong += 1000);
                }
            });
        for (auto& t : block) t.join();
        EXPECT(wrong == 0);
        x.check();
    });
}

TEST_CASE("additions of all ranks meet in one element, and a counter hands out each number once") {
    fake_gpus g;
    on_gpus(3, g, [&](communicator& w, fake_runtime r) {
        const int me = w.rank();
        constexpr std::size_t n = 70;
        window<double> sums(w, n, r, some());
        window<long> counter(w, me == 0 ? 1 : 0, r, some());
        device_memory<double> one(g, me, n, 0.5);
        device_memory<int> taken(g, me, 900, 0);
        device::fake_stream s(me);
        launch(sums, r, 2, s, [&](auto& b, int, int) {
            for (int k = 0; k < 10; ++k) b.add(1, 0, one.data(), n);
        });
        launch(counter, r, 2, s, [&](auto& b, int, int) {
            for (long got = 0; b.fetch_add(0, 0, 1, got) && got < 900;) ++taken[static_cast<std::size_t>(got)];
        });
        sums.synchronize(&s);
        counter.synchronize(&s);
        sums.fence(&s);
        if (me == 1)
            for (std::size_t i = 0; i < n; ++i) EXPECT_AT(i, sums.local()[i] == 0.5 * 10 * 2 * 3);
        std::vector<int> all(900);
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = taken[i];
        all_reduce(w, all);
        for (std::size_t i = 0; i < all.size(); ++i) EXPECT_AT(i, all[i] == 1);
    });
    CHECK(g.pieces() == 0);
}

TEST_CASE("lines count by themselves, signals are not lost, and the host's come in their stream's order") {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const int me = w.rank(), peer = 1 - me;
        window<int> x(w, 8, r, some(3));
        device_memory<int> v(g, me, 1, me + 1);
        device::fake_stream s(me);
        for (int k = 0; k < 5; ++k) x.signal(peer, &s, 1); // long before the peer waits for them
        launch(x, r, 1, s, [&](auto& b, int, int) { b.put_signal(peer, 2, v.data(), 1); });
        x.wait(peer, &s, 5, 1);
        launch(x, r, 1, s, [&](auto& b, int, int) {
            if (b.wait(peer)) b.put(me, 3, x.local() + 2, 1);
        });
        x.synchronize(&s);
        EXPECT(x.local()[2] == peer + 1 && x.local()[3] == peer + 1);
    });
}

TEST_CASE("a place, a peer or a line that is not there ends the window, and nothing is written") {
    for (const int what : {0, 1, 2, 3, 4}) {
        fake_gpus g;
        std::atomic<bool> is_waiting{false}; // a launch would throw what has ended the window
        on_gpus(2, g, [&](communicator& w, fake_runtime r) {
            const int me = w.rank();
            window<int> x(w, me == 0 ? 10 : 6, r, some(2));
            device_memory<int> v(g, me, 10, 7);
            device::fake_stream s(me);
            if (me == 0) {
                until([&] { return is_waiting.load(); });
                launch(x, r, what == 2 ? 3 : 1, s, [&](auto& b, int block, int) {
                    int old = 0;
                    if (what == 0) b.put_signal(1, 3, v.data(), 4);
                    else if (what == 1) b.signal(2);
                    else if (what == 2) (void)(block == 2 && b.wait(1));
                    else if (what == 3) b.get(1, SIZE_MAX / 2, v.data(), 1);
                    else (void)b.fetch_add(1, 6, 1, old);
                    if (what != 2 || block == 2) {
                        b.put(1, 0, v.data(), 1); // has no effect any more
                        if (!b.has_ended()) v[9] = 99;
                    }
                });
                EXPECT(refuses(errc::invalid_argument, what == 1 || what == 2 ? -1 : 1,
                               what == 0   ? "an access of 16 bytes at byte 12 of rank 1, whose part has 24"
                               : what == 1 ? "a kernel named peer 2 of 2 ranks"
                               : what == 2 ? "a block of a kernel has line 2 of 2"
                               : what == 3 ? "of rank 1, whose part has 24"
                                           : "an access of 4 bytes at byte 24 of rank 1, whose part has 24",
                               [&] { x.synchronize(&s); }));
                EXPECT(refuses(errc::invalid_argument, -2, "", [&] { x.check(); })); // the window stays failed
                EXPECT(v[9] == 7);
            } else {
                launch(x, r, 1, s, [&](auto& b, int, int) {
                    is_waiting = true;
                    (void)b.wait(0);
                });
                EXPECT(refuses(errc::aborted, 0, "rank 0 has ended it (see what", [&] { x.synchronize(&s); }));
                EXPECT(x.local()[0] == 0 && x.local()[3] == 0);
            }
        });
    }
}

TEST_CASE("a signal that does not come is the deadline's, which names who should have given it") {
    fake_gpus g;
    std::atomic<bool> has_signalled{false};
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const int me = w.rank();
        window<int> x(w, 4, r, some());
        device::fake_stream s(me);
        EXPECT(
            refuses(errc::invalid_argument, -1, "a time limit of 0 ns", [&] { x.set_timeout(duration::from_ns(0)); }));
        x.set_timeout(std::chrono::milliseconds(50));
        if (me == 0) {
            until([&] { return has_signalled.load(); });
            launch(x, r, 3, s, [&](auto& b, int block, int) {
                if (block == 2) (void)b.wait(1, 3);
            });
            EXPECT(refuses(errc::timeout, 1, "waited too long for signal 3 of rank 1 on line 2, which has given 1",
                           [&] { x.synchronize(&s); }));
            EXPECT(refuses(errc::timeout, 1, "", [&] { x.signal(1, &s); }));
        } else {
            x.set_timeout(collx_test::patient(std::chrono::seconds(60)));
            x.signal(0, &s, 2);
            launch(x, r, 1, s, [&](auto& b, int, int) {
                has_signalled = true;
                EXPECT(!b.wait(0) && b.has_ended());
            });
            EXPECT(refuses(errc::aborted, 0, "rank 0 has ended it, since a kernel there waited too long for rank 1",
                           [&] { x.synchronize(&s); }));
        }
    });
}

TEST_CASE("what the host names wrongly is refused at once, and the window goes on") {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const int me = w.rank(), peer = 1 - me;
        window<int> x(w, 5, r, some(2));
        device_memory<int> v(g, me, 8, 3);
        device::fake_stream s(me);
        EXPECT(refuses(errc::invalid_argument, peer, "put of 8 bytes at byte 16 of rank",
                       [&] { x.put(peer, 4, v.data(), 2, &s); }));
        EXPECT(refuses(errc::invalid_argument, peer, "get of", [&] { x.get(peer, SIZE_MAX, v.data(), 1, &s); }));
        EXPECT(refuses(errc::invalid_argument, -1, "peer 2 of 2 ranks", [&] { x.signal(2, &s); }));
        EXPECT(refuses(errc::invalid_argument, -1, "line 2 of 2", [&] { x.wait(peer, &s, 1, 2); }));
        r.use(peer);
        EXPECT(refuses(errc::invalid_argument, -1, "is current, and this window's memory is on device",
                       [&] { x.signal(peer, &s); }));
        EXPECT(refuses(errc::invalid_argument, -1, "is current, and this window's memory is on device",
                       [&] { x.set_timeout(std::chrono::seconds(1)); }));
        EXPECT(refuses(errc::invalid_argument, -1, "is current, and this window's memory is on device",
                       [&] { x.synchronize(nullptr); }));
        r.use(me);
        int on_the_host = 0;
        EXPECT(
            refuses(errc::invalid_argument, -1, "the input buffer is null", [&] { x.put(peer, 0, nullptr, 1, &s); }));
        EXPECT(refuses(errc::invalid_argument, -1, "the input buffer lies in the host's memory",
                       [&] { x.put_signal(peer, 0, &on_the_host, 1, &s); }));
        EXPECT(refuses(errc::invalid_argument, -1, "the output buffer lies in the host's memory",
                       [&] { x.get(peer, 0, &on_the_host, 1, &s); }));
        EXPECT(refuses(errc::invalid_argument, -1, "the output buffer lies on device", [&] {
            const device_memory<int> far(g, peer, 8);
            x.get(peer, 0, far.data(), 1, &s);
        }));
        x.put(peer, 0, nullptr, 0, &s);
        x.put(peer, 1, x.local(), 1, &s); // a window's part is memory of its device
        x.fence(&s);
        x.put_signal(peer, 0, v.data(), 5, &s);
        x.wait(peer, &s);
        x.synchronize(&s);
        EXPECT(x.local()[4] == 3);
    });
}

TEST_CASE("ranks that differ, or cannot reach each other, hear of it together") {
    fake_gpus g;
    on_gpus(3, g, [&](communicator& w, fake_runtime r) {
        EXPECT(refuses(errc::mismatch, 2, "of rank 2 has other elements, lines or settings", [&] {
            if (w.rank() == 2) window<float>(w, 4, r, some());
            else window<int>(w, 4, r, some());
        }));
        EXPECT(refuses(errc::mismatch, 1, "of rank 1 has other elements, lines or settings",
                       [&] { window<int>(w, 4, r, some(w.rank() == 1 ? 9 : 8)); }));
        EXPECT(
            refuses(errc::invalid_argument, -1, "a device window of 0 lines", [&] { window<int>(w, 4, r, some(0)); }));
        auto staged = some();
        staged.settings.staged = true;
        EXPECT(refuses(errc::unsupported, -1, "device_settings::staged", [&] { window<int>(w, 4, r, staged); }));
        if (w.rank() != 1) staged.settings.staged = false;
        EXPECT(refuses(errc::mismatch, 1, "of rank 1 has other elements, lines or settings",
                       [&] { window<int>(w, 4, r, staged); }));
        window<int> x(w, 4, r, some()); // the communicator still works
        EXPECT(x.size(2) == 4);
    });
    CHECK(g.pieces() == 0);
    fake_gpus two;
    on_hosts(2, {.ranks_per_host = 1}, [&](communicator& w) {
        fake_runtime r(two);
        r.use(w.rank());
        EXPECT(refuses(errc::unsupported, 1, "rank 0 cannot reach rank 1: it is on another host",
                       [&] { window<int>(w, 4, r, some()); }));
    });
    CHECK(two.pieces() == 0);
    fake_gpus one({.devices = 1});
    on_ranks(2, [&](communicator& w) {
        fake_runtime r(one);
        r.use(w.rank());
        EXPECT(refuses(errc::unsupported, w.rank() == 0 ? 1 : -1,
                       w.rank() == 0 ? "rank 1 could not use its device" : "no CUDA",
                       [&] { window<int>(w, 4, r, some()); }));
        r.use(0);
    });
    CHECK(one.pieces() == 0);
}

TEST_CASE("a rank that does not come to a call of the window is named, with a remedy that there is") {
    fake_gpus g;
    std::atomic<int> heard{0};
    on_gpus(3, g, [&](communicator& w, fake_runtime r) {
        w.set_timeout(collx_test::patient(std::chrono::seconds(60)));
        window<int> x(w, 4, r, some());
        EXPECT(x.size(2) == 4);
        x.set_timeout(collx_test::heard_within(std::chrono::milliseconds(100))); // shorter, as the text advises
        if (w.rank() == 1) return until([&] { return heard == 2; });
        EXPECT(refuses(errc::timeout, 1, "does it make this call of the device window?", [&] { x.fence(nullptr); }));
        ++heard;
    });
}

TEST_CASE("a rank that fails ends waits of kernels before their time limit, and is named") {
    for (const bool destroys : {true, false}) { // its window, as it fails
        fake_gpus g;
        std::atomic<int> made{0}, heard{0};
        std::unique_ptr<window<int>> kept;
        const auto body = [&](communicator& w) {
            fake_runtime r(g);
            r.use(w.rank());
            w.set_timeout(collx_test::patient(std::chrono::seconds(60)));
            auto x = std::make_unique<window<int>>(w, 4, r, some());
            ++made;
            if (w.rank() == 2) {
                until([&] { return made == 3; }); // no rank is in the constructor any more
                if (!destroys) kept = std::move(x);
                throw std::runtime_error("rank 2 gives up");
            }
            device::fake_stream s(w.rank());
            launch(*x, r, 1, s, [&](auto& b, int, int) { EXPECT(!b.wait(2)); });
            const std::int64_t began = now_ns();
            const errc code = destroys ? errc::aborted : errc::peer_failed;
            EXPECT(refuses(code, 2, "rank 2", [&] { x->synchronize(&s); }));
            EXPECT(now_ns() - began < collx_test::patient(40'000'000'000)); // well before the limit of 60 s
            EXPECT(refuses(code, 2, "rank 2", [&] { x->check(); }));
            ++heard;
        };
        CHECK_THROWS_WITH(run_threads(3, body), Catch::Contains("rank 2 gives up"));
        CHECK(heard == 2);
    }
}

TEST_CASE("a rank that ends its window without a signal that others wait for is named before their time limit") {
    fake_gpus g;
    on_gpus(3, g, [&](communicator& w, fake_runtime r) {
        w.set_timeout(collx_test::patient(std::chrono::seconds(60)));
        const std::int64_t began = now_ns();
        {
            window<int> x(w, 4, r, some());
            device::fake_stream s(w.rank());
            x.signal((w.rank() + 1) % 3, &s);
            launch(x, r, 1, s, [&](auto& b, int, int) { EXPECT(b.wait((w.rank() + 2) % 3)); });
            x.synchronize(&s);
            if (w.rank() != 2) {
                // Rank 0 waits for a rank that waits itself.
                launch(x, r, 1, s, [&](auto& b, int, int) { EXPECT(!b.wait(w.rank() == 0 ? 1 : 2)); });
                EXPECT(refuses(errc::peer_failed, 2, "ended its window", [&] { x.synchronize(&s); }));
            }
        }
        EXPECT(now_ns() - began < collx_test::patient(40'000'000'000)); // well before the limit of 60 s
    });
}

TEST_CASE("a kernel that ends the window ends the fence of another rank") {
    for (const bool leaves : {false, true}) {
        fake_gpus g;
        std::atomic<int> through{0}; // the first fence
        on_gpus(3, g, [&](communicator& w, fake_runtime r) {
            w.set_timeout(collx_test::patient(std::chrono::seconds(60)));
            const std::int64_t began = now_ns();
            {
                window<int> x(w, 4, r, some());
                device::fake_stream s(w.rank());
                x.fence(&s);
                ++through;
                until([&] { return through == 3; });
                if (w.rank() == 0) {
                    launch(x, r, 1, s, [&](auto& b, int, int) {
                        if (leaves) EXPECT(!b.wait(2));
                        else b.signal(7);
                    });
                    EXPECT(refuses(leaves ? errc::peer_failed : errc::invalid_argument, leaves ? 2 : -1, "",
                                   [&] { x.synchronize(&s); }));
                } else if (w.rank() == 1 || !leaves) {
                    EXPECT(
                        refuses(leaves ? errc::peer_failed : errc::aborted, leaves ? 2 : 0, "", [&] { x.fence(&s); }));
                }
            }
            EXPECT(now_ns() - began < collx_test::patient(40'000'000'000)); // well before the limit of 60 s
        });
    }
}

TEST_CASE("a window ends when the communicator that it was made of fails, and outlives one that has ended") {
    for (const bool aborts : {false, true}) {
        fake_gpus g;
        std::atomic<int> through{0}, launched{0};
        on_gpus(3, g, [&](communicator& w, fake_runtime r) {
            auto base = std::make_unique<communicator>(w.dup());
            base->set_timeout(collx_test::patient(std::chrono::seconds(60)));
            window<int> x(*base, 4, r, some());
            device::fake_stream s(w.rank());
            x.fence(&s);
            ++through;
            until([&] { return through == 3; });
            const std::int64_t began = now_ns();
            if (!aborts) {
                base.reset();
                std::this_thread::sleep_for(std::chrono::milliseconds(30)); // the proxy looks every 5 ms
                x.signal((w.rank() + 1) % 3, &s);
                launch(x, r, 1, s, [&](auto& b, int, int) { EXPECT(b.wait((w.rank() + 2) % 3)); });
                x.fence(&s);
            } else if (w.rank() == 2) {
                until([&] { return launched == 2; });
                base->abort();
            } else {
                launch(x, r, 1, s, [&](auto& b, int, int) {
                    if (w.rank() == 1) EXPECT(!b.wait(0));
                });
                ++launched;
                EXPECT(refuses(errc::aborted, 2, "", [&] { x.fence(&s); }));
            }
            EXPECT(now_ns() - began < collx_test::patient(40'000'000'000));
        });
    }
}

TEST_CASE("a window leaves the switch's sums to collectives, and ranks may have parts of any length") {
    fake_gpus g({.devices = 5, .handles = 7, .multicasts = true});
    on_gpus(5, g, [&](communicator& w, fake_runtime r) {
        auto by_switch = some();
        by_switch.settings.multicast = true;
        window<int> x(w, 1000 * (1 + w.rank()), r, by_switch);
        EXPECT(x.size(4) == 5000);
        EXPECT(std::string_view(x.route().c_str()).find("switch") == std::string_view::npos);
    });
    CHECK(g.joined == 0);
}

TEST_CASE("additions between devices without atomics are refused, puts are not") {
    fake_gpus g({.access = [](int, int) { return gpu_access{true, false, 0}; }});
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const int me = w.rank(), peer = 1 - me;
        window<int> x(w, 4, r, some());
        device_memory<int> v(g, me, 4, 1);
        device::fake_stream s(me);
        launch(x, r, 1, s, [&](auto& b, int, int) {
            b.add(me, 0, v.data(), 1); // this rank's own memory
            b.put_signal(peer, 1, v.data(), 1);
            (void)b.wait(peer);
        });
        x.synchronize(&s);
        EXPECT(x.local()[0] == 1 && x.local()[1] == 1);
        barrier(w);
        if (me == 0) {
            launch(x, r, 1, s, [&](auto& b, int, int) { b.add(1, 0, v.data(), 1); });
            EXPECT(refuses(errc::unsupported, 1, "not atomic over PCI Express", [&] { x.synchronize(&s); }));
        }
        barrier(w);
        EXPECT(x.local()[0] == 1);
    });
}

TEST_CASE("a rank that ends its window later than the others keeps its memory until then") {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        auto x = std::make_unique<window<int>>(w, 4, r, some());
        device::fake_stream s(w.rank());
        device_memory<int> v(g, w.rank(), 1, 5); // before anything is freed, so that it does not reuse that memory
        barrier(w);
        if (w.rank() == 1) {
            std::this_thread::sleep_for(std::chrono::milliseconds(300)); // now rank 0 is in its destructor
            x->put(0, 0, v.data(), 1, &s);
            x->get(0, 0, v.data(), 1, &s);
            x->synchronize(&s);
            EXPECT(v[0] == 5);
        }
        EXPECT(x->size(1) == 4);
        x.reset();
    });
    CHECK(g.pieces() == 0);
}
