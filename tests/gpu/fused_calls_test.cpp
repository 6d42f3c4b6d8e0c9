// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every collective on a fused team, for 1 to 8 ranks: different counts (also zero), unaligned views, several calls in
// one launch, and more elements than memory can hold. The kernels' code runs on host threads.
// collx-test: sanitize=thread,nightly
#include <collx/gpu/fused_team.hpp>

#include <atomic>
#include <cstdlib>
#include <vector>

#include <catch2/catch.hpp>

#include "support/patience.hpp"

#include <collx/algo/multicast.hpp>
#include <collx/algo/ring.hpp>
#include <collx/testing/twin.hpp>

using namespace collx;
using twin_team = fused_team<device::twin_machine>;

namespace {

device::exchange_shape shape_of(int ranks) {
    device::exchange_shape s;
    s.ranks = ranks;
    s.lanes = 2;
    s.slot_bytes = 256;
    s.flag_slot_bytes = 512;
    s.stage_bytes = 512;
    s.packet_bytes = 256;
    s.scratch_bytes = 1024;
    return s;
}

int element(int rank, std::size_t i) { return rank * 10'000 + static_cast<int>(i); }
constexpr int untouched = -7;
const device::fused_options calm{.timeout_ns =
                                     collx_test::patient(60'000'000'000)}; // on a busy machine, under a sanitizer

// One buffer of the given size per rank, each beginning `first` elements into its memory.
class ranks_memory {
public:
    ranks_memory(const std::vector<std::size_t>& sizes, std::size_t first) : first_(first) {
        for (const std::size_t n : sizes) {
            const int r = static_cast<int>(x_.size());
            x_.emplace_back(n + first + 1, untouched);
            for (std::size_t i = 0; i < n; ++i) x_.back()[first + i] = element(r, i);
        }
    }
    ranks_memory& clear() {
        for (auto& x : x_) x.assign(x.size(), untouched);
        return *this;
    }
    std::size_t size() const { return x_.size(); }
    contiguous_view<int> operator[](std::size_t r) { return {x_[r].data() + first_, x_[r].size() - first_ - 1}; }
    int at(int r, std::size_t i) const { return x_[static_cast<unsigned>(r)][first_ + i]; }
    // The number of changed elements next to the views.
    int edges_touched() const {
        int n = 0;
        for (const auto& x : x_) n += x.back() != untouched || (first_ != 0 && x.front() != untouched);
        return n;
    }

private:
    std::size_t first_;
    std::vector<std::vector<int>> x_;
};

struct counts {
    std::vector<std::size_t> each, at;
    std::size_t total = 0;
    counts(int ranks, unsigned seed) {
        constexpr std::size_t some[] = {0, 5, 1, 64, 0, 301, 7, 33};
        for (int r = 0; r < ranks; ++r) {
            each.push_back(some[(static_cast<unsigned>(r) + seed) % 8]);
            at.push_back(total);
            total += each.back();
        }
    }
};

std::vector<std::size_t> same(int ranks, std::size_t n) {
    return std::vector<std::size_t>(static_cast<unsigned>(ranks), n);
}

template <class F>
void for_all(F&& f) {
    for (int n = 1; n <= 8; ++n) {
        twin_team team(shape_of(n));
        for (const unsigned seed : {0u, 1u, 4u, 6u})
            for (const std::size_t first : {0u, 1u}) {
                INFO("ranks " << n << ", counts from " << seed << ", first " << first);
                f(team, n, counts(n, seed), first);
            }
    }
}

int sum_of(int ranks, std::size_t i) { return ranks * (ranks - 1) / 2 * 10'000 + ranks * static_cast<int>(i); }

} // namespace

TEST_CASE("parts of any size are gathered by all ranks or by one") {
    for_all([](twin_team& team, int n, const counts& c, std::size_t first) {
        const int root = n / 2;
        ranks_memory in(c.each, first), all(same(n, c.total), first);
        std::vector<std::size_t> only_root = same(n, 0);
        only_root[static_cast<unsigned>(root)] = c.total;
        ranks_memory one(only_root, first);
        team.all_gather_v(in, all.clear(), calm);
        team.gather_v(in, one.clear(), root, calm);
        team.synchronize();
        int wrong = all.edges_touched() + one.edges_touched();
        for (int k = 0; k < n; ++k)
            for (std::size_t i = 0; i < c.each[static_cast<unsigned>(k)]; ++i) {
                const std::size_t at = c.at[static_cast<unsigned>(k)] + i;
                wrong += one.at(root, at) != element(k, i);
                for (int r = 0; r < n; ++r) wrong += all.at(r, at) != element(k, i);
            }
        CHECK(wrong == 0);
    });
}

TEST_CASE("parts of any size are scattered, and reduced on the way") {
    for_all([](twin_team& team, int n, const counts& c, std::size_t first) {
        const int root = n - 1;
        ranks_memory in(same(n, c.total), first), out(c.each, first), sums(c.each, first);
        team.scatter_v(in, out.clear(), root, calm);
        team.reduce_scatter_v(in, sums.clear(), plus{}, calm);
        team.synchronize();
        int wrong = out.edges_touched() + sums.edges_touched();
        for (int r = 0; r < n; ++r)
            for (std::size_t i = 0; i < c.each[static_cast<unsigned>(r)]; ++i) {
                const std::size_t at = c.at[static_cast<unsigned>(r)] + i;
                wrong += out.at(r, i) != element(root, at);
                wrong += sums.at(r, i) != sum_of(n, at);
            }
        CHECK(wrong == 0);
    });
}

TEST_CASE("every pair of ranks exchanges as much as it likes; messages of a group go at once") {
    for_all([](twin_team& team, int n, const counts& c, std::size_t first) {
        const auto ranks = static_cast<std::size_t>(n);
        std::vector<std::vector<std::size_t>> amount(ranks, std::vector<std::size_t>(ranks));
        std::vector<std::size_t> sent = same(n, 0), received = sent;
        for (std::size_t r = 0; r < ranks; ++r)
            for (std::size_t d = 0; d < ranks; ++d) {
                amount[r][d] = c.each[(3 * r + d) % ranks];
                sent[r] += amount[r][d];
                received[d] += amount[r][d];
            }
        ranks_memory in(sent, first), out(received, first), ring_out(received, first);
        team.all_to_all_v(in, out.clear(), amount, calm);
        // Messages around a ring: each rank sends its first elements to the end of the next rank's output.
        std::vector<fused_message> messages;
        for (int r = 0; r < n; ++r) {
            const auto next = static_cast<std::size_t>((r + 1) % n), me = static_cast<std::size_t>(r);
            const std::size_t m = amount[me][next];
            messages.push_back({r, (r + 1) % n, m, 0, received[next] - m});
        }
        team.send_recv(in, ring_out.clear(), messages, calm);
        team.synchronize();
        int wrong = out.edges_touched() + ring_out.edges_touched();
        for (std::size_t d = 0; d < ranks; ++d) {
            std::size_t to = 0;
            for (std::size_t r = 0; r < ranks; ++r) {
                std::size_t from = 0;
                for (std::size_t k = 0; k < d; ++k) from += amount[r][k];
                for (std::size_t i = 0; i < amount[r][d]; ++i)
                    wrong += out.at(static_cast<int>(d), to++) != element(static_cast<int>(r), from + i);
            }
            const std::size_t before = (d + ranks - 1) % ranks, m = amount[before][d];
            for (std::size_t i = 0; i < received[d]; ++i) {
                const bool lands = i >= received[d] - m;
                const int want = lands ? element(static_cast<int>(before), i - (received[d] - m)) : untouched;
                wrong += ring_out.at(static_cast<int>(d), i) != want;
            }
        }
        CHECK(wrong == 0);
    });
}

TEST_CASE("the collectives of equal parts, scans among them, in place too") {
    for_all([](twin_team& team, int n, const counts& c, std::size_t first) {
        const std::size_t m = c.each[0], all = m * static_cast<unsigned>(n);
        const int root = n / 3;
        ranks_memory part(same(n, m), first), whole(same(n, all), first), gathered(same(n, all), first),
            scattered(same(n, m), first), up_to(same(n, m), first), before(same(n, m), first),
            inplace(same(n, m), first), copied(same(n, m), first), reduced(same(n, m), first);
        team.gather(part, gathered.clear(), root, calm);
        team.scatter(whole, scattered.clear(), root, calm);
        team.scan(part, up_to.clear(), plus{}, calm);
        team.exclusive_scan(part, before.clear(), plus{}, calm);
        team.scan(inplace, inplace, plus{}, calm);
        team.barrier(calm);
        team.broadcast(part, copied.clear(), root, calm);
        team.reduce(part, reduced.clear(), root, plus{}, calm);
        team.synchronize();
        int wrong = 0;
        for (int r = 0; r < n; ++r)
            for (std::size_t i = 0; i < m; ++i) {
                const auto at = [&](int k) { return static_cast<std::size_t>(k) * m + i; };
                wrong += gathered.at(root, at(r)) != element(r, i);
                wrong += scattered.at(r, i) != element(root, at(r));
                wrong += up_to.at(r, i) != sum_of(r + 1, i) || inplace.at(r, i) != sum_of(r + 1, i);
                wrong += before.at(r, i) != (r == 0 ? untouched : sum_of(r, i));
                wrong += copied.at(r, i) != element(root, i);
                wrong += reduced.at(r, i) != (r == root ? sum_of(n, i) : untouched);
            }
        CHECK(wrong == 0);
    });
}

TEST_CASE("several calls are one launch") {
    for (const bool separate : {false, true})
        for (const int n : {1, 2, 5}) {
            device::twin_machine machine(1, separate);
            twin_team team(shape_of(n), machine);
            ranks_memory a(same(n, 500), 0), b(same(n, 77), 1), c(same(n, 3), 0), sums(same(n, 500), 0),
                ups(same(n, 77), 1), parts(same(n, 3 * static_cast<unsigned>(n)), 0);
            for (int i = 0; i < 5; ++i) {
                sums.clear();
                ups.clear();
                parts.clear();
                team.group(calm, team.calls().scan(b, ups, plus{}, calm),
                           team.calls().all_reduce(a, sums, plus{}, calm), team.calls().all_gather(c, parts, calm),
                           team.calls().scan(b, ups, plus{}, calm), team.calls().barrier(calm));
                team.synchronize();
                int wrong = 0;
                for (int r = 0; r < n; ++r) {
                    for (std::size_t k = 0; k < 500; ++k) wrong += sums.at(r, k) != sum_of(n, k);
                    for (std::size_t k = 0; k < 77; ++k) wrong += ups.at(r, k) != sum_of(r + 1, k);
                    for (std::size_t k = 0; k < 3 * static_cast<unsigned>(n); ++k)
                        wrong += parts.at(r, k) != element(static_cast<int>(k / 3), k % 3);
                }
                CHECK(wrong == 0);
            }
        }
}

// The root of a broadcast puts ahead without waiting. It must not overwrite data of the previous call that other
// ranks still read.
TEST_CASE("calls of a group wait for neighbours that still read") {
    constexpr int n = 3;
    auto shape = shape_of(n);
    shape.stages = 2;
    twin_team team(shape);
    ranks_memory x(same(n, 500), 0), sums(same(n, 500), 0), copied(same(n, 500), 0);
    const auto whole = chunk_layout::blocks(500, 1);
    const device::even_cuts cuts(whole, whole);
    for (int i = 0; i < 20; ++i) {
        sums.clear();
        copied.clear();
        const auto c = team.calls();
        using device::simple_protocol;
        const auto first = c.make<simple_protocol, 1, void>(algo::one_shot_all_reduce{}, x, sums, plus{}, calm, cuts);
        const auto second =
            c.make<simple_protocol, 1, void>(algo::direct_broadcast{}, x, copied, device::move_only{}, calm, cuts);
        team.group(calm, first, second);
        team.synchronize();
        int wrong = 0;
        for (int r = 0; r < n; ++r)
            for (std::size_t k = 0; k < 500; ++k)
                wrong += sums.at(r, k) != sum_of(n, k) || copied.at(r, k) != element(0, k);
        CHECK(wrong == 0);
    }
}

// A reference for the switch: any order of the ranks, sums of 16-bit floats in float, stores that reach all ranks.
TEMPLATE_TEST_CASE("a switch reduces and multicasts", "", float, bf16) {
    for (const int n : {1, 2, 3, 8})
        for (const std::size_t size : {1u, 16u, 1003u})
            for (const std::size_t first : {0u, 1u}) {
                twin_team team(shape_of(n));
                const std::size_t all = size * static_cast<unsigned>(n);
                std::vector<std::vector<TestType>> x(static_cast<unsigned>(n)), sums, parts, gathered;
                for (int r = 0; r < n; ++r)
                    for (std::size_t i = 0; i < all + first; ++i)
                        x[static_cast<unsigned>(r)].push_back(
                            TestType(static_cast<float>(r + static_cast<int>(i % 5))));
                sums = parts = gathered = x;
                const auto views = [&](auto& y, std::size_t m) {
                    std::vector<contiguous_view<TestType>> v;
                    for (auto& b : y) v.emplace_back(b.data() + first, m);
                    return v;
                };
                const auto in = views(x, all), out = views(sums, all), scattered = views(parts, size);
                const auto own = views(x, size), everything = views(gathered, all);
                const auto whole = [&](int c) { return chunk_layout::even(all, c, 16); };
                const auto blocks = [&](int c) { return chunk_layout::blocks(size, c); };
                const auto packed = [&](int c) { return blocks(c).packed(); };
                using device::multicast_protocol;
                team.run<multicast_protocol>(algo::zero_copy_all_reduce{}, in, out, plus{}, calm, whole, whole);
                team.run<multicast_protocol>(algo::zero_copy_reduce_scatter{}, in, scattered, plus{}, calm, blocks,
                                             packed);
                team.run<multicast_protocol>(algo::multicast_all_gather{}, own, everything, device::move_only{}, calm,
                                             packed, blocks);
                team.synchronize();
                int wrong = 0;
                const auto want = [&](std::size_t i) {
                    return static_cast<float>(n * (n - 1) / 2 + n * static_cast<int>((i + first) % 5));
                };
                for (unsigned r = 0; r < static_cast<unsigned>(n); ++r)
                    for (std::size_t i = 0; i < all; ++i) {
                        wrong += out[r][i] != want(i);
                        wrong += everything[r][i] != x[i / size][first + i % size];
                        if (i < size) wrong += scattered[r][i] != want(r * size + i);
                    }
                INFO(n << " ranks, " << size << " elements from " << first);
                CHECK(wrong == 0);
            }
}

namespace {

constexpr std::uint32_t mixed(std::uint64_t i) { return static_cast<std::uint32_t>((i * 0x9e3779b97f4a7c15u) >> 40); }

struct numbers { // an input without memory
    using value_type = std::uint32_t;
    std::size_t count;
    static constexpr bool is_contiguous = false, is_output = false, is_window = false;
    std::size_t size() const { return count; }
    std::uint32_t operator[](std::size_t i) const { return mixed(i); }
};
// An output without memory: compares and counts the values written. One block after the other writes it.
struct sink {
    using value_type = std::uint32_t;
    std::size_t count;
    std::uint32_t times; // factor of the input's values
    std::atomic<std::size_t>*right, *wrong, *last;
    static constexpr bool is_contiguous = false, is_output = true, is_window = false;
    struct place {
        const sink* to;
        std::size_t at;
        const place& operator=(std::uint32_t x) const {
            ++(x == to->times * mixed(at) ? *to->right : *to->wrong);
            for (std::size_t seen = *to->last; at > seen && !to->last->compare_exchange_weak(seen, at);) {
            }
            return *this;
        }
        operator std::uint32_t() const { return 0; }
    };
    std::size_t size() const { return count; }
    place operator[](std::size_t i) const { return {this, i}; }
};

// Zeroed memory whose pages are allocated only when accessed.
struct lazy_machine : device::twin_machine {
    std::byte* allocate(int, std::size_t bytes) {
        auto* whole = static_cast<std::byte*>(std::calloc(1, bytes + 128)); // aligned to 16 bytes
        std::byte* p = whole + (128 - reinterpret_cast<std::uintptr_t>(whole) % 128);
        reinterpret_cast<std::byte**>(p)[-1] = whole;
        return p;
    }
    void free(int, std::byte* p) { std::free(reinterpret_cast<std::byte**>(p)[-1]); }
};

} // namespace

// 2^33 + 5 elements in 65536 lanes, of which only the first and the last run: the others have the same code.
TEST_CASE("counts beyond 2^32 are counted right") {
    constexpr std::size_t n = (std::size_t{1} << 33) + 5;
    constexpr int lanes = 65536;
    device::exchange_shape s;
    s.ranks = 2;
    s.lanes = lanes;
    s.slots = 2;
    s.slot_bytes = 128;
    s.flag_slot_bytes = 256;
    s.stage_bytes = 128;
    s.packet_bytes = 128;
    s.scratch_bytes = 128;
    std::atomic<std::size_t> right{0}, wrong{0}, last{0};
    const std::vector<numbers> in(2, numbers{n});
    const auto check = [&](std::uint32_t times, auto&& call) {
        right = 0;
        wrong = 0;
        last = 0;
        lazy_machine machine;
        machine.run_only({0, lanes - 1});
        fused_team<lazy_machine> team(s, machine);
        const std::vector<sink> out(2, sink{n, times, &right, &wrong, &last});
        call(team, out);
        team.synchronize();
        CHECK(wrong == 0);
        CHECK(right > 100'000);
        CHECK(last > (std::size_t{1} << 32));
    };
    check(2, [&](auto& team, auto& out) { team.all_reduce(in, out, plus{}, calm); });
    check(1, [&](auto& team, auto& out) { team.broadcast(in, out, 1, calm); });
    check(1, [&](auto& team, auto& out) {
        const std::vector<fused_message> far = {{0, 1, n - 5, 5, 5}};
        team.send_recv(in, out, far, calm);
    });
}

TEST_CASE("counts that do not fit their buffers are refused") {
    twin_team team(shape_of(2));
    ranks_memory a({3, 4}, 0), b({7, 7}, 0);
    CHECK_THROWS_WITH(team.all_gather(a, b), Catch::Contains("the input buffer has 4 elements, expected 3"));
    CHECK_THROWS_AS(team.all_gather_v(b, a), mismatch);
    CHECK_THROWS_AS(team.scatter_v(a, b, 0), mismatch);
    CHECK_THROWS_AS(team.gather_v(a, b, 2), invalid_argument);
    CHECK_THROWS_AS(team.all_to_all_v(a, b, std::vector<std::vector<int>>{{1, 2}}), invalid_argument);
    CHECK_THROWS_AS(team.all_to_all_v(a, b, std::vector<std::vector<int>>{{1, 2}, {2, 3}}), mismatch);
    CHECK_THROWS_AS(team.all_to_all_v(a, b, std::vector<std::vector<int>>{{-1, 5}, {5, -1}}), invalid_argument);
    const std::vector<fused_message> twice = {{0, 1, 1, 0, 0}, {0, 1, 2, 0, 1}}, outside = {{0, 1, 3, 1, 0}};
    CHECK_THROWS_WITH(team.send_recv(a, b, twice), Catch::Contains("two messages from rank 0 to rank 1"));
    CHECK_THROWS_AS(team.send_recv(a, b, outside), mismatch);
    const std::vector<fused_message> twice_of_none = {{0, 1, 0, 0, 0}, {0, 1, 2, 0, 1}}, far = {{0, 7, 1, 0, 0}};
    CHECK_THROWS_WITH(team.send_recv(a, b, twice_of_none), Catch::Contains("two messages from rank 0 to rank 1"));
    CHECK_THROWS_WITH(team.send_recv(a, b, far), Catch::Contains("a message from rank 0 to rank 7 of 2 ranks"));
    const std::size_t one[] = {1, 1}, at[] = {0, 1};
    const auto table = [&](int) { return chunk_layout::table(one, at, 2); };
    CHECK_THROWS_WITH(team.run<device::simple_protocol>(algo::ring_all_reduce{}, b, b, plus{}, {}, table, table),
                      Catch::Contains("cannot read the host's tables"));
}
