// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=nightly
//
// Calls on device memory with an ordinary communicator, over the fake runtime: ranks are threads with a device each,
// kernels are threads, too. Both ways (kernels that reach every peer, staging through the host), with all errors.
// tests/gpu/processes_test.cpp has ranks that are processes; tests/gpu what needs a device.
#include "fake_devices.hpp"
#include "support/patience.hpp"

#include <collx/algo/in_order.hpp>
#include <collx/algo/ring.hpp>
#include <collx/gpu/device_group.hpp>

namespace {

// Set by one rank, read by the other.
std::atomic<int> checks_of_peers{0};

// Every verb, out of place and in place, in one stream without waiting in between.
template <class Comm>
void check_verbs(communicator& w, Comm c, fake_gpus& g, std::size_t n) {
    const int ranks = w.size(), me = w.rank();
    const auto all = n * static_cast<std::size_t>(ranks), mine = static_cast<std::size_t>(me);
    const int here = fake_runtime(g).current();
    device::fake_stream s(here);
    using memory = device_memory<float>;
    memory in(g, here, n), out(g, here, n), sum(g, here, n), top(g, here, n), sent(g, here, n), whole(g, here, all),
        gathered(g, here, all), exchanged(g, here, all), scattered(g, here, n), gathered_here(g, here, all),
        scattered_here(g, here, all);
    fill(in, me, n);
    fill(sum, me, n);
    fill(sent, me, n);
    fill(whole, me, all);
    fill(scattered_here, me, all);
    for (std::size_t i = 0; i < n; ++i) gathered_here[mine * n + i] = value(me, i);
    const int root = ranks - 1;
    all_reduce(c, in, out, average{}, {.stream = &s});
    all_reduce(c, sum, plus{}, {.stream = &s});
    reduce(c, in, top, plus{}, {.stream = &s, .root = root});
    broadcast(c, sent, {.stream = &s, .root = root});
    all_gather(c, in, gathered, {.stream = &s});
    all_gather(c, gathered_here, {.stream = &s});
    reduce_scatter(c, whole, scattered, plus{}, {.stream = &s});
    reduce_scatter(c, scattered_here, plus{}, {.stream = &s});
    all_to_all(c, whole, exchanged, {.stream = &s});
    synchronize(c, {.stream = &s});
    const auto total = [&](std::size_t i) {
        float t = 0;
        for (int r = 0; r < ranks; ++r) t += value(r, i);
        return t;
    };
    for (std::size_t i = 0; i < n; ++i) {
        EXPECT_AT(i, out[i] == total(i) / static_cast<float>(ranks));
        EXPECT_AT(i, sum[i] == total(i));
        EXPECT_AT(i, top[i] == (me == root ? total(i) : 0.0f));
        EXPECT_AT(i, sent[i] == value(root, i));
        EXPECT_AT(i, scattered[i] == total(mine * n + i));
        EXPECT_AT(i, scattered_here[mine * n + i] == total(mine * n + i));
        for (int r = 0; r < ranks; ++r) {
            const std::size_t at = static_cast<std::size_t>(r) * n + i;
            EXPECT_AT(i, gathered[at] == value(r, i));
            EXPECT_AT(i, gathered_here[at] == value(r, i));
            EXPECT_AT(i, exchanged[at] == value(r, mine * n + i));
        }
    }
}

} // namespace

TEST_CASE("every verb on device memory, by kernels and by way of the host") {
    for (const bool staged : {false, true})
        for (const int ranks : {1, 2, 3}) {
            fake_gpus g;
            on_gpus(ranks, g, [&](communicator& w, fake_runtime r) {
                const auto c = w.with(gpus{r});
                use_device(c, small(staged));
                at("ranks=%d staged=%d: %s", ranks, staged, device_route(c).c_str());
                EXPECT((device_route(c).find("host") != std::string::npos) == staged);
                for (const std::size_t n : {1u, 333u}) check_verbs(w, c, g, n);
            });
            CHECK(g.pieces() == 0); // nothing stays allocated or mapped
        }
}

TEST_CASE("persistent calls on device memory, by kernels and by way of the host") {
    namespace per = collx::persistent;
    for (const bool staged : {false, true}) {
        fake_gpus g;
        on_gpus(3, g, [&](communicator& w, fake_runtime r) {
            const int me = w.rank(), here = r.current(), next = (me + 1) % 3, last = (me + 2) % 3;
            use_device(w.with(gpus{r}), small(staged));
            device::fake_stream s(here);
            using memory = device_memory<float>;
            constexpr std::size_t n = 50;
            memory x(g, here, n), y(g, here, n), all(g, here, 3 * n), again(g, here, 3 * n), part(g, here, n),
                there(g, here, n);
            // The policies and the counts are temporaries.
            auto sum = per::all_reduce(w.with(gpus{r}), x, y, plus{}, {.stream = &s});
            auto gathered = per::all_gather_v(w.with(gpus{r}), x, all, std::vector<int>{50, 50, 50}, std::vector<int>(),
                                              {.stream = &s});
            auto scattered = per::reduce_scatter(w.with(gpus{r}), all, part, max{}, {.stream = &s});
            auto ring = per::sendrecv(w.with(gpus{r}), x, next, there, last, {.stream = &s});
            auto meet = per::barrier(w.with(gpus{r}), device_call_options{.stream = &s});
            const std::vector<int> scratch(3, 7); // likely to reuse the counts' memory, had it been freed
            const auto sequence = w.sequence();
            for (int t = 0; t < 4; ++t) {
                for (std::size_t i = 0; i < n; ++i) x[i] = value(me + t, i);
                sum.start();
                gathered();
                sum.wait();
                scattered();
                ring();
                meet();
                synchronize(w.with(gpus{r}), {.stream = &s});
                for (std::size_t i = 0; i < n; ++i) {
                    EXPECT_AT(i, y[i] == value(t, i) + value(t + 1, i) + value(t + 2, i));
                    for (int k = 0; k < 3; ++k)
                        EXPECT_AT(i, all[static_cast<std::size_t>(k) * n + i] == value(k + t, i));
                    EXPECT_AT(i, part[i] == value(me + t, i) && there[i] == value(last + t, i));
                }
            }
            EXPECT(w.sequence() - sequence >= 16 && scratch[0] == 7); // each start counts as a call
            const memory small_one(g, here, n - 1);
            (void)thrown<invalid_argument>(w, [&] {
                auto call = per::all_reduce(w.with(gpus{r}), x, small_one, plus{}, {.stream = &s});
                call();
            });
            if (staged) return;
            w.set_checked(true); // compared when the call is made, not when it is launched
            const std::vector<int> fifty(3, 50);
            auto compared = per::all_reduce(w.with(gpus{r}), x, y, plus{}, {.stream = &s});
            auto from_all = per::all_gather_v(w.with(gpus{r}), x, all, fifty, std::vector<int>(), {.stream = &s});
            auto to_all = per::all_to_all_v(w.with(gpus{r}), all, fifty, again, fifty, {.stream = &s});
            auto to_root = per::gather_v(w.with(gpus{r}), x, all, fifty, std::vector<int>(), {.stream = &s});
            auto swapped = per::sendrecv(w.with(gpus{r}), x, next, there, last, {.stream = &s});
            auto edges = per::neighbor_all_gather(w.with(gpus{r}), neighbors{{last}, {next}}, x, part, {.stream = &s});
            const auto exchanges = w.internals().exchanges, messages = w.sequence();
            for (int t = 0; t < 2; ++t) {
                compared();
                from_all();
                to_all();
                to_root();
                swapped();
                edges();
            }
            EXPECT(w.internals().exchanges == exchanges && w.sequence() == messages + 10); // a message does not count
            synchronize(w.with(gpus{r}), {.stream = &s});
            const int last_time = 3; // of the loop above
            for (std::size_t i = 0; i < n; ++i) {
                EXPECT_AT(i, there[i] == value(last + last_time, i) && part[i] == there[i]);
                for (int k = 0; k < 3; ++k) // what it gathered, then got: each rank's part for this rank
                    EXPECT_AT(i, again[static_cast<std::size_t>(k) * n + i] == value(me + last_time, i));
            }
        });
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("a program tries its calls where there is no GPU") {
    std::atomic<int> right{0};
    // [doc:fake]
    collx::device::fake_gpus devices; // four of them
    collx::run_threads(2, [&](collx::communicator& world) {
        collx::device::fake_runtime runtime(devices);
        runtime.use(world.rank()); // as cudaSetDevice
        collx::device::fake_stream stream(world.rank());
        auto* p = static_cast<float*>(devices.allocate(1000 * sizeof(float), world.rank()));
        for (int i = 0; i < 1000; ++i) p[i] = 1; // the host may look into this memory
        auto gpu = world.with(collx::gpus{runtime});
        collx::all_reduce(gpu, collx::device_view<float>(p, 1000), {.stream = &stream});
        collx::synchronize(gpu, {.stream = &stream});
        right += p[999] == 2;
        devices.free(p);
    });
    // [doc:end]
    CHECK(right == 2);
}

TEST_CASE("long calls, other types and views, bound policies") {
    for (const bool staged : {false, true}) {
        fake_gpus g;
        on_gpus(3, g, [&](communicator& w, fake_runtime r) {
            at("staged=%d", staged);
            const auto c = w.with(gpus{r});
            use_device(c, small(staged));
            constexpr std::size_t n = 20'011; // too long for LL words; several pieces when staged
            device_memory<float> x(g, w.rank(), 3 * n), out(g, w.rank(), n), ring(g, w.rank(), n),
                narrow(g, w.rank(), n);
            for (std::size_t i = 0; i < n; ++i) x[3 * i] = value(w.rank(), i);
            fill(ring, w.rank(), n);
            fill(narrow, w.rank(), n);
            // The hook gets the element's index in the whole buffer.
            const auto odd = [](float v, hook_context k) { return k.index % 2 == 1 ? v : 0.0f; };
            all_reduce(c, on_device(strided(x.data(), n, 3)), out, with_pre(plus{}, odd));
            all_reduce(w.with(algo::ring_all_reduce{}, gpus{r}), ring);
            all_reduce(w.with(wire<bf16>{}, gpus{r}), narrow);
            synchronize(c);
            for (std::size_t i = 0; i < n; ++i) {
                const float sum = value(0, i) + value(1, i) + value(2, i);
                EXPECT_AT(i, out[i] == (i % 2 == 1 ? sum : 0.0f));
                EXPECT_AT(i, ring[i] == sum);
                EXPECT_AT(i, narrow[i] == sum); // small integers, which bf16 represents exactly
            }
        });
        CHECK(g.pieces() == 0);
    }
}

namespace {
template <int N>
struct floats {
    float v[N];
    floats operator+(const floats& o) const {
        floats sum{};
        for (int i = 0; i < N; ++i) sum.v[i] = v[i] + o.v[i];
        return sum;
    }
};
using wide = floats<17>;  // a pack of LL words of more than 8 lines
using huge = floats<181>; // with flags 1456 bytes
} // namespace
TEST_CASE("elements of more bytes than a kernel waits for at once") {
    for (const int ranks : {1, 3}) {
        fake_gpus g;
        on_gpus(ranks, g, [&](communicator& w, fake_runtime r) {
            const auto c = w.with(gpus{r});
            use_device(c, small());
            device_memory<wide> x(g, w.rank(), 35);
            for (int i = 0; i < 35 * 17; ++i)
                x[static_cast<std::size_t>(i / 17)].v[i % 17] = static_cast<float>(w.rank() + i);
            all_reduce(c, x);
            synchronize(c);
            for (int i = 0; i < 35 * 17; ++i)
                EXPECT_AT(i, x[static_cast<std::size_t>(i / 17)].v[i % 17] ==
                                 static_cast<float>(ranks * i + ranks * (ranks - 1) / 2));
            // One element of these has no room among words with flags.
            device_memory<huge> y(g, w.rank(), 2);
            y[1].v[180] = static_cast<float>(w.rank() + 1);
            all_reduce(c, y);
            synchronize(c);
            EXPECT(y[1].v[180] == static_cast<float>(ranks * (ranks + 1) / 2));
        });
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("the end of a communicator leaves a call its own time limit") {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        device::fake_stream s(w.rank());
        device_memory<float> x(g, w.rank(), 100, 1.0f);
        {
            communicator mine = w.split(0);
            mine.set_checked(false);
            const auto c = mine.with(gpus{r});
            use_device(c, small());
            barrier(mine);
            mine.set_timeout(std::chrono::milliseconds(100));
            if (w.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(700));
            all_reduce(c, x, plus{}, {.stream = &s, .timeout = collx_test::patient(std::chrono::seconds(30))});
        }
        s.drain();
        EXPECT(x[0] == 2.0f);
    });
}

TEST_CASE("a kernel that begins after its communicator's end still has its memory") {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        device::fake_stream s(w.rank());
        std::atomic<bool> goes_on{false};
        device_memory<float> x(g, w.rank(), 100, 1.0f);
        {
            communicator mine = w.split(0);
            mine.set_checked(false);
            const auto c = mine.with(gpus{r});
            use_device(c, small());
            barrier(mine);
            mine.set_timeout(std::chrono::milliseconds(100));
            if (w.rank() == 0) {
                s.put([&] {
                    while (!goes_on) std::this_thread::yield();
                });
                all_reduce(c, x, plus{}, {.stream = &s}); // rank 1 does not come
            }
        }
        goes_on = true;
        s.drain();
        EXPECT(x[0] == 1.0f);
    });
}

// A root that comes late, as a program that still computes.
TEST_CASE("a rank that ends its communicator waits for those whose calls still use its memory") {
    fake_gpus g;
    on_gpus(3, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r});
        use_device(c, small());
        device_memory<float> mine(g, w.rank(), 5, 1.0f + static_cast<float>(w.rank())), all(g, w.rank(), 15);
        if (w.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
        gather(c, mine, all);
        synchronize(c);
        EXPECT((w.rank() != 0 || (all[0] == 1.0f && all[14] == 3.0f)));
    });
    CHECK(g.pieces() == 0);
}

TEST_CASE("streams: calls of one communicator do not overlap, and nothing waits") {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r});
        use_device(c, small());
        device::fake_stream a(w.rank()), b(w.rank());
        device_memory<int> x(g, w.rank(), 100, 1);
        std::atomic<bool> may_go{false};
        a.put([&] { // earlier work of the stream
            while (!may_go.load()) sched_yield();
        });
        for (int k = 0; k < 6; ++k) all_reduce(c, x, plus{}, {.stream = k % 2 == 0 ? &a : &b});
        EXPECT(x[0] == 1); // the calls have returned, but nothing has run
        may_go = true;
        synchronize(c, {.stream = &b});
        EXPECT(x[0] == 64 && x[99] == 64);
    });
}

TEST_CASE("a captured call runs when its graph does, any number of times") {
    for (const bool staged : {false, true}) {
        fake_gpus g;
        on_gpus(2, g, [&](communicator& w, fake_runtime r) {
            const auto c = w.with(gpus{r});
            at("staged=%d", staged);
            device::fake_stream s(w.rank());
            device_memory<int> x(g, w.rank(), 3000, 1);
            fake_runtime::begin_capture(s);
            const auto first = thrown<invalid_argument>(w, [&] { all_reduce(c, x, plus{}, {.stream = &s}); });
            EXPECT(std::string(first.what()).find("use_device(comm) before the capture") != std::string::npos);
            (void)fake_runtime::end_capture(s);

            use_device(c, small(staged));
            fake_runtime::begin_capture(s);
            all_reduce(c, x, plus{}, {.stream = &s});
            const auto waits = thrown<invalid_argument>(w, [&] { synchronize(c, {.stream = &s}); });
            EXPECT(std::string(waits.what()).find("end the capture first") != std::string::npos);
            const auto graph = fake_runtime::end_capture(s);
            EXPECT(x[0] == 1);
            for (int k = 0; k < 5; ++k) fake_runtime::launch(graph, s);
            synchronize(c, {.stream = &s});
            EXPECT(x[0] == 32 && x[2999] == 32);
            all_reduce(c, x, plus{}, {.stream = &s}); // a plain call besides the graph
            synchronize(c, {.stream = &s});
            EXPECT(x[0] == 64 && x[2999] == 64);
        });
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("captures that break, graphs and communicators that end while something is captured") {
    for (const bool staged : {false, true}) {
        fake_gpus g;
        on_gpus(2, g, [&](communicator& w, fake_runtime r) {
            at("staged=%d", staged);
            const auto c = w.with(gpus{r});
            use_device(c, small(staged));
            device::fake_stream s(w.rank());
            device_memory<int> x(g, w.rank(), 3000, 1), y(g, w.rank(), 3000, 1);
            fake_runtime::begin_capture(s);
            s.break_capture();
            const auto e = thrown<invalid_argument>(w, [&] { all_reduce(c, x, plus{}, {.stream = &s}); });
            EXPECT(says(e, "the stream's capture was made invalid"));
            (void)fake_runtime::end_capture(s);

            auto first = std::make_unique<device::fake_graph>();
            fake_runtime::begin_capture(s);
            all_reduce(c, x, plus{}, {.stream = &s});
            *first = fake_runtime::end_capture(s);
            fake_runtime::launch(*first, s);
            synchronize(c, {.stream = &s});
            fake_runtime::begin_capture(s);
            all_reduce(c, y, plus{}, {.stream = &s});
            first = nullptr; // destroyed while another capture is under way
            const auto second = fake_runtime::end_capture(s);
            fake_runtime::launch(second, s);
            synchronize(c, {.stream = &s});
            EXPECT(x[2999] == 2 && y[2999] == 2);

            auto other = std::make_unique<communicator>(w.split(0));
            use_device(other->with(gpus{r}), small(staged));
            fake_runtime::begin_capture(s);
            all_reduce(other->with(gpus{r}), x, plus{}, {.stream = &s});
            other = nullptr; // none of its calls has run, so its end waits for nothing
            EXPECT(fake_runtime::end_capture(s).size() != 0);
            all_reduce(c, y, plus{}, {.stream = &s});
            synchronize(c, {.stream = &s});
            EXPECT(x[2999] == 2 && y[2999] == 4);
        });
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("communicators side by side: in one order, or with room for the kernels of all") {
    fake_gpus g({.processors = 4});
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        auto other = w.split(0);
        const auto a = w.with(gpus{r}), b = other.with(gpus{r});
        // two lanes each, on four multiprocessors
        use_device(a, small());
        use_device(b, small());
        device::fake_stream s(w.rank()), t(w.rank());
        device_memory<int> x(g, w.rank(), 9000, 1), y(g, w.rank(), 9000, 1);
        for (int k = 0; k < 3; ++k) { // in one stream
            all_reduce(a, x, plus{}, {.stream = &s});
            all_reduce(b, y, plus{}, {.stream = &s});
        }
        synchronize(a, {.stream = &s});
        EXPECT(x[8999] == 8 && y[8999] == 8);
        for (int k = 0; k < 3; ++k) { // in two streams, in another order on each rank
            if (w.rank() == 0) all_reduce(a, x, plus{}, {.stream = &s});
            all_reduce(b, y, plus{}, {.stream = &t});
            if (w.rank() == 1) all_reduce(a, x, plus{}, {.stream = &s});
        }
        synchronize(a, {.stream = &s});
        synchronize(b, {.stream = &t});
        EXPECT(x[8999] == 64 && y[8999] == 64);
    });
    CHECK(g.pieces() == 0);
}

TEST_CASE("the way is chosen by what the driver says of each pair, and the reason is reported") {
    const auto route = [](fake_gpus::plan p, int ranks, auto&& device_of) {
        fake_gpus g(p);
        std::vector<std::string> said(static_cast<std::size_t>(ranks));
        on_ranks(ranks, [&](communicator& w) {
            fake_runtime r(g);
            r.use(device_of(w.rank()));
            const auto c = w.with(gpus{r});
            use_device(c, small());
            said[static_cast<std::size_t>(w.rank())] = device_route(c);
            check_verbs(w, c, g, 0); // empty calls are not errors
            device_memory<int> x(g, r.current(), 10, w.rank());
            device::fake_stream s(r.current()); // ranks of one device must not share a stream
            all_reduce(c, x, plus{}, {.stream = &s});
            synchronize(c, {.stream = &s});
            EXPECT(x[9] == w.size() * (w.size() - 1) / 2);
        });
        CHECK(g.pieces() == 0);
        return said[0];
    };
    const auto own = [](int r) { return r; };
    CHECK(route({}, 3, own) == "kernels over nvlink");
    CHECK(route({.access = [](int, int) { return gpu_access{true, false, 1}; }}, 3, own) == "kernels over pcie");
    CHECK(route({.access =
                     [](int a, int b) {
                         return gpu_access{true, a / 2 == b / 2, 1};
                     }},
                3, own) == "kernels over nvlink pcie");
    CHECK(route({.access =
                     [](int a, int b) {
                         return gpu_access{a + b != 3, true, 0};
                     }},
                3, own) ==
          "staged through the host: rank 1 cannot reach rank 2: the driver offers no peer access between the two "
          "devices");
    CHECK(route({.cooperates = false}, 2, own).find("cannot launch cooperatively") != std::string::npos);
    CHECK(route({}, 2, [](int) { return 0; }).find("both ranks use one device") != std::string::npos);
}

TEST_CASE("ranks that may share a device go by kernels where these run at the same time") {
    for (const bool takes_turns : {false, true}) {
        fake_gpus g({.devices = 1});
        g.takes_turns = takes_turns;
        on_ranks(2, [&](communicator& w) {
            w.set_checked(false);
            fake_runtime r(g);
            r.use(0);
            const auto c = w.with(gpus{r});
            auto s = small();
            s.shares_device = true;
            s.lanes = 4; // of four multiprocessors, for two ranks
            use_device(c, s);
            const std::string route = device_route(c);
            if (!takes_turns) {
                EXPECT(route == "kernels over the memory of one device");
                const auto& team = detail::gpu_group<fake_runtime>::of(w, r, nullptr).team();
                EXPECT(team.machine().lanes(team.shape()) == 2);
            } else
                EXPECT(route.find("both ranks use one device, where their kernels did not run at") !=
                       std::string::npos);
        });
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("ranks on several hosts may go by way of the host alone, over sockets") {
    fake_gpus g;
    on_hosts(3, {.ranks_per_host = 2}, [&](communicator& w) {
        fake_runtime r(g);
        r.use(w.rank());
        const auto c = w.with(gpus{r});
        auto s = small();
        s.two_levels = false;
        use_device(c, s);
        EXPECT(device_route(c).find("staged through the host: rank 0 cannot reach rank 2: it is on another host") == 0);
        check_verbs(w, c, g, 700);
    });
    CHECK(g.pieces() == 0);
}

namespace {
// The driver does not say what device 1 is: to any thread, or only to those that use another device.
struct silent_driver : fake_runtime {
    silent_driver(fake_gpus& g, bool to_all) : fake_runtime(g), is_to_all(to_all) {}
    device::gpu_facts facts(int d) const {
        if (d == 1 && (is_to_all || current() != d)) fail(errc::resource, -1, -1, "", "asking a device: no answer");
        return fake_runtime::facts(d);
    }
    bool is_to_all;
};
} // namespace

TEST_CASE("a driver that does not say what a device is ends the set-up of all ranks at once, or stages") {
    fake_gpus g;
    on_gpus(3, g, [&](communicator& w, fake_runtime) {
        w.set_timeout(collx_test::patient(std::chrono::seconds(60)));
        const std::int64_t began = now_ns();
        communicator mine = w.dup();
        const auto e = thrown<error>(w, [&] { use_device(mine.with(gpus{silent_driver(g, true)}), small()); });
        EXPECT(e.code() == errc::resource &&
               says(e, w.rank() == 1 ? "no answer" : "rank 1 could not look at its device"));
        const auto c = w.with(gpus{silent_driver(g, false)});
        use_device(c, small());
        EXPECT(device_route(c).find("cannot reach rank 1: the driver offers no peer access") != kept_text::npos);
        EXPECT(now_ns() - began < collx_test::patient(30'000'000'000)); // no rank waited for its limit
        device_memory<float> x(g, w.rank(), 100, 1.0f);
        all_reduce(c, x);
        synchronize(c);
        EXPECT(x[99] == 3.0f);
    });
    CHECK(g.pieces() == 0);
}

TEST_CASE("hosts of one NVLink fabric are joined by kernels, others in two levels") {
    using device::handle_kind;
    constexpr unsigned all = bit_of(handle_kind::ipc) | bit_of(handle_kind::file) | bit_of(handle_kind::fabric);
    fake_gpus one({.handles = all, .fabric = 1}), two({.handles = all, .fabric = 2}), none;
    const auto route = [&](fake_gpus& first, fake_gpus& second) {
        std::string said;
        on_hosts(3, {.ranks_per_host = 2}, [&](communicator& w) {
            fake_gpus& g = w.rank() < 2 ? first : second;
            fake_runtime r(g);
            r.use(w.rank());
            const auto c = w.with(gpus{r});
            use_device(c, small());
            check_verbs(w, c, g, 300);
            if (w.rank() == 0) said = device_route(c);
        });
        CHECK(first.pieces() + second.pieces() == 0);
        return said;
    };
    CHECK(route(one, one) == "kernels over nvlink, memory by fabric handles");
    CHECK(one.granted > 0); // to the devices of other threads
    const std::string levels =
        "kernels inside 2 domains of 1 to 2 ranks, staged between them: rank 0 cannot reach rank "
        "2: it is on another host (fabric handles: ";
    CHECK(route(one, two) == levels + "rank 0 could not map memory of rank 2); here kernels over nvlink");
    CHECK(route(one, none) == levels + "the driver of rank 2 offers none); here kernels over nvlink");
}

TEST_CASE("wrong memory, device, stream and settings are typed errors") {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r});
        const int me = w.rank(), other = 1 - me;
        use_device(c, small());
        device_memory<float> x(g, me, 10, 1.0f), far(g, other, 10);
        device::fake_stream s(other);
        std::vector<float> host(10);
        auto* pinned = static_cast<float*>(g.allocate(40, -1, device::memory_place::pinned));
        auto* foreign = static_cast<float*>(g.allocate(40, me, device::memory_place::device, true));
        const auto says = [&](const char* text, auto&& f) {
            const auto e = thrown<invalid_argument>(w, f);
            EXPECT(std::string(e.what()).find(text) != std::string::npos);
            EXPECT(e.rank() == me);
        };
        says("the input buffer lies in the host's memory", [&] { all_reduce(c, device_view<float>(host.data(), 10)); });
        says("the input buffer lies in pinned host memory", [&] { all_reduce(c, device_view<float>(pinned, 10)); });
        says("the input buffer is null", [&] { all_reduce(c, device_view<float>(nullptr, 10)); });
        says("the output buffer lies on device", [&] { all_reduce(c, x, far); });
        says("is of another context of device", [&] { all_reduce(c, device_view<float>(foreign, 10)); });
        says("the stream is of device", [&] { all_reduce(c, x, plus{}, {.stream = &s}); });
        says("every wait would be past", [&] { all_reduce(c, x, plus{}, {.timeout = std::chrono::seconds(-1)}); });
        says("every wait would be past", [&] { collx::send(c, x, other, {.timeout = std::chrono::nanoseconds(-1)}); });
        says("every wait would be past", [&] {
            device_group group(c);
            group.all_reduce(x);
            group.launch({.timeout = std::chrono::seconds(-1)});
        });
        says("roots are ranks", [&] { broadcast(c, x, {.root = 2}); });
        says("has 10 elements and needs 20", [&] { all_gather(c, x, x); });
        r.use(other);
        says("choose it with cudaSetDevice", [&] { all_reduce(c, x); });
        says("choose it with cudaSetDevice", [&] { synchronize(c); });
        r.use(me);
        says("the only buffer lies in device memory", [&] { all_reduce(w, view(x.data(), 10)); });
        EXPECT(!try_::all_reduce(c, device_view<float>(host.data(), 10)).has_value());
        all_reduce(c, x); // none of these errors had an effect
        synchronize(c);
        EXPECT(x[0] == 2.0f);
        g.free(pinned);
        g.free(foreign);
        w.set_checked(true); // an error on one rank alone has no effect either
        const auto calls = w.sequence();
        if (me == 0) {
            says("the input buffer is null", [&] { all_reduce(c, device_view<float>(nullptr, 10)); });
            says("has 10 elements and needs 20", [&] { all_gather(c, x, x); });
            says("the stream is of device", [&] { all_reduce(c, x, plus{}, {.stream = &s}); });
            says("overlap", [&] { reduce_scatter(c, x, device_view<float>(x.data() + 1, 5)); });
            says("1 numbers for 2 ranks", [&] { all_to_all_v(c, x, std::vector{1}, x, std::vector{1}); });
            says("null", [&] {
                device_group group(c);
                group.all_reduce(device_view<float>(nullptr, 10));
                group.launch();
            });
        }
        all_reduce(c, x);
        synchronize(c);
        EXPECT(x[0] == 4.0f && w.sequence() == calls + 1);
    });
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        auto s = small();
        s.lanes += w.rank();
        const auto e = thrown<mismatch>(w, [&] { use_device(w.with(gpus{r}), s); });
        EXPECT(std::string(e.what()).find("has other device settings") != std::string::npos);
    });
    on_gpus(2, g, [&](communicator& w, fake_runtime r) { // one rank has no device: both get an error
        if (w.rank() == 1) r.use(9);
        const auto e = thrown<error>(w, [&] { use_device(w.with(gpus{r}), small()); });
        EXPECT(e.code() == errc::unsupported);
        EXPECT(std::string(e.what()).find(w.rank() == 1 ? "no CUDA-capable device"
                                                        : "rank 1 could not use its device") != std::string::npos);
    });
    CHECK(g.pieces() == 0);
}

TEST_CASE("checked calls on device memory name the odd rank") {
    for (const bool staged : {false, true}) {
        fake_gpus g;
        on_gpus(2, g, [&](communicator& w, fake_runtime r) {
            const auto c = w.with(gpus{r});
            w.set_checked(true);
            use_device(c, small(staged));
            device_memory<float> x(g, w.rank(), 20, 1.0f);
            const auto e = thrown<mismatch>(w, [&] {
                all_reduce(c, device_view<float>(x.data(), w.rank() == 0 ? 10u : 20u));
                synchronize(c);
            });
            EXPECT(collx_test::says(e, "count"));
        });
    }
    // Calls are compared, not the pieces in which they are staged.
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r});
        w.set_checked(true);
        use_device(c, small(true));
        device_memory<float> x(g, w.rank(), 4096, 1.0f);
        const auto e = thrown<mismatch>(w, [&] {
            if (w.rank() == 0) return all_reduce(c, x);
            for (int half = 0; half < 2; ++half) all_reduce(c, device_view<float>(x.data() + half * 2048, 2048));
        });
        EXPECT(collx_test::says(e, "count is 4096 on rank 0 and 2048 on rank 1"));
    });
}

TEST_CASE("settings that come after the first call, and other ones, are refused") {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r});
        use_device(c, small());
        use_device(c, small());
        use_device(c);
        const auto e = thrown<invalid_argument>(w, [&] { use_device(c, small(true)); });
        EXPECT(collx_test::says(e, "this communicator's device is in use, with other settings"));
        device_memory<float> x(g, w.rank(), 10, 1.0f);
        all_reduce(c, x);
        synchronize(c);
        EXPECT(x[9] == 2.0f);
    });
}

TEST_CASE("texts that read the peers' buffers are refused, and a launch that has no room") {
    fake_gpus g({.processors = 1});
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r});
        use_device(c, small());
        device_memory<float> x(g, w.rank(), 5000, 1.0f);
        const auto e = thrown<error>(w, [&] { all_reduce(w.with(algo::zero_copy_all_reduce{}, gpus{r}), x); });
        EXPECT(e.code() == errc::unsupported);
        communicator by_host = w.dup();
        const auto staged = by_host.with(algo::zero_copy_all_reduce{}, gpus{r});
        use_device(staged, small(true));
        const auto e2 = thrown<error>(w, [&] { all_reduce(staged, x); });
        EXPECT(e2.code() == errc::unsupported && says(e2, "use it on a collx::gpu_team"));
        const rank_order three({2, 0, 1});
        const auto e3 =
            thrown<error>(w, [&] { all_reduce(w.with(algo::in_order<algo::ring_all_reduce>{three}, gpus{r}), x); });
        EXPECT(e3.code() == errc::invalid_argument && says(e3, "does not fit 2 ranks as it was given"));
        barrier(w);
        g.busy = 1;
        barrier(w);
        const auto full = thrown<error>(w, [&] { all_reduce(c, x); });
        EXPECT(full.code() == errc::resource && says(full, "cannot be resident together"));
        barrier(w);
        g.busy = 0;
        barrier(w);
        all_reduce(c, x);
        synchronize(c);
        EXPECT(x[4999] == 2.0f);
    });
}

TEST_CASE("a proxy that waits hears that the program's communicator was aborted") {
    on_ranks(2, [&](communicator& w) {
        communicator side = w.split(0);
        barrier(side); // no rank is in split() any more
        if (w.rank() == 1) {
            w.abort(); // aborts, then makes no call on the other communicator
            EXPECT(side.size() == 2);
            return;
        }
        side.internals().failure_parent = &w.internals();
        const auto e =
            thrown<error>(w, [&] { barrier(side, {.timeout = collx_test::patient(std::chrono::seconds(30))}); });
        EXPECT(e.code() == errc::aborted);
    });
}

TEST_CASE("a rank whose kernels another one ended names the rank that this one waited for") {
    fake_gpus g;
    std::atomic<int> steps{0};
    on_gpus(3, g, [&](communicator& w, fake_runtime r) {
        device::fake_stream s(w.rank());
        const auto c = w.with(gpus{r});
        use_device(c, small());
        device_memory<float> x(g, w.rank(), 100, 1.0f);
        if (w.rank() == 0) { // rank 2 sends nothing
            collx::recv(c, x, 2, {.stream = &s, .timeout = std::chrono::milliseconds(300)});
            s.drain();
            steps = 1;
            until([&] { return steps == 2; });
            EXPECT(thrown<timed_out>(w, [&] { synchronize(c, {.stream = &s}); }).peer() == 2);
            steps = 3;
        } else if (w.rank() == 1) {
            until([&] { return steps == 1; });
            const auto e = thrown<timed_out>(w, [&] {
                all_reduce(c, x, plus{}, {.stream = &s});
                synchronize(c, {.stream = &s});
            });
            EXPECT(e.peer() == 2 && says(e, "a kernel of rank 0 waited too long for rank 2") &&
                   says(e, "make a new communicator"));
            steps = 2;
        } else {
            until([&] { return steps == 3; });
            EXPECT(x[0] == 1.0f);
        }
    });
}

TEST_CASE("a rank that does not come, aborts or fails ends the kernels that wait for it") {
    for (const bool staged : {false, true}) {
        fake_gpus g;
        on_gpus(2, g, [&](communicator& w, fake_runtime r) { // rank 1 does not call
            at("does not come, staged=%d", staged);
            const auto c = w.with(gpus{r});
            use_device(c, small(staged));
            device_memory<float> x(g, w.rank(), 100, 1.0f);
            std::atomic<int>& steps = checks_of_peers;
            if (w.rank() == 0) {
                until([&] { return steps == 1; }); // use_device() has returned there, too
                all_reduce(c, x, plus{}, {.timeout = std::chrono::milliseconds(300)});
                const auto e = thrown<timed_out>(w, [&] { synchronize(c); });
                EXPECT(e.peer() == 1);
                const auto again = thrown<timed_out>(w, [&] { all_reduce(c, x); }); // the communicator stays failed
                EXPECT(again.peer() == 1);
                steps = 2;
            } else {
                steps = 1;
                until([&] { return steps == 2; });
                EXPECT(x[0] == 1.0f);
            }
        });
        checks_of_peers = 0;
        on_gpus(2, g, [&](communicator& w, fake_runtime r) { // rank 1 aborts
            at("aborts, staged=%d", staged);
            const auto c = w.with(gpus{r});
            use_device(c, small(staged));
            device_memory<float> x(g, w.rank(), 100, 1.0f);
            if (w.rank() == 0) {
                checks_of_peers = 1; // use_device() has returned here, too
                const std::int64_t began = now_ns();
                const auto e = thrown<error>(w, [&] {
                    all_reduce(c, x); // may already report the abort
                    synchronize(c);
                });
                at("aborts, staged=%d: %s", staged, e.what());
                EXPECT(e.code() == errc::aborted);
                EXPECT(now_ns() - began < collx_test::patient(40'000'000'000)); // well before the deadline of 50 s
            } else {
                until([&] { return checks_of_peers == 1; });
                w.abort();
                EXPECT(x[0] == 1.0f);
            }
        });
        checks_of_peers = 0;
        CHECK_THROWS_WITH(run_threads(2,
                                      [&](communicator& w) { // rank 1 throws
                                          fake_runtime r(g);
                                          r.use(w.rank());
                                          const auto c = w.with(gpus{r});
                                          use_device(c, small(staged));
                                          w.set_checked(false);
                                          if (w.rank() == 1) throw wrong("this rank has failed");
                                          device_memory<float> x(g, 0, 100, 1.0f);
                                          (void)thrown<peer_failed>(w, [&] {
                                              all_reduce(c, x);
                                              synchronize(c);
                                          });
                                      }),
                          Catch::Contains("this rank has failed"));
    }
}
