// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: alone timeout=300 sanitize=nightly
//
// Persistent groups of calls on device memory, over the fake runtime: by kernels that are prepared once, and staged.
#include "fake_devices.hpp"
#include "support/caught_stderr.hpp"
#include "support/patience.hpp"

#include <optional>

#include <collx/algo/ring.hpp>
#include <collx/gpu/device_group.hpp>

namespace {

namespace per = collx::persistent;
using memory = device_memory<int>;
using floats = device_memory<float>;

// Buffers of one rank; each start uses other values.
struct buffers {
    static constexpr std::size_t n = 3000;
    communicator& w;
    const int ranks = w.size(), me = w.rank(), next = (me + 1) % ranks, last = (me + ranks - 1) % ranks;
    memory sent, got, few, many, mine, whole, seed, more, got_more;
    floats shared;
    buffers(communicator& c, fake_gpus& g)
        : w(c), sent(g, me, n), got(g, me, n), few(g, me, 33), many(g, me, n), mine(g, me, n),
          whole(g, me, n * static_cast<std::size_t>(ranks)), seed(g, me, 3), more(g, me, 44), got_more(g, me, 44),
          shared(g, me, 501) {}

    static int part(int from, std::size_t i, int time) { return from * 1'000'003 + static_cast<int>(i) + time * 77; }
    static int term(int rank, std::size_t i, int time) { return rank * time + static_cast<int>(i % 100); }
    void begin(int time) const {
        for (std::size_t i = 0; i < n; ++i) {
            sent[i] = part(me, i, time);
            mine[i] = part(me + 5, i, time);
            got[i] = -1;
            many[i] = term(me, i, time);
        }
        for (std::size_t i = 0; i < 33; ++i) few[i] = term(me, i, time);
        for (std::size_t i = 0; i < 44; ++i) {
            more[i] = me + time;
            got_more[i] = -1;
        }
        for (std::size_t i = 0; i < 501; ++i) shared[i] = value(me + time, i);
        seed[2] = me + time;
    }
    // Eight calls.
    template <class Group>
    void add_to(Group& group) const {
        group.all_reduce(few);
        group.send(sent, next);
        group.recv(got, last);
        group.all_gather(mine, whole);
        group.broadcast(seed, 0);
        group.all_reduce(many);
        group.send(more, next);
        group.recv(got_more, last);
    }
    void check(int time) const {
        const auto sum = [&](std::size_t i) {
            return time * ranks * (ranks - 1) / 2 + ranks * static_cast<int>(i % 100);
        };
        for (std::size_t i = 0; i < 33; ++i) EXPECT_AT(i, few[i] == sum(i));
        for (std::size_t i = 0; i < n; ++i) EXPECT_AT(i, got[i] == part(last, i, time) && many[i] == sum(i));
        for (std::size_t i = 0; i < whole.collx_buffer().size(); ++i)
            EXPECT_AT(i, whole[i] == part(static_cast<int>(i / n) + 5, i % n, time));
        for (std::size_t i = 0; i < 44; ++i) EXPECT_AT(i, got_more[i] == last + time);
        EXPECT(seed[2] == time);
    }
};

} // namespace

TEST_CASE("an event is recorded for each kernel that is launched, and for nothing else") {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r});
        use_device(c, small());
        memory x(g, w.rank(), 100, 1), y(g, w.rank(), 100, 1), z(g, w.rank(), 200);
        const auto events_of = [&](auto&& f) { // on all ranks
            barrier(w);
            const int before = g.recorded_events.load();
            barrier(w);
            f();
            barrier(w);
            const int after = g.recorded_events.load();
            barrier(w);
            return after - before;
        };
        const auto add_to = [&](auto& group) {
            group.all_reduce(x);
            group.all_reduce(y);
            group.all_gather(x, z); // of another kind, and reads what was written
        };
        EXPECT(events_of([&] { all_reduce(c, x); }) == 2);
        EXPECT(events_of([&] {
                   device_group group(c);
                   add_to(group);
                   group.launch();
               }) == 2 * 2);
        EXPECT(events_of([&] { device_group(c).all_reduce(x).all_reduce(y).broadcast(z, 0).launch(); }) == 2);
        auto step = [&] {
            per::device_group group(c);
            add_to(group);
            EXPECT(events_of([&] { auto unused = per::all_reduce(c, x); }) == 0);
            std::optional<decltype(group.launch())> made;
            EXPECT(events_of([&] { made.emplace(group.launch()); }) == 0);
            return std::move(*made);
        }();
        EXPECT(events_of([&] { step(); }) == 2 * 2);
        synchronize(c);
    });
    CHECK(g.pieces() == 0);
}

TEST_CASE("a persistent group makes its calls at each start, in as many kernels as the group would have") {
    for (const bool staged : {false, true})
        for (const int ranks : {2, 3}) {
            fake_gpus g;
            on_gpus(ranks, g, [&](communicator& w, fake_runtime r) {
                at("%d ranks, staged=%d", ranks, staged);
                use_device(w.with(gpus{r}), small(staged));
                device::fake_stream s(w.rank());
                const buffers b(w, g);
                const auto make = [&] { // the policies are a temporary
                    per::device_group group(w.with(gpus{r}));
                    b.add_to(group);
                    EXPECT(group.size() == 8);
                    auto calls = group.launch({.stream = &s});
                    EXPECT(group.size() == 0);
                    return calls;
                };
                const auto sequence = w.sequence();
                auto step = make();
                EXPECT(w.sequence() == sequence); // no call has been made
                const auto once = [&] {
                    device_group group(w.with(gpus{r}));
                    b.add_to(group);
                    group.launch({.stream = &s});
                };
                b.begin(0);
                const int launches = kernels_of(w, g, once);
                synchronize(w.with(gpus{r}), {.stream = &s});
                b.check(0);
                const auto of_one = w.sequence() - sequence;
                for (int time = 1; time < 5; ++time) {
                    b.begin(time);
                    const int now = kernels_of(w, g, [&] {
                        if (time % 2 == 0) return step();
                        step.start();
                        step.wait();
                    });
                    EXPECT_AT(now, now == launches);
                    synchronize(w.with(gpus{r}), {.stream = &s});
                    b.check(time);
                }
                EXPECT(w.sequence() - sequence == 5 * of_one);
                if (!staged) EXPECT(of_one == 4 + 4); // collectives, and kernels_of()'s barriers
                // Beside others: a single call, and a second group over the same buffers.
                auto again = make();
                b.begin(7);
                again();
                synchronize(w.with(gpus{r}), {.stream = &s});
                b.check(7);
                all_reduce(w.with(gpus{r}), b.shared, max{}, {.stream = &s});
                b.begin(8);
                step();
                synchronize(w.with(gpus{r}), {.stream = &s});
                b.check(8);
            });
            CHECK(g.pieces() == 0);
        }
}

TEST_CASE("a persistent chain is one kernel at each start, and a graph captures a start") {
    for (const bool staged : {false, true}) {
        fake_gpus g;
        on_gpus(3, g, [&](communicator& w, fake_runtime r) {
            const auto c = w.with(gpus{r});
            use_device(c, small(staged));
            device::fake_stream s(w.rank());
            const buffers b(w, g);
            auto group = per::device_group(c)
                             .all_reduce(b.few)
                             .send(b.sent, b.next)
                             .recv(b.got, b.last)
                             .all_gather(b.mine, b.whole)
                             .broadcast(b.seed, 0);
            group.all_reduce(b.many);
            group.send(b.more, b.next);
            group.recv(b.got_more, b.last);
            auto step = group.launch({.stream = &s});
            for (int time = 0; time < 3; ++time) {
                b.begin(time);
                const auto before = w.sequence();
                const int launches = kernels_of(w, g, [&] { step(); });
                if (!staged) EXPECT_AT(launches, launches == 3);
                if (!staged) EXPECT(w.sequence() == before + 4 + 4); // its collectives, and kernels_of()'s barriers
                synchronize(c, {.stream = &s});
                b.check(time);
            }
            fake_runtime::begin_capture(s);
            step();
            const auto graph = fake_runtime::end_capture(s);
            if (!staged) EXPECT(graph.size() == 1);
            for (int time = 3; time < 5; ++time) {
                b.begin(time);
                fake_runtime::launch(graph, s);
                synchronize(c, {.stream = &s});
                b.check(time);
            }
            b.begin(5);
            step();
            synchronize(c, {.stream = &s});
            b.check(5);
        });
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("a persistent group takes bound algorithms, one kind many times, calls that need one another, and no calls") {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r}, algo::ring_all_reduce{});
        use_device(c, small());
        memory x(g, w.rank(), 40, 1), y(g, w.rank(), 300, 1);
        per::device_group none(c);
        auto nothing = none.launch();
        nothing();
        nothing();
        per::device_group group(c);
        for (std::size_t k = 0; k < 40; ++k)
            group.all_reduce(device_view<int>(x.data() + k, 1)); // two kernels or more
                                                                 // one after the other
        group.all_reduce(y);
        group.all_reduce(y);
        auto step = group.launch();
        for (int time = 1; time <= 3; ++time) {
            step();
            synchronize(c);
            for (std::size_t k = 0; k < 40; ++k) EXPECT_AT(k, x[k] == 1 << time);
            EXPECT(y[0] == 1 << 2 * time && y[299] == y[0]);
        }
        // Started from another stream than the call before it.
        device::fake_stream s(w.rank());
        per::device_group other(c);
        other.all_reduce(x);
        auto on_stream = other.launch({.stream = &s});
        step();
        on_stream();
        synchronize(c, {.stream = &s});
        EXPECT(x[39] == 1 << 5);
    });
    CHECK(g.pieces() == 0);
}

TEST_CASE("what is wrong in a persistent group is said when it is made, and names the call") {
    fake_gpus g;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r});
        const int me = w.rank();
        memory x(g, me, 10, 1), y(g, me, 10, 1);
        per::device_group early(c);
        early.send(x, 1 - me);
        const auto unset = thrown<invalid_argument>(w, [&] { (void)early.launch(); });
        EXPECT(says(unset, "a message is between two"));
        use_device(c, small());
        int on_the_host = 0;
        const device_view<int> wrong(&on_the_host, 1);
        per::device_group group(c);
        group.all_reduce(x);
        group.all_reduce(y);
        group.broadcast(wrong, 0);
        const int launches = kernels_of(w, g, [&] {
            const auto e = thrown<invalid_argument>(w, [&] { (void)group.launch(); });
            EXPECT(says(e, "call 3 of the group: the input buffer lies in the host's memory") && e.rank() == me);
        });
        EXPECT(launches == 0 && x[9] == 1); // none of its calls was made
        group.send(wrong, 1 - me);
        group.recv(y, 1 - me);
        const auto in_message = thrown<invalid_argument>(w, [&] { (void)group.launch(); });
        EXPECT(says(in_message, "group's buffer lies in the host's memory"));

        // Compared when it is made, not when it is started.
        w.set_checked(true);
        group.all_reduce(x);
        group.send(x, 1 - me);
        group.recv(y, 1 - me);
        auto step = group.launch();
        const auto exchanges = w.internals().exchanges;
        step();
        step();
        EXPECT(w.internals().exchanges == exchanges);
        synchronize(c);
        EXPECT(x[9] == 4 && y[9] == 2);
        group.all_reduce(device_view<int>(x.data(), me == 0 ? 10 : 9));
        const auto other_count = thrown<mismatch>(w, [&] { (void)group.launch(); });
        EXPECT(other_count.peer() >= 0 && says(other_count, "call 1 of the group"));
    });
    CHECK(g.pieces() == 0);
}

TEST_CASE("starts of a persistent group that fail name its calls, and no start follows a failure") {
    fake_gpus g;
    std::atomic<bool> is_past{false}, is_late{false};
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        const auto c = w.with(gpus{r});
        use_device(c, small());
        const int me = w.rank();
        memory x(g, me, 10, 1), y(g, me, 10, 1), z(g, me, 10, 1);
        per::device_group group(c);
        group.all_reduce(x);
        group.all_reduce(y);
        group.broadcast(z, 1);
        auto step = group.launch({.timeout = std::chrono::milliseconds(300)});
        const auto sequence = w.sequence();
        barrier(w);
        g.busy = g.what().processors;
        barrier(w);
        const auto full = thrown<error>(w, [&] { step(); });
        EXPECT(full.code() == errc::resource && says(full, "calls 1 to 2 of the group: launching a fused kernel"));
        EXPECT(w.sequence() == sequence + 2); // the barriers: what is refused does not count
        barrier(w);
        g.busy = 0;
        barrier(w);
        r.use(1 - me);
        const auto elsewhere = thrown<invalid_argument>(w, [&] { step(); });
        EXPECT(says(elsewhere, "calls 1 to 2 of the group") && says(elsewhere, "choose it with cudaSetDevice"));
        r.use(me);
        barrier(w);
        if (me == 1) { // does not start it, and is in no call that the end of this one could end
            is_past = true;
            until([&] { return is_late.load(); }); // its own end would give up waiting for rank 0
            return;
        }
        until([&] { return is_past.load(); });
        step();
        const auto late = thrown<timed_out>(w, [&] { synchronize(c); });
        EXPECT(says(late, "call 1 of the group: a kernel waited too long for") && late.peer() == 1);
        (void)thrown<timed_out>(w, [&] { step(); });
        is_late = true;
    });
    collx_test::caught_stderr caught;
    on_gpus(2, g, [&](communicator& w, fake_runtime r) {
        auto own = w.dup();
        const auto c = own.with(gpus{r});
        use_device(c, small());
        memory x(g, w.rank(), 10, 1);
        auto step = per::device_group(c).all_reduce(x).launch();
        step();
        synchronize(c);
        if (w.rank() == 1) { // made, and never launched
            per::device_group group(c);
            group.all_reduce(x);
        }
        barrier(w);
        own.abort();
        (void)thrown<aborted>(w, [&] { step(); });
        EXPECT(x[0] == 2);
    });
    CHECK(caught.text() == "collx: warning: rank 1: a group was destroyed without launch(): none of its 1 calls was "
                           "made, the first is all_reduce (call launch())\n");
}
