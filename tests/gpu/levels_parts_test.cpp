// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: alone timeout=300 sanitize=nightly
//
// reduce_scatter_v and scans on device memory in two levels: results for equal, uneven and mixed hosts, in place and
// not, with any counts, operators and types. Compares the staged bytes and the traffic between hosts with one level.
#include "levels_support.hpp"

#include <algorithm>
#include <climits>
#include <numeric>

#include <collx/algo/scan.hpp>

#include "support/patience.hpp"
#include "transport/verbs_fabric.hpp"

namespace {

using counts = std::vector<std::size_t>;

const std::vector<hosts> layouts = {{0, 0, 1, 1},       {0, 0, 0, 1},       {0, 1, 1, 1, 1},         {0, 0, 1, 1, 2, 2},
                                    {0, 0, 0, 1, 1, 2}, {0, 1, 0, 1, 1, 0}, {0, 1, 1, 2, 2, 0, 1, 0}};
bool are_intervals(const hosts& at) { return std::is_sorted(at.begin(), at.end()); }

// Equal counts, counts that grow from zero, only the first rank (many), only the last, two ranks, none.
std::vector<counts> tables(std::size_t ranks) {
    std::vector<counts> t(6, counts(ranks));
    for (std::size_t k = 0; k < ranks; ++k) {
        t[0][k] = 1701;
        t[1][k] = 701 * k;
    }
    t[2][0] = 9001;
    t[3][ranks - 1] = 5;
    t[4][1] = 4097;
    t[4][ranks - 1] = 1;
    return t;
}

template <class Comm>
void check_reduce_scatter_v(communicator& w, Comm c, fake_gpus& g, const counts& sizes) {
    const int ranks = w.size(), me = w.rank();
    const auto mine = sizes[static_cast<std::size_t>(me)],
               all = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}),
               begin = std::accumulate(sizes.begin(), sizes.begin() + me, std::size_t{0});
    device::fake_stream s(me);
    memory x(g, me, all), y(g, me, mine, -1);
    for (std::size_t i = 0; i < all; ++i) x[i] = part(me, 3, i);
    reduce_scatter_v(c, x, y, sizes, plus{}, {.stream = &s});
    reduce_scatter_v(c, x, device_view<int>(x.data() + begin, mine), sizes, plus{}, {.stream = &s}); // in place
    synchronize(c, {.stream = &s});
    for (std::size_t i = 0; i < all; ++i) {
        int sum = 0;
        for (int r = 0; r < ranks; ++r) sum += part(r, 3, i);
        const bool is_mine = i >= begin && i - begin < mine;
        EXPECT_AT(i, !is_mine || y[i - begin] == sum);
        EXPECT_AT(i, x[i] == (is_mine ? sum : part(me, 3, i)));
    }
    EXPECT(true); // counts as a check if there are no elements
}

template <class Comm>
void check_scans(communicator& w, Comm c, fake_gpus& g, std::size_t n) {
    const int me = w.rank();
    device::fake_stream s(me);
    memory x(g, me, n), y(g, me, n, -1), in_place(g, me, n), before(g, me, n, -7);
    for (std::size_t i = 0; i < n; ++i) x[i] = in_place[i] = part(me, 4, i);
    scan(c, x, y, plus{}, {.stream = &s});
    scan(c, in_place, plus{}, {.stream = &s});
    exclusive_scan(c, x, before, plus{}, {.stream = &s});
    exclusive_scan(c, x, plus{}, {.stream = &s});
    synchronize(c, {.stream = &s});
    for (std::size_t i = 0; i < n; ++i) {
        int sum = 0;
        for (int r = 0; r < me; ++r) sum += part(r, 4, i);
        EXPECT_AT(i, y[i] == sum + part(me, 4, i) && in_place[i] == y[i]);
        EXPECT_AT(i, before[i] == (me == 0 ? -7 : sum));
        EXPECT_AT(i, x[i] == (me == 0 ? part(0, 4, i) : sum)); // rank 0 keeps its value
    }
    EXPECT(true);
}

// What the proxies of all ranks have sent between hosts.
struct crossing {
    long messages, bytes;
};
template <class F>
crossing crossing_by(communicator& w, fake_runtime r, const hosts& at, F&& call) {
    auto& group = detail::gpu_group<fake_runtime>::of(w, r, nullptr);
    const auto so_far = [&] {
        crossing t{0, 0};
        for (int q = 0; q < w.size(); ++q)
            if (at[static_cast<std::size_t>(q)] != at[static_cast<std::size_t>(w.rank())]) {
                t.messages += static_cast<long>(group.sent_to(q).messages);
                t.bytes += static_cast<long>(group.sent_to(q).bytes);
            }
        return t;
    };
    const crossing before = so_far();
    call();
    group.synchronize(w, nullptr);
    barrier(w); // no proxy is working any more
    const crossing after = so_far();
    std::vector<long> x{after.messages - before.messages, after.bytes - before.bytes};
    all_reduce(w, x);
    return {x[0], x[1]};
}

} // namespace

TEST_CASE("reduce_scatter_v and scans in two levels, on even, uneven and mixed hosts") {
    for (const hosts& at : layouts) {
        fake_gpus g({.devices = 8});
        on_device_hosts(at, g, [&](communicator& w, fake_runtime r, const device_settings& s) {
            const auto c = w.with(gpus{r});
            use_device(c, s);
            collx_test::at("%zu ranks: %s", at.size(), device_route(c).c_str());
            EXPECT(device_route(c).find("kernels inside ") == 0);
            EXPECT((device_route(c).find("; scans and operators that do not commute staged") == std::string::npos) ==
                   are_intervals(at));
            for (const counts& t : tables(at.size())) check_reduce_scatter_v(w, c, g, t);
            for (const std::size_t n : {0u, 1u, 17u, 3001u, 9000u}) check_scans(w, c, g, n);
        });
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("reduce_scatter_v and scans send less between hosts, and stage less, than in one level") {
    for (const hosts& at : layouts) {
        fake_gpus g({.devices = 8});
        on_device_hosts(at, g, [&](communicator& w, fake_runtime r, device_settings s) {
            auto other = w.split(0);
            const auto c = w.with(gpus{r}), one_level = other.with(gpus{r});
            use_device(c, s);
            s.two_levels = false;
            use_device(one_level, s);
            const int me = w.rank();
            const long ranks = w.size(), domains = 1 + *std::max_element(at.begin(), at.end());
            const auto S = [](std::size_t n) { return static_cast<long>(n * sizeof(int)); };
            constexpr std::size_t n = 1701;
            memory x(g, me, n, 1), y(g, me, n);
            const auto expect = [&](const char* verb, bytes staged, long bytes_between, long messages, auto&& call) {
                collx_test::at("%s of %ld ranks, %ld hosts", verb, ranks, domains);
                const bytes two = staged_by(w, r, [&] { call(c); }),
                            one = staged_by(other, r, [&] { call(one_level); });
                EXPECT_AT(two.out, two.out == staged.out && two.out < one.out);
                EXPECT_AT(two.in, two.in == staged.in && two.in <= one.in);
                const crossing now = crossing_by(w, r, at, [&] { call(c); }),
                               before = crossing_by(other, r, at, [&] { call(one_level); });
                collx_test::at("%s of %ld ranks, %ld hosts: %ld messages and %ld bytes between hosts, were %ld and %ld",
                               verb, ranks, domains, now.messages, now.bytes, before.messages, before.bytes);
                EXPECT(now.bytes == bytes_between && now.bytes <= before.bytes);
                EXPECT(now.messages <= before.messages && now.messages <= messages);
            };
            // Each domain stages the whole buffer, and sends its contributions to the other domains' parts.
            const std::vector<counts> some = tables(at.size());
            for (const counts& t : some) {
                const auto all = std::accumulate(t.begin(), t.end(), std::size_t{0});
                memory whole(g, me, all + 1, 1), own(g, me, t[static_cast<std::size_t>(me)]);
                if (all != 0)
                    expect("reduce_scatter_v", {domains * S(all), S(all)}, (domains - 1) * S(all),
                           &t == &some[2] ? 5 * domains * (domains - 1) : LONG_MAX, // one part has all the elements
                           [&](auto k) { reduce_scatter_v(k, whole, own, t); });
            }
            // One rail's exclusive scan of short pieces is a chain through two or three domains.
            const bytes crossing_once{(domains - 1) * S(n), (domains - 1) * S(n)};
            EXPECT(domains <= 3);
            const long between = (domains - 1) * S(n);
            if (are_intervals(at)) {
                expect("scan", crossing_once, between, LONG_MAX, [&](auto k) { scan(k, x, y); });
                expect("exclusive_scan", crossing_once, between, LONG_MAX, [&](auto k) { exclusive_scan(k, x, y); });
            } else {
                const bytes all = staged_by(w, r, [&] { scan(c, x, y); }),
                            but_one = staged_by(w, r, [&] { exclusive_scan(c, x, y); });
                EXPECT(all == bytes{ranks * S(n), ranks * S(n)} && but_one == bytes{ranks * S(n), (ranks - 1) * S(n)});
            }
        });
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("a scan of long pieces goes between hosts once, as in one level") {
    for (const hosts& at : {hosts{0, 0, 1, 1}, hosts{0, 0, 0, 1, 1, 2}}) {
        fake_gpus g({.devices = 8});
        on_device_hosts(at, g, [&](communicator& w, fake_runtime r, device_settings s) {
            auto other = w.split(0);
            const auto c = w.with(gpus{r}), one_level = other.with(gpus{r});
            s.staging_bytes = 1 << 20;
            use_device(c, s);
            s.two_levels = false;
            use_device(one_level, s);
            constexpr std::size_t n = 300'000;
            memory x(g, w.rank(), n, 1), y(g, w.rank(), n);
            const crossing now = crossing_by(w, r, at, [&] { scan(c, x, y); }),
                           before = crossing_by(other, r, at, [&] { scan(one_level, x, y); });
            collx_test::at("%d ranks: %ld messages and %ld bytes between hosts, were %ld and %ld", w.size(),
                           now.messages, now.bytes, before.messages, before.bytes);
            EXPECT(now.bytes == *std::max_element(at.begin(), at.end()) * static_cast<long>(n * sizeof(int)));
            EXPECT(now.bytes <= before.bytes && now.messages < before.messages);
            EXPECT(y[n - 1] == w.rank() + 1);
        });
    }
}

namespace {

struct affine {
    unsigned a, b;
    bool operator==(const affine&) const = default;
};
// Does not commute.
const auto then = [](affine f, affine h) { return affine{f.a * h.a % 10007u, (f.b * h.a + h.b) % 10007u}; };
affine map(int r, std::size_t i) {
    return {2 + 3u * static_cast<unsigned>(r), static_cast<unsigned>(r) * 17 + static_cast<unsigned>(i)};
}

} // namespace

TEST_CASE("operators that do not commute, hooks and types in parts and scans of two levels") {
    for (const hosts& at : {hosts{0, 0, 1, 1}, hosts{0, 0, 0, 1, 1, 2}, hosts{0, 1, 0, 1}}) {
        fake_gpus g({.devices = 8});
        on_device_hosts(at, g, [&](communicator& w, fake_runtime r, const device_settings& s) {
            const auto c = w.with(gpus{r});
            use_device(c, s);
            const int me = w.rank(), ranks = w.size();
            collx_test::at("%d ranks, intervals %d", ranks, are_intervals(at));
            constexpr std::size_t n = 3001;
            const counts sizes = tables(at.size())[1];
            const std::size_t mine = sizes[static_cast<std::size_t>(me)],
                              all = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}),
                              begin = std::accumulate(sizes.begin(), sizes.begin() + me, std::size_t{0});
            device_memory<affine> f(g, me, n), up_to(g, me, n), before(g, me, n), h(g, me, all), own(g, me, mine);
            for (std::size_t i = 0; i < n; ++i) f[i] = before[i] = map(me, i);
            for (std::size_t i = 0; i < all; ++i) h[i] = map(me, i);
            scan(c, f, up_to, then);
            exclusive_scan(c, before, then);
            reduce_scatter_v(c, h, own, sizes, then);
            // Hooks get the element's index in the whole buffer, and the number of ranks.
            device_memory<float> x(g, me, 3 * n), odd_sums(g, me, n), parts(g, me, all), mean(g, me, mine);
            for (std::size_t i = 0; i < n; ++i) x[3 * i] = value(me, i);
            for (std::size_t i = 0; i < all; ++i) parts[i] = value(me, i);
            const auto odd = [ranks](float v, hook_context k) { return k.index % 2 && k.nranks == ranks ? v : 0.0f; };
            const auto shifted = [](float v, hook_context k) { return v + static_cast<float>(k.index % 5); };
            scan(c, on_device(strided(x.data(), n, 3)), odd_sums, with_pre(plus{}, odd));
            reduce_scatter_v(c, parts, mean, sizes, with_post(with_pre(average{}, odd), shifted));
            synchronize(c);
            for (std::size_t i = 0; i < n; ++i) {
                affine product = map(0, i), last = product;
                float sum = value(0, i);
                for (int q = 1; q <= me; ++q) {
                    last = product;
                    product = then(product, map(q, i));
                    sum += value(q, i);
                }
                EXPECT_AT(i, up_to[i] == product && before[i] == last); // rank 0 keeps its value
                EXPECT_AT(i, odd_sums[i] == (i % 2 ? sum : 0.0f));
            }
            for (std::size_t i = 0; i < mine; ++i) {
                affine product = map(0, begin + i);
                float sum = value(0, begin + i);
                for (int q = 1; q < ranks; ++q) {
                    product = then(product, map(q, begin + i));
                    sum += value(q, begin + i);
                }
                EXPECT_AT(i, own[i] == product);
                EXPECT_AT(i, mean[i] == ((begin + i) % 2 ? sum / static_cast<float>(ranks) : 0.0f) +
                                            static_cast<float>(i % 5));
            }
        });
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("policies, types of one byte and of two, captured and checked calls of parts and scans in two levels") {
    fake_gpus g;
    on_device_hosts({0, 0, 1, 1}, g, [&](communicator& w, fake_runtime r, const device_settings& s) {
        const auto c = w.with(gpus{r});
        use_device(c, s);
        const int me = w.rank();
        constexpr std::size_t n = 5001;
        const counts sizes = {0, 5001, 2, 4000};
        const std::size_t mine = sizes[static_cast<std::size_t>(me)];
        const auto S = [](std::size_t bytes) { return static_cast<long>(bytes); };
        device::fake_stream stream(me);
        // The choice: another order changes the bits of floats but not of integers; an algorithm applies to all ranks.
        memory x(g, me, n, me + 1), y(g, me, n), whole(g, me, 9003, me + 1), own(g, me, mine);
        device_memory<float> narrow(g, me, n, 0.5f), ordered(g, me, n), owned(g, me, mine), all(g, me, 9003);
        const auto out_of = [&](auto&& call) { return staged_by(w, r, call).out; };
        const auto exact = w.with(deterministic{}, gpus{r});
        EXPECT(out_of([&] { scan(exact, x, y); }) == S(n * 4));
        EXPECT(out_of([&] { scan(exact, ordered); }) == S(4 * n * 4));
        EXPECT(out_of([&] { reduce_scatter_v(exact, whole, own, sizes); }) == S(2 * 9003 * 4));
        EXPECT(out_of([&] { reduce_scatter_v(exact, all, owned, sizes); }) == S(4 * 9003 * 4));
        EXPECT(out_of([&] { scan(w.with(algo::chain_scan{}, gpus{r}), x, y); }) == S(4 * n * 4));
        EXPECT(out_of([&] { scan(w.with(wire<bf16>{}, gpus{r}), narrow); }) == S(n * 4));
        device_memory<unsigned char> c1(g, me, n, static_cast<unsigned char>(me + 100));
        device_memory<f16> c2(g, me, n, f16(static_cast<float>(me)));
        w.set_checked(true);
        scan(c, c1);
        exclusive_scan(c, c2);
        reduce_scatter_v(c, whole, own, sizes);
        w.set_checked(false);
        synchronize(c);
        EXPECT(narrow[0] == 0.5f * static_cast<float>(me + 1) && narrow[n - 1] == narrow[0]);
        EXPECT(y[0] == (me + 1) * (me + 2) / 2 && y[n - 1] == y[0]);
        for (std::size_t i = 0; i < n; i += 100) {
            EXPECT_AT(i, c1[i] == static_cast<unsigned char>((me + 1) * 100 + me * (me + 1) / 2));
            EXPECT_AT(i, float(c2[i]) == static_cast<float>(me * (me - 1) / 2));
        }
        for (std::size_t i = 0; i < mine; ++i) EXPECT_AT(i, own[i] == 10);
        // A graph, launched twice.
        memory z(g, me, n, 1), before(g, me, n, 9);
        fake_runtime::begin_capture(stream);
        scan(c, z, plus{}, {.stream = &stream});
        exclusive_scan(c, z, before, plus{}, {.stream = &stream});
        reduce_scatter_v(c, whole, own, sizes, plus{}, {.stream = &stream});
        const auto graph = fake_runtime::end_capture(stream);
        EXPECT(z[0] == 1);
        for (int k = 0; k < 2; ++k) fake_runtime::launch(graph, stream);
        synchronize(c, {.stream = &stream});
        const int twice[] = {1, 3, 6, 10}, sums[] = {9, 1, 4, 10};
        EXPECT(z[0] == twice[me] && z[n - 1] == twice[me] && before[0] == sums[me] && before[n - 1] == sums[me]);
        // Different counts are detected where kernels or hosts exchange data.
        counts wrong = sizes;
        if (me == 3) wrong = {0, 5000, 2, 4001};
        memory other(g, me, wrong[static_cast<std::size_t>(me)]);
        const auto e = thrown<error>(w, [&] {
            reduce_scatter_v(c, whole, other, wrong);
            synchronize(c);
        });
        collx_test::at("%s", e.what());
        EXPECT(e.code() == errc::mismatch);
    });
}

// The proxy uses the verbs of communicators, so it works over every transport that per_peer may have.
TEST_CASE("rails over whatever the communicator's list of transports has") {
    constexpr unsigned fabric = bit_of(device::handle_kind::fabric) | bit_of(device::handle_kind::ipc);
    const auto in_pairs = [](int a, int b) { return gpu_access{a / 2 == b / 2, true, 0}; };
    fake_gpus islands({.access = in_pairs}), one({.handles = fabric, .fabric = 1}),
        two({.handles = fabric, .fabric = 2});
    collx_test::fabric net;
    const collx_test::fabric_installed rdma(net);
    for (const transports over : {transports(per_peer{shm{}}), transports(per_peer{shm{}, sockets{}}),
                                  transports(per_peer{sockets{}}), transports(per_peer{verbs{}})}) {
        const long before = checks.load();
        run_threads(over, 4, [&](communicator& w) {
            w.set_checked(false);
            fake_gpus& mine = over.use_memory ? islands : w.rank() < 2 ? one : two;
            fake_runtime r(mine);
            r.use(w.rank());
            const auto c = w.with(gpus{r});
            use_device(c, small());
            collx_test::at("%s: %s", over.text, device_route(c).c_str());
            EXPECT(device_route(c).find("kernels inside 2 domains of 2 ranks") == 0);
            for (const counts& t : tables(4)) check_reduce_scatter_v(w, c, mine, t);
            check_scans(w, c, mine, 3001);
        });
        CHECK(checks.load() > before + 4);
        CHECK((net.counters().writes > 0) == (over == per_peer{verbs{}}));
    }
    CHECK(net.misuses() == 0);
    CHECK(islands.pieces() + one.pieces() + two.pieces() == 0);
}

TEST_CASE("what did not come along a rail is no part of a scan or of any rank's part") {
    static std::atomic<int> done{0};
    for (const bool scans : {true, false}) {
        fake_gpus g;
        done = 0;
        on_device_hosts({0, 0, 1, 1}, g, [&](communicator& w, fake_runtime r, const device_settings& s) {
            const auto c = w.with(gpus{r});
            use_device(c, s);
            const counts sizes(4, 5000);
            memory x(g, w.rank(), scans ? 3000 : 20'000, 1), own(g, w.rank(), 5000);
            if (w.rank() == 3) { // rank 3 does not call
                for (const deadline limit = deadline::in_ns(collx_test::patient(60'000'000'000));
                     done.load() < 3 && !limit.passed();)
                    sched_yield();
                EXPECT(done.load() == 3 && x[0] == 1);
                return;
            }
            const auto call = [&] {
                const device_call_options o{.timeout = std::chrono::milliseconds(700)};
                if (scans) scan(c, x, plus{}, o);
                else reduce_scatter_v(c, x, own, sizes, plus{}, o);
                synchronize(c);
            };
            if (scans && w.rank() < 2) { // needs nothing of the other host, but may learn that the call failed there
                try {
                    call();
                    EXPECT(x[0] == w.rank() + 1 && x[2999] == x[0]);
                } catch (const error& e) {
                    EXPECT(e.code() == errc::timeout && e.peer() == 3);
                }
                ++done;
                return;
            }
            const auto e = thrown<error>(w, call);
            collx_test::at("%d: %s", scans, e.what());
            ++done;
            EXPECT(e.code() == errc::timeout && e.peer() == 3);
        });
    }
}
