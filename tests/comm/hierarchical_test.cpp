// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: timeout=300 sanitize=nightly
//
// Hierarchical and aggregated algorithms on threads, with nodes given by made-up maps, compared with serial results.
#include <collx/algo/aggregated.hpp>
#include <collx/algo/hierarchical.hpp>
#include <collx/algo/in_order.hpp>
#include <collx/algo/leader.hpp>

#include <memory>
#include <span>

#include "support.hpp"

using namespace collx_test;
using namespace collx::algo;
using collx::node_map;

namespace {

// Maps: even, round-robin, uneven, interleaved, with single ranks, one node, single ranks only.
const std::vector<std::vector<int>> all_maps = {{0},
                                                {0, 1},
                                                {0, 0, 1},
                                                {0, 0, 1, 1},
                                                {0, 1, 0, 1},
                                                {0, 0, 0, 1, 1},
                                                {2, 0, 1, 0, 2},
                                                {0, 0, 0, 0},
                                                {0, 1, 2, 3},
                                                {0, 0, 0, 1, 1, 1},
                                                {0, 1, 0, 2, 2, 1, 0},
                                                {0, 0, 0, 0, 1, 1, 1, 1},
                                                {0, 1, 2, 3, 3, 2, 1, 0},
                                                {0, 0, 0, 0, 0, 1, 1, 2}};

template <class F>
void on_maps(F&& f) {
    for (const auto& node : all_maps)
        on_ranks(static_cast<int>(node.size()), [&](collx::communicator& w) {
            const node_map m(node); // each rank has its own map object
            std::string where;
            for (int k : node) where += static_cast<char>('0' + k);
            f(w, m, where.c_str());
        });
}

template <class Algorithm>
Algorithm placed(const node_map& m) {
    Algorithm a{};
    a.nodes = m;
    return a;
}

// All collectives on ints with two suites.
template <class Inner, class Outer>
void check_suites(collx::communicator& w, const node_map& m, const char* where, std::size_t size, std::size_t piece) {
    const int n = w.size(), me = w.rank();
    const auto u = static_cast<std::size_t>(n);
    const auto with = [&](auto a) { return w.with(a, collx::piece{piece}); };
    at("%s/%s on %s size=%zu piece=%zu", Inner::name, Outer::name, where, size, piece);
    const auto mine = samples(me, size), whole = samples(me, size * u);
    std::vector<int> sum(size, -1), all(size * u, -1), part(size, -1);
    auto x = mine;
    collx::all_reduce(with(placed<hierarchical_all_reduce<Inner, Outer>>(m)), mine, sum);
    collx::all_reduce(with(placed<hierarchical_all_reduce<Inner, Outer>>(m)), x);
    EXPECT(x == sum);
    for (std::size_t i = 0; i < size; ++i) EXPECT_AT(i, sum[i] == folded(i, 0, n));
    collx::all_gather(with(placed<hierarchical_all_gather<Inner, Outer>>(m)), mine, all);
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_AT(i, all[i] == sample(static_cast<int>(i / size), i % size));
    collx::reduce_scatter(with(placed<hierarchical_reduce_scatter<Inner, Outer>>(m)), whole, part);
    for (std::size_t i = 0; i < size; ++i)
        EXPECT_AT(i, part[i] == folded(static_cast<std::size_t>(me) * size + i, 0, n));
    for (int root = 0; root<n; root += n> 5 ? 3 : 1) {
        auto told = mine;
        collx::broadcast(with(placed<hierarchical_broadcast<Inner, Outer>>(m)), told, {.root = root});
        EXPECT(told == samples(root, size));
        std::vector<int> got(size, -1);
        collx::reduce(with(placed<hierarchical_reduce<Inner, Outer>>(m)), mine, got, collx::plus{}, {.root = root});
        if (me == root) EXPECT(got == sum);
        else EXPECT(got == std::vector<int>(size, -1));
    }
    collx::barrier(w.with(placed<hierarchical_barrier<Inner, Outer>>(m)));
}

// all_reduce of one type, compared with a left fold on one thread.
template <class T, class Make, class Op>
void check_type(collx::communicator& w, const node_map& m, const char* name, Make make, Op op) {
    for (const std::size_t size : {1u, 7u, 601u}) {
        at("%s size=%zu", name, size);
        std::vector<T> x(size), out(size), expected(size);
        for (std::size_t i = 0; i < size; ++i) {
            x[i] = make(w.rank(), i);
            expected[i] = make(0, i);
            for (int r = 1; r < w.size(); ++r) expected[i] = static_cast<T>(op(expected[i], make(r, i)));
        }
        collx::all_reduce(w.with(placed<hierarchical_all_reduce<>>(m)), x, out, collx::commutative(op));
        EXPECT(out == expected);
    }
}
template <class T>
void check_number(collx::communicator& w, const node_map& m) {
    check_type<T>(
        w, m, __PRETTY_FUNCTION__, [](int r, std::size_t i) { return static_cast<T>(sample(r, i) % 4); },
        [](T a, T b) { return static_cast<T>(a + b); });
}

struct three_bytes {
    unsigned char r, g, b;
    bool operator==(const three_bytes&) const = default;
};
struct big {
    long a[97];
    bool operator==(const big&) const = default;
};

int meant(int from, int to, std::size_t i) { return from * 1000 + to * 100 + static_cast<int>(i % 97); }

} // namespace

TEST_CASE("hierarchical collectives compute what serial ones do, on all maps") {
    on_maps([](collx::communicator& w, const node_map& m, const char* where) {
        for (const std::size_t size : {0u, 1u, 17u, 1000u, 20'011u}) {
            check_suites<rings, rings>(w, m, where, size, 0);
            check_suites<trees, trees>(w, m, where, size, 0);
        }
    });
}

TEST_CASE("hierarchical collectives cut chunks into pieces of any size") {
    on_maps([](collx::communicator& w, const node_map& m, const char* where) {
        if (m.view().ranks() < 4) return EXPECT(true);
        for (const std::size_t piece : {4u, 60u, 256u, 1u << 30})
            for (const std::size_t size : {1u, 33u, 217u}) {
                check_suites<rings, rings>(w, m, where, size, piece);
                check_suites<trees, trees>(w, m, where, size, piece);
            }
    });
}

// Parts between all pairs.
template <class Algorithm>
void check_exchange() {
    on_maps([](collx::communicator& w, const node_map& m, const char* where) {
        const auto n = static_cast<std::size_t>(w.size());
        for (const std::size_t piece : {0u, 60u, 4096u})
            for (const std::size_t size : {0u, 1u, 16u, 517u, 9001u}) {
                at("%s on %s size=%zu piece=%zu", Algorithm::name, where, size, piece);
                std::vector<int> in(n * size), out(in.size(), -1);
                for (std::size_t i = 0; i < in.size(); ++i)
                    in[i] = meant(w.rank(), static_cast<int>(i / size), i % size);
                const auto before = in;
                collx::all_to_all(w.with(placed<Algorithm>(m), collx::piece{piece}), in, out);
                for (std::size_t i = 0; i < out.size(); ++i)
                    EXPECT_AT(i, out[i] == meant(static_cast<int>(i / size), w.rank(), i % size));
                EXPECT(in == before);
            }
    });
}
TEST_CASE("all_to_all: what nodes have for single ranks in one message") { check_exchange<aggregated_all_to_all>(); }
TEST_CASE("all_to_all: what nodes have for nodes in one message") { check_exchange<leader_all_to_all>(); }

TEST_CASE("all_gather and barrier through leaders, also in place and with counts that differ") {
    on_maps([](collx::communicator& w, const node_map& m, const char* where) {
        const int n = w.size(), me = w.rank();
        for (const std::size_t piece : {0u, 60u, 4096u})
            for (const std::size_t size : {0u, 1u, 16u, 517u, 9001u}) {
                at("on %s size=%zu piece=%zu", where, size, piece);
                const auto bound = w.with(placed<leader_all_gather>(m), collx::piece{piece});
                const auto mine = samples(me, size);
                std::vector<int> all(size * static_cast<std::size_t>(n), -1), same = all;
                collx::all_gather(bound, mine, all);
                for (std::size_t i = 0; i < all.size(); ++i)
                    EXPECT_AT(i, all[i] == sample(static_cast<int>(i / size), i % size));
                const std::span own(same.data() + static_cast<std::size_t>(me) * size, size);
                std::copy(mine.begin(), mine.end(), own.begin());
                collx::all_gather(bound, own, same);
                EXPECT(same == all);
                collx::barrier(w.with(placed<leader_barrier>(m)));
            }
        std::vector<std::size_t> counts;
        std::vector<int> expected;
        for (int r = 0; r < n; ++r) {
            counts.push_back(static_cast<std::size_t>(r * 37 % 5 * 11));
            const auto part = samples(r, counts.back());
            expected.insert(expected.end(), part.begin(), part.end());
        }
        std::vector<int> all(expected.size(), -1);
        collx::all_gather_v(w.with(placed<leader_all_gather>(m)), samples(me, counts[static_cast<std::size_t>(me)]),
                            all, counts);
        EXPECT(all == expected);
    });
}

TEST_CASE("counts that differ between ranks: gathering and scattering chunks of any size") {
    on_maps([](collx::communicator& w, const node_map& m, const char* where) {
        at("on %s", where);
        const int n = w.size(), me = w.rank();
        std::vector<std::size_t> counts;
        std::size_t total = 0, begin = 0;
        for (int r = 0; r < n; ++r) {
            if (r == me) begin = total;
            counts.push_back(static_cast<std::size_t>(r * 37 % 5 * 11));
            total += counts.back();
        }
        const auto mine = samples(me, counts[static_cast<std::size_t>(me)]);
        std::vector<int> all(total, -1), part(mine.size(), -1);
        collx::all_gather_v(w.with(placed<hierarchical_all_gather<>>(m)), mine, all, counts);
        std::size_t i = 0;
        for (int r = 0; r < n; ++r)
            for (std::size_t k = 0; k < counts[static_cast<std::size_t>(r)]; ++k, ++i)
                EXPECT_AT(i, all[i] == sample(r, k));
        collx::reduce_scatter_v(w.with(placed<hierarchical_reduce_scatter<>>(m)), samples(me, total), part, counts);
        for (std::size_t k = 0; k < part.size(); ++k) EXPECT_AT(k, part[k] == folded(begin + k, 0, n));
        EXPECT(begin + part.size() <= total);
    });
}

TEST_CASE("elements of all kinds") {
    for (const auto& node : {std::vector<int>{0, 1, 0, 1}, std::vector<int>{0, 0, 0, 1, 1}})
        on_ranks(static_cast<int>(node.size()), [&](collx::communicator& w) {
            const node_map m(node);
            check_number<float>(w, m);
            check_type<three_bytes>(
                w, m, "three bytes",
                [](int r, std::size_t i) {
                    return three_bytes{static_cast<unsigned char>(r), static_cast<unsigned char>(i), 1};
                },
                [](three_bytes a, three_bytes b) {
                    return three_bytes{static_cast<unsigned char>(a.r + b.r), static_cast<unsigned char>(a.g ^ b.g),
                                       static_cast<unsigned char>(a.b + b.b)};
                });
            check_type<big>(
                w, m, "776 bytes",
                [](int r, std::size_t i) {
                    return big{{r, static_cast<long>(i)}};
                },
                [](big a, const big& b) {
                    for (int k = 0; k < 97; ++k) a.a[k] += b.a[k] + 1;
                    return a;
                });
        });
}

TEST_CASE("16-bit floats sum in float and travel as such; averages divide once") {
    on_maps([](collx::communicator& w, const node_map& m, const char* where) {
        at("on %s", where);
        const int n = w.size();
        const auto a = placed<hierarchical_all_reduce<>>(m);
        std::vector<float> f(1000, static_cast<float>(w.rank() + 1));
        std::vector<collx::f16> h(1000, collx::f16(static_cast<float>(w.rank() + 1)));
        collx::all_reduce(w.with(a, collx::wire<collx::bf16>{}), f);
        collx::all_reduce(w.with(a), h);
        const auto sum = static_cast<float>(n * (n + 1) / 2);
        EXPECT(f == std::vector<float>(1000, sum) && float(h[0]) == sum && float(h[999]) == sum);
        std::vector<double> x(777), part(100), whole(100 * static_cast<std::size_t>(n));
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = n * (w.rank() + static_cast<double>(i));
        for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = n * (w.rank() + static_cast<double>(i));
        auto y = x;
        collx::all_reduce(w.with(a), x, collx::average{});
        for (std::size_t i = 0; i < x.size(); ++i) EXPECT_AT(i, x[i] == n * (n - 1) / 2 + n * static_cast<double>(i));
        collx::reduce(w.with(placed<hierarchical_reduce<>>(m)), y, collx::average{}, {.root = n - 1});
        if (w.rank() == n - 1) EXPECT(y == x);
        collx::reduce_scatter(w.with(placed<hierarchical_reduce_scatter<>>(m)), whole, part, collx::average{});
        for (std::size_t i = 0; i < part.size(); ++i)
            EXPECT_AT(i, part[i] ==
                             n * (n - 1) / 2 + n * static_cast<double>(static_cast<std::size_t>(w.rank()) * 100 + i));
    });
}

TEST_CASE("operators that do not commute: right where nodes are intervals, refused where they are not") {
    struct affine {
        unsigned a, b;
        bool operator==(const affine&) const = default;
    };
    const auto then = [](affine f, affine g) { return affine{f.a * g.a % 10007u, (f.b * g.a + g.b) % 10007u}; };
    on_maps([&](collx::communicator& w, const node_map& m, const char* where) {
        at("on %s", where);
        const auto make = [](int r, std::size_t i) {
            return affine{2 + 3u * static_cast<unsigned>(r), static_cast<unsigned>(r * 17 + static_cast<int>(i))};
        };
        std::vector<affine> x(700), expected(700);
        for (std::size_t i = 0; i < x.size(); ++i) {
            x[i] = make(w.rank(), i);
            expected[i] = make(0, i);
            for (int r = 1; r < w.size(); ++r) expected[i] = then(expected[i], make(r, i));
        }
        const auto bound = w.with(placed<hierarchical_all_reduce<rank_ordered>>(m));
        if (m.view().in_rank_order()) {
            collx::all_reduce(bound, x, then);
            EXPECT(x == expected);
        } else {
            const auto e = thrown<collx::error>(w, [&] { collx::all_reduce(bound, x, then); });
            EXPECT(e.code() == collx::errc::invalid_argument && says(e, "changes the order of operands"));
        }
    });
}

TEST_CASE("a map of other ranks is refused before anything moves") {
    on_ranks(3, [](collx::communicator& w) {
        const node_map m{0, 0, 1, 1};
        std::vector<int> x(10, 1), y(30);
        const auto e =
            thrown<collx::error>(w, [&] { collx::all_reduce(w.with(placed<hierarchical_all_reduce<>>(m)), x); });
        EXPECT(e.code() == collx::errc::invalid_argument && says(e, "hierarchical") && says(e, "node map"));
        const auto f = thrown<collx::error>(
            w, [&] { collx::all_to_all(w.with(placed<aggregated_all_to_all>(m)), y, std::vector<int>(30)); });
        EXPECT(f.code() == collx::errc::invalid_argument && says(f, "aggregated"));
        const collx::rank_order twice{0, 1, 1};
        const auto g = thrown<collx::error>(w, [&] { collx::all_reduce(w.with(in_order<ring_all_reduce>{twice}), x); });
        EXPECT(g.code() == collx::errc::invalid_argument && says(g, "rank order"));
        collx::all_reduce(w, x); // the communicator can still be used
        EXPECT(x[9] == 3);
    });
}

TEST_CASE("schedules belong to the content of a map, not to its address") {
    on_ranks(4, [](collx::communicator& w) {
        w.set_checked(true); // the ranks agree although each has its own map object
        for (int round = 0; round < 6; ++round) {
            at("round %d", round);
            const std::vector<int> node = round % 2 == 0 ? std::vector<int>{0, 0, 1, 1} : std::vector<int>{0, 1, 1, 0};
            const auto m = std::make_unique<node_map>(node); // dies before its cached schedule
            std::vector<int> all(400);
            collx::all_gather(w.with(placed<hierarchical_all_gather<>>(*m)), samples(w.rank(), 100), all);
            for (std::size_t i = 0; i < all.size(); ++i)
                EXPECT_AT(i, all[i] == sample(static_cast<int>(i / 100), i % 100));
        }
    });
    on_ranks(4, [](collx::communicator& w) {
        at("ranks disagree");
        w.set_checked(true);
        const node_map m(w.rank() == 2 ? std::vector<int>{0, 0, 1, 1} : std::vector<int>{0, 1, 1, 0});
        std::vector<int> x(10, 1);
        const auto e =
            thrown<collx::error>(w, [&] { collx::all_reduce(w.with(placed<hierarchical_all_reduce<>>(m)), x); });
        EXPECT(e.code() == collx::errc::mismatch);
    });
}

TEST_CASE("algorithms run in another order of the ranks") {
    on_ranks(5, [](collx::communicator& w) {
        at("in order");
        const collx::rank_order order{3, 0, 4, 1, 2};
        auto x = samples(w.rank(), 1000);
        std::vector<int> all(500), part(100);
        collx::all_reduce(w.with(in_order<ring_all_reduce>{order}), x);
        collx::all_gather(w.with(in_order<ring_all_gather>{order}), samples(w.rank(), 100), all);
        collx::reduce_scatter(w.with(in_order<ring_reduce_scatter>{order}), samples(w.rank(), 500), part);
        EXPECT(x[999] == folded(999, 0, 5));
        for (std::size_t i = 0; i < all.size(); ++i) EXPECT_AT(i, all[i] == sample(static_cast<int>(i / 100), i % 100));
        for (std::size_t i = 0; i < part.size(); ++i)
            EXPECT_AT(i, part[i] == folded(static_cast<std::size_t>(w.rank()) * 100 + i, 0, 5));
    });
}

TEST_CASE("many hierarchical calls under way at once") {
    on_ranks(5, [](collx::communicator& w) {
        const node_map m{0, 1, 0, 1, 1};
        std::vector<std::vector<int>> x;
        for (int k = 0; k < 6; ++k) x.push_back(samples(w.rank() + k, 3000));
        std::vector<collx::work<void>> works;
        for (auto& v : x) works.push_back(collx::async::all_reduce(w.with(placed<hierarchical_all_reduce<>>(m)), v));
        for (auto& work : works) work.wait();
        for (int k = 0; k < 6; ++k) EXPECT(x[static_cast<std::size_t>(k)][2999] == folded(2999, k, k + 5));
    });
}
