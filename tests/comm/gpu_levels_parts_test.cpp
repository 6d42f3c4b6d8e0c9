// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=nightly
//
// reduce_scatter_v and scans on device memory in two levels: results for equal, uneven and mixed hosts, in place and
// not, with any counts, operators and types; what is staged, and what goes between hosts, against one level.
#include "gpu_levels_support.hpp"

#include <numeric>

#include <collx/algo/scan.hpp>

namespace {

using counts = std::vector<std::size_t>;

const std::vector<hosts> layouts = {{0, 0, 1, 1},       {0, 0, 0, 1},       {0, 1, 1, 1, 1},         {0, 0, 1, 1, 2, 2},
                                   {0, 0, 0, 1, 1, 2}, {0, 1, 0, 1, 1, 0}, {0, 1, 1, 2, 2, 0, 1, 0}};
bool are_intervals(const hosts& at) { return std::is_sorted(at.begin(), at.end()); }

// Alike, growing from nothing, in one rank only (the first of many, the last, one in between), none at all.
std::vector<counts> tables(std::size_t ranks) {
    std::vector<counts> t(6, counts(ranks));
    for (std::size_t k = 0; k < ranks; ++k) t[0][k] = 1701, t[1][k] = 701 * k;
    t[2][0] = 9001, t[3][ranks - 1] = 5, t[4][1] = 4097, t[4][ranks - 1] = 1;
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
    EXPECT(true); // a check without any element
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
        EXPECT_AT(i, x[i] == (me == 0 ? part(0, 4, i) : sum)); // rank 0 keeps what it held
    }
    EXPECT(true);
}

// What the proxies have sent between hosts, all ranks together.
struct crossing {
    long messages, bytes;
};
template <class F>
crossing crossing_by(communicator& w, fake_runtime r, const hosts& at, F&& call) {
    auto& group = detail::gpu_group<fake_runtime>::of(w, r, nullptr);
    const auto so_far = [&] {
        crossing t{0, 0};
        for (int q = 0; q < w.size(); ++q)
            if (at[static_cast<std::size_t>(q)] != at[static_cast<std::size_t>(w.rank())])
                t.messages += static_cast<long>(group.sent_to(q).messages),
                    t.bytes += static_cast<long>(group.sent_to(q).bytes);
        return t;
    };
    const crossing before = so_far();
    call();
    group.synchronize(w, nullptr);
    barrier(w); // no proxy is still at work
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
            const auto expect = [&](const char* verb, bytes staged, long bytes_between, auto&& call) {
                collx_test::at("%s of %ld ranks, %ld hosts", verb, ranks, domains);
                const bytes two = staged_by(w, r, [&] { call(c); }),
                            one = staged_by(other, r, [&] { call(one_level); });
                EXPECT_AT(two.out, two.out == staged.out && two.out < one.out);
                EXPECT_AT(two.in, two.in == staged.in && two.in <= one.in);
                const crossing now = crossing_by(w, r, at, [&] { call(c); }),
                               before = crossing_by(other, r, at, [&] { call(one_level); });
                collx_test::at("%s of %ld ranks, %ld hosts: %ld messages and %ld bytes between hosts, were %ld and %ld",
                               verb, ranks, domains, now.messages, now.bytes, before.messages, before.bytes);
                if (me == 0) std::printf("SCAN %s\n", collx_test::place_text);
                EXPECT(now.bytes == bytes_between && now.bytes <= before.bytes);
                EXPECT(now.messages <= before.messages);
            };
            // Each domain stages all of it, and sends what it has for the others' parts.
            for (const counts& t : tables(at.size())) {
                const auto all = std::accumulate(t.begin(), t.end(), std::size_t{0});
                memory whole(g, me, all + 1, 1), own(g, me, t[static_cast<std::size_t>(me)]);
                if (all != 0)
                    expect("reduce_scatter_v", {domains * S(all), S(all)}, (domains - 1) * S(all),
                           [&](auto k) { reduce_scatter_v(k, whole, own, t); });
            }
            // One rail's exclusive scan of short pieces sends one message along two domains, and three along three.
            const bytes crossing_once{(domains - 1) * S(n), (domains - 1) * S(n)};
            const long between = (domains == 2 ? 1 : 3) * S(n);
            if (are_intervals(at)) {
                expect("scan", crossing_once, between, [&](auto k) { scan(k, x, y); });
                expect("exclusive_scan", crossing_once, between, [&](auto k) { exclusive_scan(k, x, y); });
            } else {
                const bytes all = staged_by(w, r, [&] { scan(c, x, y); }),
                            but_one = staged_by(w, r, [&] { exclusive_scan(c, x, y); });
                EXPECT(all == bytes{ranks * S(n), ranks * S(n)} && but_one == bytes{ranks * S(n), (ranks - 1) * S(n)});
            }
        });
        CHECK(g.pieces() == 0);
    }
}
