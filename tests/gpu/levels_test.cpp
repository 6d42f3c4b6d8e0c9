// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: alone timeout=300 sanitize=nightly
//
// Calls on device memory in two levels: ranks are threads that act as several hosts, kernels reach the ranks of one
// host, and proxies send the rest over sockets. Tests every verb on even, uneven and mixed hosts, the number of
// staged bytes, and which ranks learn that a rank throws, aborts or does not call.
#include "levels_support.hpp"
#include "support/night.hpp"
#include "support/patience.hpp"

#include <algorithm>

#include <collx/gpu/device_group.hpp>

namespace {

long not_here(const hosts& at, int root) {
    return std::count_if(at.begin(), at.end(), [&](int h) { return h != at[static_cast<std::size_t>(root)]; });
}

// Every verb, with buffers twice as long as a staging buffer and shorter than a share; roots on each host.
template <class Comm>
void check_verbs(communicator& w, Comm c, fake_gpus& g, std::size_t n) {
    const int ranks = w.size(), me = w.rank();
    const auto all = n * static_cast<std::size_t>(ranks), mine = static_cast<std::size_t>(me);
    device::fake_stream s(me);
    memory in(g, me, n), out(g, me, n, -1), sum(g, me, n), whole(g, me, all), gathered(g, me, all, -1),
        gathered_here(g, me, all, -1), exchanged(g, me, all, -1), scattered(g, me, n, -1), scattered_here(g, me, all);
    for (std::size_t i = 0; i < n; ++i) in[i] = sum[i] = gathered_here[mine * n + i] = part(me, 0, i);
    for (std::size_t i = 0; i < all; ++i) whole[i] = scattered_here[i] = part(me, 1, i);
    all_reduce(c, in, out, plus{}, {.stream = &s});
    all_reduce(c, sum, plus{}, {.stream = &s});
    all_gather(c, in, gathered, {.stream = &s});
    all_gather(c, gathered_here, {.stream = &s});
    reduce_scatter(c, whole, scattered, plus{}, {.stream = &s});
    reduce_scatter(c, scattered_here, plus{}, {.stream = &s});
    all_to_all(c, whole, exchanged, {.stream = &s});
    barrier(c, device_call_options{.stream = &s});
    synchronize(c, {.stream = &s});
    const auto total = [&](int to, std::size_t i) {
        int t = 0;
        for (int r = 0; r < ranks; ++r) t += part(r, to, i);
        return t;
    };
    for (std::size_t i = 0; i < n; ++i) {
        EXPECT_AT(i, out[i] == total(0, i) && sum[i] == total(0, i));
        EXPECT_AT(i, scattered[i] == total(1, mine * n + i) && scattered_here[mine * n + i] == scattered[i]);
        for (int r = 0; r < ranks; ++r) {
            const std::size_t at = static_cast<std::size_t>(r) * n + i;
            EXPECT_AT(i, gathered[at] == part(r, 0, i) && gathered_here[at] == part(r, 0, i));
            EXPECT_AT(i, exchanged[at] == part(r, 1, mine * n + i));
        }
    }
    for (const int root : {0, 1, ranks - 1}) {
        memory sent(g, me, n), top(g, me, n, -1);
        for (std::size_t i = 0; i < n; ++i) sent[i] = part(me, root, i);
        broadcast(c, sent, {.stream = &s, .root = root});
        reduce(c, in, top, plus{}, {.stream = &s, .root = root});
        synchronize(c, {.stream = &s});
        for (std::size_t i = 0; i < n; ++i) {
            EXPECT_AT(i, sent[i] == part(root, root, i));
            EXPECT_AT(i, top[i] == (me == root ? total(0, i) : -1));
        }
    }
}

} // namespace

TEST_CASE("domains have numbers of their own however many ranks there are") {
    const int n = 50'000, each = 20; // a kernel joins 16 of the 20 ranks of a host
    std::vector<int> first;
    for (int r = 0; r < n; ++r) first.push_back(r / each * each);
    const std::vector<int> number = detail::numbers_of_domains(first);
    int wrong = 0;
    for (int r = 0; r < n; ++r) wrong += number[static_cast<std::size_t>(r)] != r / 10 * 10;
    CHECK(wrong == 0);
    CHECK(detail::numbers_of_domains({0, 1, 0, 1, 0}) == std::vector<int>{0, 1, 0, 1, 0});
}

TEST_CASE("every verb in two levels, on even, uneven and mixed hosts") {
    for (const hosts& at : shapes) {
        fake_gpus g({.devices = 8});
        on_device_hosts(at, g, [&](communicator& w, fake_runtime r, const device_settings& s) {
            const auto c = w.with(gpus{r});
            use_device(c, s);
            collx_test::at("%zu ranks: %s", at.size(), device_route(c).c_str());
            EXPECT(device_route(c).find("kernels inside ") == 0);
            EXPECT(device_route(c).find("staged between them: rank 0 cannot reach rank ") != std::string::npos);
            for (const std::size_t n : {0u, 1u, 7u, 3001u}) check_verbs(w, c, g, n);
        });
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("only what must cross is staged, each byte once") {
    for (const hosts& at : shapes) {
        fake_gpus g({.devices = 8});
        on_device_hosts(at, g, [&](communicator& w, fake_runtime r, device_settings s) {
            auto other = w.split(0);
            const auto c = w.with(gpus{r}), one_level = other.with(gpus{r});
            use_device(c, s);
            s.two_levels = false;
            use_device(one_level, s);
            EXPECT(device_route(one_level).find("staged through the host: rank 0 cannot reach rank ") == 0);
            const int me = w.rank();
            const auto ranks = static_cast<long>(w.size());
            const std::size_t n = 3001, all = n * at.size();
            const auto S = static_cast<long>(n * sizeof(int)); // bytes of a buffer, or of one rank's part
            long domains = 0, elsewhere = 0;                   // pairs of ranks on different hosts
            for (std::size_t a = 0; a < at.size(); ++a) {
                domains = std::max<long>(domains, at[a] + 1);
                for (const int host : at) elsewhere += at[a] != host;
            }
            long not_own = 0; // parts that each host receives from others
            for (int h = 0; h < domains; ++h) not_own += ranks - std::count(at.begin(), at.end(), h);
            memory x(g, me, n, 1), whole(g, me, all, 1), all_out(g, me, all);
            const auto expect = [&](const char* verb, bytes expected, bool is_less, auto&& call) {
                collx_test::at("%s of %zu ranks, %ld hosts", verb, at.size(), domains);
                const bytes two = staged_by(w, r, [&] { call(c); }),
                            one = staged_by(other, r, [&] { call(one_level); });
                EXPECT_AT(two.out, two.out == expected.out);
                EXPECT_AT(two.in, two.in == expected.in);
                EXPECT(two.out + two.in < one.out + one.in || !is_less);
            };
            const int root = w.size() - 1;
            expect("all_reduce", {domains * S, domains * S}, true, [&](auto k) { all_reduce(k, x); });
            expect("reduce", {domains * S, S}, true, [&](auto k) { reduce(k, x, plus{}, {.root = root}); });
            expect("broadcast", {S, (domains - 1) * S}, true, [&](auto k) { broadcast(k, x, {.root = root}); });
            expect("reduce_scatter", {domains * ranks * S, ranks * S}, true,
                   [&](auto k) { reduce_scatter(k, whole, x); });
            expect("all_gather", {ranks * S, not_own * S}, true, [&](auto k) { all_gather(k, x, all_out); });
            expect("all_to_all", {elsewhere * S, elsewhere * S}, true, [&](auto k) { all_to_all(k, whole, all_out); });
            expect("gather", {not_here(at, root) * S, not_here(at, root) * S}, true,
                   [&](auto k) { gather(k, x, whole, {.root = root}); });
            expect("barrier", {0, 0}, false, [&](auto k) { barrier(k, device_call_options{}); });
        });
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("operators, hooks, types and policies in two levels") {
    struct affine {
        unsigned a, b;
        bool operator==(const affine&) const = default;
    };
    const auto then = [](affine f, affine h) { return affine{f.a * h.a % 10007u, (f.b * h.a + h.b) % 10007u}; };
    const auto map = [](int r, std::size_t i) {
        return affine{2 + 3u * static_cast<unsigned>(r), static_cast<unsigned>(r) * 17 + static_cast<unsigned>(i)};
    };
    for (const hosts& at : {shapes[0], shapes[2], shapes[4]}) {
        fake_gpus g;
        on_device_hosts(at, g, [&](communicator& w, fake_runtime r, const device_settings& s) {
            const auto c = w.with(gpus{r});
            use_device(c, s);
            auto other = w.split(0);
            device_settings one_level = s;
            one_level.two_levels = false;
            use_device(other.with(gpus{r}), one_level);
            const int me = w.rank(), ranks = w.size();
            const bool in_order = at != shapes[4];
            constexpr std::size_t n = 9001;
            collx_test::at("%zu ranks, in order %d", at.size(), in_order);
            // Hooks get the element's index in the whole buffer, and the number of ranks.
            device_memory<float> x(g, me, 3 * n), mean(g, me, n), narrow(g, me, n), ordered(g, me, n),
                as_ever(g, me, n);
            for (std::size_t i = 0; i < n; ++i) {
                x[3 * i] = narrow[i] = value(me, i);
                ordered[i] = as_ever[i] = 1.0f / value(me, i);
            }
            const auto odd = [](float v, hook_context k) { return k.index % 2 == 1 && k.nranks == 4 ? v : 0.0f; };
            const auto shifted = [](float v, hook_context k) { return v + static_cast<float>(k.index % 5); };
            all_reduce(c, on_device(strided(x.data(), n, 3)), mean, with_post(with_pre(average{}, odd), shifted));
            all_reduce(w.with(wire<bf16>{}, gpus{r}), narrow);
            const bytes kept = staged_by(w, r, [&] { all_reduce(w.with(deterministic{}, gpus{r}), ordered); });
            EXPECT(kept.out == static_cast<long>(n * sizeof(float)) * ranks); // another grouping would change the bits
            all_reduce(other.with(deterministic{}, gpus{r}), as_ever);
            synchronize(other.with(gpus{r}));
            device_memory<float> parts(g, me, n * at.size()), own(g, me, n);
            for (std::size_t i = 0; i < n * at.size(); ++i) parts[i] = value(me, i);
            reduce_scatter(c, parts, own, with_post(plus{}, shifted));
            device_memory<affine> f(g, me, n), h(g, me, n * at.size()), mine(g, me, n);
            for (std::size_t i = 0; i < n; ++i) f[i] = map(me, i);
            for (std::size_t i = 0; i < n * at.size(); ++i) h[i] = map(me, i);
            const bytes affines = staged_by(w, r, [&] { all_reduce(c, f, then); });
            EXPECT(affines.out == static_cast<long>(n * sizeof(affine)) * (in_order ? 2 : ranks));
            reduce_scatter(c, h, mine, then);
            synchronize(c);
            for (std::size_t i = 0; i < n; ++i) {
                float sum = 0, part_sum = 0;
                const std::size_t k = static_cast<std::size_t>(me) * n + i;
                affine all = map(0, i), part_of_all = map(0, k);
                for (int q = 0; q < ranks; ++q) {
                    sum += value(q, i);
                    part_sum += value(q, k);
                    if (q > 0) {
                        all = then(all, map(q, i));
                        part_of_all = then(part_of_all, map(q, k));
                    }
                }
                const float shift = static_cast<float>(i % 5);
                EXPECT_AT(i, mean[i] == (i % 2 == 1 ? sum / static_cast<float>(ranks) : 0.0f) + shift);
                EXPECT_AT(i, narrow[i] == sum);
                EXPECT_AT(i, ordered[i] == as_ever[i]);
                EXPECT_AT(i, own[i] == part_sum + shift);
                EXPECT_AT(i, f[i] == all && mine[i] == part_of_all);
            }
        });
        CHECK(g.pieces() == 0);
    }
}

TEST_CASE("two levels where they fit: islands of one host, captured calls, and where they do not") {
    fake_gpus islands({.access = [](int a, int b) { return gpu_access{a / 2 == b / 2, true, 0}; }});
    on_device_hosts({0, 0, 0, 0}, islands, [&](communicator& w, fake_runtime r, const device_settings& s) {
        const auto c = w.with(gpus{r});
        use_device(c, s);
        EXPECT(device_route(c) ==
               "kernels inside 2 domains of 2 ranks, staged between them: rank 0 cannot reach rank 2: "
               "the driver offers no peer access between the two devices; here kernels over nvlink");
        check_verbs(w, c, islands, 3001); // rails use shared memory
    });
    fake_gpus g;
    on_device_hosts({0, 0, 1, 1}, g, [&](communicator& w, fake_runtime r, device_settings s) {
        const auto c = w.with(gpus{r});
        use_device(c, s);
        device::fake_stream stream(w.rank());
        memory x(g, w.rank(), 9000, 1), parts(g, w.rank(), 36'000);
        fake_runtime::begin_capture(stream);
        all_reduce(c, x, plus{}, {.stream = &stream});
        all_gather(c, x, parts, {.stream = &stream});
        barrier(c, device_call_options{.stream = &stream});
        const auto graph = fake_runtime::end_capture(stream);
        EXPECT(x[0] == 1);
        for (int k = 0; k < 3; ++k) fake_runtime::launch(graph, stream);
        all_reduce(c, x, plus{}, {.stream = &stream}); // a plain call besides the graph
        synchronize(c, {.stream = &stream});
        EXPECT(x[0] == 256 && x[8999] == 256 && parts[0] == 64 && parts[35'999] == 64);
        auto other = w.split(0);
        s.staged = true;
        use_device(other.with(gpus{r}), s);
        EXPECT(device_route(other.with(gpus{r})) == "staged through the host: device_settings::staged");
        // Messages in one group: by kernel inside a host, by the proxies between hosts.
        const int me = w.rank();
        memory to(g, me, 5000 * 4), from(g, me, 5000 * 4);
        for (std::size_t i = 0; i < 20'000; ++i) to[i] = part(me, static_cast<int>(i / 5000), i);
        device_group group(c);
        for (int q = 0; q < 4; ++q) {
            const std::size_t at = static_cast<std::size_t>(q) * 5000;
            group.send(device_view<int>(to.data() + at, 5000), q);
            group.recv(device_view<int>(from.data() + at, 5000), q);
        }
        const bytes crossing = staged_by(w, r, [&] { group.launch(); });
        EXPECT(crossing == bytes{8 * 20'000, 8 * 20'000});
        for (std::size_t i = 0; i < 20'000; ++i)
            EXPECT_AT(i,
                      from[i] == part(static_cast<int>(i / 5000), me, static_cast<std::size_t>(me) * 5000 + i % 5000));
    });
    // Hosts of one rank each, on two fabrics: each fabric is a domain.
    constexpr unsigned fabric = bit_of(device::handle_kind::fabric) | bit_of(device::handle_kind::ipc);
    fake_gpus one({.handles = fabric, .fabric = 1}), two({.handles = fabric, .fabric = 2});
    on_device_hosts({0, 1, 2, 3}, g, [&](communicator& w, fake_runtime, const device_settings& s) {
        fake_gpus& mine = w.rank() < 2 ? one : two;
        fake_runtime r(mine);
        r.use(w.rank());
        const auto c = w.with(gpus{r});
        use_device(c, s);
        collx_test::at("%s", device_route(c).c_str());
        EXPECT(device_route(c).find("kernels inside 2 domains of 2 ranks") == 0);
        EXPECT(device_route(c).find("here kernels over nvlink, memory by fabric handles") != std::string::npos);
        check_verbs(w, c, mine, 700);
    });
    on_device_hosts({0, 1, 2}, g, [&](communicator& w, fake_runtime r, const device_settings& s) {
        const auto c = w.with(gpus{r});
        use_device(c, s);
        EXPECT(device_route(c).find("staged through the host: rank 0 cannot reach rank 1: it is on another host") == 0);
    });
    CHECK(g.pieces() + islands.pieces() + one.pieces() + two.pieces() == 0);
}

TEST_CASE("what did not come along one rail is not taken for a result on another") {
    fake_gpus g;
    on_device_hosts({0, 0, 1, 1}, g, [&](communicator& w, fake_runtime r, const device_settings& s) {
        const auto c = w.with(gpus{r});
        use_device(c, s);
        memory x(g, w.rank(), 20'000, 1);
        // The proxies of ranks 1 and 3 complete the last elements.
        const auto throws = [](int v, hook_context k) {
            if (k.index >= 19'990) throw std::runtime_error("not with me");
            return v;
        };
        const auto e = thrown<error>(w, [&] {
            all_reduce(c, x, with_post(plus{}, throws));
            synchronize(c);
        });
        collx_test::at("%s", e.what());
        EXPECT(e.code() == errc::aborted);
        EXPECT(says(e, "the operator threw on the host") == (e.peer() < 0));
        EXPECT(e.peer() < 0 || e.peer() % 2 == 1);
    });
}

TEST_CASE("a time limit that is for ever is that on both ways, for kernels, rails and the results of proxies") {
    for (const bool staged : {false, true})
        for (const bool of_call : {false, true}) {
            fake_gpus g;
            on_device_hosts({0, 0, 1, 1}, g, [&](communicator& w, fake_runtime r, device_settings s) {
                at("staged=%d of_call=%d", staged, of_call);
                device_call_options o;
                if (of_call) o.timeout = std::chrono::nanoseconds::max();
                else w.set_timeout(std::chrono::nanoseconds::max());
                s.staged = staged;
                const auto c = w.with(gpus{r});
                use_device(c, s);
                memory x(g, w.rank(), 1000, 1);
                const bool is_long =
                    collx_test::is_night() || (!staged && !of_call); // longer than what else ends waits
                if (w.rank() == 3) std::this_thread::sleep_for(std::chrono::milliseconds(is_long ? 2500 : 300));
                all_reduce(c, x, plus{}, o);
                synchronize(c);
                EXPECT(x[999] == 4);
            });
        }
}

TEST_CASE("a rank that fails, aborts or does not come ends kernels and proxies on all hosts") {
    static std::atomic<int> ready{0}, done{0};
    const auto limit = collx_test::heard_within(std::chrono::milliseconds(2000));
    for (const int root_cause : {0, 1}) { // 0: rank 3 aborts; 1: it does not call
        fake_gpus g;
        ready = done = 0;
        on_device_hosts({0, 0, 1, 1}, g, [&](communicator& w, fake_runtime r, const device_settings& s) {
            const auto c = w.with(gpus{r});
            use_device(c, s);
            memory x(g, w.rank(), 100'000, 1);
            if (w.rank() == 3) {
                until([&] { return ready == 3; }); // none is in use_device() any more
                if (root_cause == 0) w.abort();
                until([&] { return done == 3; });
                EXPECT(x[0] == 1);
                return;
            }
            ++ready;
            if (root_cause == 1)
                until([&] { return ready == 3; }); // a rank that comes late is named in place of rank 3
            const std::int64_t began = now_ns();
            const auto e = thrown<error>(w, [&] {
                device_call_options o;
                if (root_cause == 1) o.timeout = limit;
                all_reduce(c, x, plus{}, o);
                synchronize(c);
            });
            collx_test::at("cause %d: %s", root_cause, e.what());
            ++done;
            EXPECT(e.code() == (root_cause == 0 ? errc::aborted : errc::timeout));
            EXPECT(e.peer() == 3);
            EXPECT(now_ns() - began < collx_test::patient(40'000'000'000)); // well before the deadline of 50 s
            EXPECT(e.rank() == w.rank());
        });
    }
    for (const int failing : {1, 3}) { // a rank beside rank 0, and one on the other host
        fake_gpus g;
        CHECK_THROWS_WITH(run_threads({0, 0, 1, 1},
                                      [&](communicator& w) {
                                          w.set_timeout(collx_test::patient(std::chrono::seconds(50)));
                                          w.set_checked(false);
                                          fake_runtime r(g);
                                          r.use(w.rank());
                                          const auto c = w.with(gpus{r});
                                          use_device(c, small());
                                          if (w.rank() == failing) throw wrong("this rank has failed");
                                          const std::int64_t began = now_ns();
                                          memory x(g, w.rank(), 10'000, 1);
                                          (void)thrown<error>(w, [&] {
                                              all_reduce(c, x);
                                              synchronize(c);
                                          });
                                          EXPECT(now_ns() - began < collx_test::patient(40'000'000'000));
                                      }),
                          Catch::Contains("this rank has failed"));
    }
}
