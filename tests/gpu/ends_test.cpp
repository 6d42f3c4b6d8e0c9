// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300
//
// How communicators and windows with kernels end when a rank fails: who is named, and what still runs. Over the fake
// runtime; faults/device_random_programs_test.cpp has found these.
#include "fake_devices.hpp"
#include "support/patience.hpp"

#include <optional>

#include <collx/gpu/device_window.hpp>

namespace {

constexpr std::int64_t long_ago = 15'000'000'000; // before the deadline of calls

void on_device_ranks(const std::vector<int>& host_of, fake_gpus& g, collx::detail::thread_body f) {
    run_threads(host_of, [&](communicator& w) {
        fake_runtime(g).use(w.rank());
        run_checked(w, f);
    });
}

} // namespace

TEST_CASE("a rank whose communicator ends by an exception is named, not the peers that it has waited for") {
    for (const bool is_checked : {false, true}) {
        const std::vector<int> hosts = is_checked ? std::vector<int>{0, 0, 0} : std::vector<int>{0, 1, 1, 1};
        fake_gpus g;
        std::atomic<int> done{0};
        on_device_ranks(hosts, g, [&](communicator& w) {
            const int last = w.size() - 1;
            collx_test::at("%d ranks, checked %d", w.size(), is_checked);
            w.set_checked(is_checked);
            w.set_timeout(patient(std::chrono::seconds(20)));
            try {
                auto other = w.split(0);
                const auto c = other.with(gpus{fake_runtime(g)});
                use_device(c, small());   // checked for itself, too
                other.set_checked(false); // so that kernels wait and not hosts
                if (w.rank() == last) throw wrong("ends its communicator");
                const std::int64_t began = now_ns();
                device_memory<int> x(g, w.rank(), 5000, 1);
                const auto e = thrown<error>(w, [&] {
                    all_reduce(c, x);
                    synchronize(c);
                });
                collx_test::at("%d ranks, checked %d: %.150s", w.size(), is_checked, e.what());
                EXPECT(e.peer() == last);
                EXPECT(now_ns() - began < patient(long_ago));
                ++done;
            } catch (const wrong& e) {
                if (!says(e, "ends its communicator")) throw;
                until([&] { return done == last; });
                EXPECT(true);
            }
        });
    }
}

// Kernels would wait for it until their time limit, and hosts until theirs.
TEST_CASE("a rank that ends its communicator while others make calls is named long before the time limit") {
    struct kind {
        std::vector<int> hosts;
        bool is_staged, is_on_host, has_call = false; // has_call: while it has a call under way
    };
    const kind kinds[] = {{{0, 0, 0}, false, true},      {{0, 1, 1}, false, true},  {{0, 0, 0}, true, false},
                          {{0, 0, 0}, false, false},     {{0, 1, 1}, false, false}, {{0, 0, 0}, false, true, true},
                          {{0, 1, 1}, false, true, true}};
    for (const kind& k : kinds) {
        fake_gpus g;
        std::atomic<int> ready{0}, done{0};
        on_device_ranks(k.hosts, g, [&](communicator& w) {
            const int last = w.size() - 1;
            const std::int64_t began = now_ns();
            int never = 0;
            std::optional<work<void>> under_way;
            {
                auto other = w.split(0);
                other.set_timeout(patient(std::chrono::seconds(20)));
                const auto c = other.with(gpus{fake_runtime(g)});
                use_device(c, small(k.is_staged));
                other.set_checked(false); // so that proxies wait and not hosts
                device_memory<int> x(g, w.rank(), 5000, 1);
                all_reduce(c, x);
                synchronize(c);
                ++ready; // a rank that is still in this call would hear of the failure there
                until([&] { return ready == w.size(); });
                if (w.rank() == last) {
                    if (k.has_call) under_way.emplace(async::recv(other, value(never), 0));
                } else {
                    const auto e = thrown<error>(w, [&] {
                        std::vector<int> on_host(10);
                        if (k.is_on_host) all_reduce(other, on_host);
                        else all_reduce(c, x);
                        synchronize(c);
                    });
                    collx_test::at("%d hosts, on the host %d: %.150s", 1 + k.hosts[1], k.is_on_host, e.what());
                    EXPECT(e.code() == (k.has_call ? errc::aborted : errc::peer_failed) && e.peer() == last);
                    ++done;
                    until([&] { return done == w.size(); }); // the last does not wait for this rank's end
                }
            }
            if (w.rank() == last) ++done;
            EXPECT(now_ns() - began < patient(long_ago));
        });
    }
}

TEST_CASE("a rank that ends its communicator is named by a rank of another host that waits for its message") {
    for (const bool sums : {false, true}) { // along a rail; otherwise among all ranks
        fake_gpus g;
        std::atomic<int> ready{0}, done{0};
        on_device_ranks({0, 0, 1, 1}, g, [&](communicator& w) {
            const std::int64_t began = now_ns();
            {
                auto other = w.split(0);
                other.set_timeout(patient(std::chrono::seconds(20)));
                const auto c = other.with(gpus{fake_runtime(g)});
                use_device(c, small());
                other.set_checked(false);
                device_memory<int> x(g, w.rank(), 5000, 1);
                all_reduce(c, x);
                synchronize(c);
                ++ready;
                until([&] { return ready == 4; });
                if (w.rank() == 1 || (w.rank() == 0 && sums)) {
                    const auto e = thrown<error>(w, [&] {
                        if (sums) all_reduce(c, x);
                        else collx::recv(c, x, 3);
                        synchronize(c);
                    });
                    collx_test::at("sums %d: %.150s", sums, e.what());
                    EXPECT(e.code() == errc::peer_failed && e.peer() == 3);
                    ++done;
                }
                // Rank 2 makes no call and stays. Rank 3 waits for it, and keeps its memory until then.
                if (w.rank() != 3) until([&] { return done == (sums ? 2 : 1); });
            }
            EXPECT(now_ns() - began < patient(long_ago));
        });
    }
}

// CUDA does not report the end of a graph.
TEST_CASE("a rank that ends its communicator while a graph runs is waited for by the others") {
    fake_gpus g;
    on_device_ranks({0, 0, 0}, g, [&](communicator& w) {
        w.set_timeout(patient(std::chrono::seconds(20)));
        device::fake_stream s(w.rank());
        device_memory<int> x(g, w.rank(), 5000, 1);
        device::fake_graph graph;
        {
            auto other = w.split(0);
            const auto c = other.with(gpus{fake_runtime(g)});
            use_device(c, small());
            fake_runtime::begin_capture(s);
            all_reduce(c, x, plus{}, {.stream = &s});
            graph = fake_runtime::end_capture(s);
            // The other kernels wait for this rank's, which begins when its communicator is about to end.
            if (w.rank() == 2) s.put([] { ::usleep(100'000); });
            fake_runtime::launch(graph, s);
            if (w.rank() != 2) synchronize(c, {.stream = &s});
        }
        fake_runtime(g).synchronize(&s);
        EXPECT(x[0] == 3 && x[4999] == 3);
    });
}

// It does not say that it makes no more calls, and waits for ranks that have said so.
TEST_CASE("the ends of ranks with and without captured calls meet, and all memory is freed") {
    fake_gpus g({.devices = 5});
    on_device_ranks({0, 0, 0, 0, 0}, g, [&](communicator& w) {
        w.set_timeout(patient(std::chrono::seconds(20)));
        device::fake_stream s(w.rank());
        device_memory<int> x(g, w.rank(), 10, 1);
        auto other = w.split(0);
        const auto c = other.with(gpus{fake_runtime(g)});
        use_device(c, small());
        other.set_checked(false); // not all ranks make the call
        if (w.rank() % 2 == 1) {
            fake_runtime::begin_capture(s);
            all_reduce(c, x, plus{}, {.stream = &s});
            EXPECT(fake_runtime::end_capture(s).size() != 0);
        }
        if (w.rank() == 3) ::usleep(100'000);
        EXPECT(x[0] == 1);
    });
    CHECK(g.pieces() == 0);
}

namespace {

// One rank has no room for what a window needs last; the others free what they have while that rank fails.
struct slow_to_free : fake_runtime {
    static inline std::atomic<int> stores_astray{0};
    using fake_runtime::fake_runtime;
    std::byte* allocate_host(std::size_t bytes) const {
        if (current() == 1 && bytes > sizeof(device::window_host) + 1000 * sizeof(device::window_report))
            fail(errc::resource, 1, -1, "", "no room");
        return fake_runtime::allocate_host(bytes);
    }
    void free_host(std::byte* p) const {
        fake_runtime::free_host(p);
        for (int ms = 0; ms < 200 && stores_astray == 0; ++ms) ::usleep(1000); // a proxy looks every 5 ms
    }
    void store_host(std::uint64_t* p, std::uint64_t x) const {
        if (memory(p).place != device::memory_place::pinned) ++stores_astray;
        else fake_runtime::store_host(p, x);
    }
};

} // namespace

TEST_CASE("a window that some rank could not make has no thread any more when its memory is freed") {
    fake_gpus g;
    CHECK_THROWS_WITH(on_device_ranks({0, 0, 0}, g,
                                      [&](communicator& w) {
                                          device_window_options o;
                                          o.settings = small();
                                          o.lines = 1000;
                                          EXPECT(true);
                                          using window = basic_device_window<int, slow_to_free>;
                                          window(w, 100, slow_to_free(g), o);
                                      }),
                      Catch::Contains("could not make a window on its device"));
    CHECK(slow_to_free::stores_astray == 0);
}
