// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: sanitize=thread,nightly
//
// Exchanges along the edges of random graphs, compared with a serial loop over all edges, in every mode, between
// threads and between hosts. The graphs have edges from a rank to itself and several edges between two ranks. Also
// bad graphs and counts.
#include <random>

#include "support.hpp"

using namespace collx_test;
using collx::neighbors;

namespace {

struct edge {
    int from, to;
    std::size_t count;
};

// The same graph on all ranks.
std::vector<edge> random_graph(int n, unsigned seed, std::size_t equal_count) {
    std::mt19937 random(seed);
    std::vector<edge> all;
    const auto any_rank = [&] { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    for (unsigned i = random() % static_cast<unsigned>(3 * n + 1); i > 0; --i)
        all.push_back({any_rank(), any_rank(), equal_count != 0 ? equal_count : random() % 5 * (random() % 40)});
    return all;
}
int element(std::size_t edge_number, std::size_t i, int salt) {
    return static_cast<int>(edge_number * 10'000 + i) + salt * 1'000'000;
}

// The part of a graph that concerns one rank.
struct share {
    neighbors graph;
    std::vector<std::size_t> send_counts, recv_counts;
    std::vector<int> in, expected;
    // alike: a rank sends the same elements over all its edges, as in an all_gather.
    share(const std::vector<edge>& all, int me, int salt, bool alike) {
        for (std::size_t k = 0; k < all.size(); ++k) {
            const edge& e = all[k];
            const std::size_t number = alike ? static_cast<std::size_t>(e.from) : k;
            if (e.from == me) {
                graph.destinations.push_back(e.to);
                send_counts.push_back(e.count);
            }
            if (e.to == me) {
                graph.sources.push_back(e.from);
                recv_counts.push_back(e.count);
            }
            for (std::size_t i = 0; i < e.count; ++i) {
                if (e.from == me && !alike) in.push_back(element(number, i, salt));
                if (e.to == me) expected.push_back(element(number, i, salt));
            }
        }
    }
};

void try_all_verbs(collx::communicator& w, unsigned seed) {
    const int me = w.rank(), n = w.size();
    for (const std::size_t m : {1u, 700u}) {
        at("all_to_all, graph %u, %zu elements", seed, m);
        const auto edges = random_graph(n, seed, m);
        const share s(edges, me, 1, false);
        std::vector<int> out(s.expected.size(), -1);
        collx::neighbor_all_to_all(w, s.graph, s.in, out);
        EXPECT(out == s.expected);
        out.assign(out.size(), -1);
        collx::async::neighbor_all_to_all(w, s.graph, s.in, out).wait();
        EXPECT(out == s.expected);

        at("all_gather, graph %u, %zu elements", seed, m);
        const share g(edges, me, 2, true);
        std::vector<int> mine(m), all(g.expected.size());
        for (std::size_t i = 0; i < m; ++i) mine[i] = element(static_cast<std::size_t>(me), i, 2);
        collx::neighbor_all_gather(w, g.graph, mine, all);
        EXPECT(all == g.expected);
        all.assign(all.size(), -1);
        collx::try_::neighbor_all_gather_v(w, g.graph, mine, all, g.recv_counts).value();
        EXPECT(all == g.expected);
    }
    at("all_to_all_v, graph %u", seed);
    const auto edges = random_graph(n, seed, 0);
    share s(edges, me, 3, false);
    std::vector<int> out(s.expected.size(), -1), apart(2 * s.expected.size() + 1, -1);
    collx::neighbor_all_to_all_v(w, s.graph, s.in, s.send_counts, out, s.recv_counts);
    EXPECT(out == s.expected);
    // Every second element of a larger buffer, with the parts in reverse order.
    std::vector<std::size_t> offsets(s.recv_counts.size()), none;
    std::size_t end = 0;
    for (std::size_t k = offsets.size(); k-- > 0; end += s.recv_counts[k]) offsets[k] = end;
    const auto strided = collx::strided(apart.data(), s.expected.size(), 2);
    collx::neighbor_all_to_all_v(w, s.graph, s.in, s.send_counts, none, strided, s.recv_counts, offsets);
    for (std::size_t k = 0, at = 0; k < offsets.size(); at += s.recv_counts[k++])
        for (std::size_t i = 0; i < s.recv_counts[k]; ++i) EXPECT(strided[offsets[k] + i] == s.expected[at + i]);
    EXPECT(apart.back() == -1);

    at("persistent and group, graph %u", seed);
    auto again = collx::persistent::neighbor_all_to_all_v(w, s.graph, s.in, s.send_counts, out, s.recv_counts);
    for (int salt = 4; salt < 7; ++salt) {
        const share next(edges, me, salt, false);
        std::copy(next.in.begin(), next.in.end(), s.in.begin());
        if (salt == 5) {
            again.start();
            again.wait();
        } else again();
        EXPECT(out == next.expected);
        std::vector<int> grouped(out.size(), -1);
        collx::group g(w);
        g.neighbor_all_to_all_v(s.graph, s.in, s.send_counts, grouped, s.recv_counts);
        g.launch();
        EXPECT(grouped == next.expected);
    }
}

} // namespace

TEST_CASE("random graphs, between threads") {
    for (const int n : {1, 2, 3, 5})
        on_ranks(n, [n](collx::communicator& w) {
            for (unsigned seed = 1; seed <= 12; ++seed) try_all_verbs(w, seed + 100u * static_cast<unsigned>(n));
        });
}

TEST_CASE("random graphs, between hosts") {
    on_hosts(4, spread{2}, [](collx::communicator& w) {
        for (unsigned seed = 1; seed <= 4; ++seed) try_all_verbs(w, seed);
    });
}

TEST_CASE("a torus of two dimensions, its long edges larger than a slot, checked") {
    on_ranks(4, [](collx::communicator& w) { // 2 x 2: each neighbour appears twice
        w.set_checked(true);
        const int me = w.rank(), row = me / 2, column = me % 2;
        const int up = (1 - row) * 2 + column, left = row * 2 + 1 - column;
        // Parts sent to the left arrive from the right: the k-th edge to a rank is the k-th one there from this rank.
        const neighbors torus{{up, up, left, left}, {up, up, left, left}};
        const std::size_t m = 300'000;
        std::vector<int> in(4 * m), out(4 * m);
        for (std::size_t i = 0; i < in.size(); ++i) in[i] = me * 4 + static_cast<int>(i / m);
        collx::neighbor_all_to_all(w, torus, in, out);
        for (std::size_t k = 0; k < 4; ++k)
            EXPECT(out[k * m] == torus.sources[k] * 4 + static_cast<int>(k) && out[k * m + m - 1] == out[k * m]);
    });
}

TEST_CASE("graphs and sizes that are wrong, before anything is sent") {
    on_ranks(3, [](collx::communicator& w) {
        std::vector<int> x(6), y(6);
        const auto refused = [&](const char* text, auto&& f) {
            at("%s", text);
            const auto e = thrown<collx::invalid_argument>(w, f);
            EXPECT(says(e, text) && e.rank() == w.rank());
        };
        refused("source 1 of the graph is 3, and there are 3 ranks", [&] {
            collx::neighbor_all_gather(w, {{0, 3}, {0}}, collx::view(x.data(), 3), y);
        });
        refused("destination 0 of the graph is -1", [&] { collx::neighbor_all_to_all(w, {{0}, {-1}}, x, y); });
        refused("the output buffer has 6 elements and needs 12", [&] {
            collx::neighbor_all_gather(w, {{0, 1}, {0}}, x, y);
        });
        refused("6 elements do not divide among 4 destinations", [&] {
            collx::neighbor_all_to_all(w, {{0}, {0, 0, 1, 1}}, x, y);
        });
        refused("the output buffer has 6 elements and needs 4", [&] {
            collx::neighbor_all_to_all(w, {{0, 1}, {0, 1, 2}}, x, y);
        });
        refused("send counts: 1 numbers for 2 neighbours", [&] {
            collx::neighbor_all_to_all_v(w, {{0}, {0, 1}}, x, std::array{1}, y, std::array{1});
        });
        refused("receive count of neighbour 1 is negative", [&] {
            collx::neighbor_all_gather_v(w, {{0, 1}, {0}}, x, y, std::array{1, -2});
        });
        refused("receive parts overlap", [&] {
            collx::neighbor_all_gather_v(w, {{0, 1}, {0}}, x, y, std::array{3, 3}, std::array{0, 2});
        });
        refused("overlap", [&] { collx::neighbor_all_to_all(w, {{0}, {0}}, x, x); });
        refused("null", [&] {
            collx::neighbor_all_to_all(w, {{0}, {0}}, collx::view(static_cast<int*>(nullptr), 6), y);
        });
        int one = 1; // no rank has started
        collx::all_reduce(w, collx::value(one));
        EXPECT(one == 3);
    });
}

TEST_CASE("checked: a persistent call beside a blocking one is a mismatch on all ranks, which go on") {
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(true);
        const int other = 1 - w.rank();
        std::vector<int> x(2), y(2);
        const collx::neighbors both{{other}, {other}};
        const auto edges = thrown<collx::mismatch>(w, [&] {
            if (w.rank() == 0) (void)collx::persistent::neighbor_all_to_all(w, both, x, y);
            else collx::neighbor_all_to_all(w, both, x, y);
        });
        EXPECT(says(edges, "collective is persistent neighbor_all_to_all on rank 0 and neighbor_all_to_all on rank 1"));
        const auto groups = thrown<collx::mismatch>(w, [&] {
            if (w.rank() == 0) (void)collx::persistent::group(w).all_reduce(x).launch();
            else collx::group(w).all_reduce(x).launch();
        });
        EXPECT(says(groups, "collective is persistent group on rank 0 and group on rank 1"));
        collx::barrier(w);
    });
}

TEST_CASE("checked: an edge that one end alone has, or with another count, is named on all ranks, which go on") {
    for (const bool count_differs : {false, true})
        on_ranks(3, [&](collx::communicator& w) {
            w.set_checked(true);
            std::vector<int> x(2), y(4);
            // Rank 0 sends an edge to rank 1; rank 1 expects two edges or two elements.
            const auto e = thrown<collx::error>(w, [&] {
                if (w.rank() == 0)
                    collx::neighbor_all_to_all_v(w, {{}, {1}}, x, std::array{1}, y, std::array<int, 0>{});
                else if (w.rank() == 1 && count_differs)
                    collx::neighbor_all_to_all_v(w, {{0}, {}}, x, std::array<int, 0>{}, y, std::array{2});
                else if (w.rank() == 1)
                    collx::neighbor_all_to_all_v(w, {{0, 0}, {}}, x, std::array<int, 0>{}, y, std::array{1, 1});
                else collx::neighbor_all_to_all_v(w, {}, x, std::array<int, 0>{}, y, std::array<int, 0>{});
            });
            EXPECT(e.code() == collx::errc::mismatch && e.peer() == (w.rank() == 0 ? 1 : 0));
            EXPECT(says(e, count_differs
                               ? "edge from rank 0 to rank 1: 1 elements are sent, the receive counts of rank 1 say 2"
                               : "edge from rank 0 to rank 1: rank 0 has it 1 times among its destinations, "
                                 "rank 1 2 times among its sources"));
            collx::barrier(w); // nothing has been sent
        });
}

TEST_CASE("a handle that is dropped takes its messages with it") {
    on_ranks(2, [](collx::communicator& w) {
        w.set_checked(false);
        std::vector<int> x(4), y(4);
        if (w.rank() == 0) {
            (void)collx::async::neighbor_all_to_all(w, {{1}, {1}}, x, y);
        }
        EXPECT(thrown<collx::error>(w, [&] { collx::barrier(w); }).code() == collx::errc::aborted);
    });
}

TEST_CASE("parts whose sizes no number holds are refused") {
    on_ranks(1, [](collx::communicator& w) {
        const std::int8_t one = 1;
        const auto endless = collx::view(&one, SIZE_MAX / 4 + 1); // never read
        std::vector<std::int8_t> y;
        const auto e = thrown<collx::invalid_argument>(w, [&] {
            collx::neighbor_all_gather(w, {{0, 0, 0, 0}, {0}}, endless, y);
        });
        EXPECT(says(e, "the output buffer has 0 elements and needs"));
    });
}
