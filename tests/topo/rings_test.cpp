// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-test: optimised
//
// Sets of rings: known answers for known machines, comparison with trying all sets on small graphs, validity on
// random graphs, and the text of explain().
#include <collx/topo/clusters.hpp>
#include <collx/topo/explain_rings.hpp>
#include <collx/topo/machines.hpp>
#include <collx/topo/trees.hpp>

#include <algorithm>
#include <numeric>
#include <random>

#include <catch2/catch.hpp>

using namespace collx;
using namespace collx::topo;
using Catch::Contains;
using list = std::vector<int>;

namespace {

// The GPUs with these numbers.
list gpus(const graph& g, const list& numbers) {
    const list all = g.all(site_type::gpu);
    list some;
    for (const int n : numbers) some.push_back(all[static_cast<std::size_t>(n)]);
    return some;
}
list upto(int n) {
    list all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    return all;
}

// The first defect of a set of rings, as text; empty if there is none.
std::string wrong(const graph& g, const ring_set& set, const list& members) {
    for (const ring& r : set.rings) {
        if (!std::is_permutation(r.members.begin(), r.members.end(), members.begin(), members.end())) return "members";
        if (r.hops.size() != members.size()) return "hops";
        for (std::size_t k = 0; k < r.hops.size(); ++k) {
            int here = r.members[k];
            for (const int i : r.hops[k].arcs) {
                if (g.arc_at(i).from != here) return "a hop with a hole at " + g.name(here);
                here = g.arc_at(i).to;
            }
            if (here != r.members[(k + 1) % members.size()]) return "a hop that ends at " + g.name(here);
        }
    }
    const auto loads = link_loads(g, set);
    for (int i = 0; i < g.arcs(); ++i)
        if (loads[static_cast<std::size_t>(i)] > g.arc_at(i).bytes_per_s * (1 + 1e-6))
            return "too much on " + detail::link_name(g, g.arc_at(i));
    if (set.total() > set.bound * (1 + 1e-6)) return "more than the bound";
    return "";
}

ring_set without_relays(const graph& g, const list& members, double lane) {
    ring_options o;
    o.speeds = {lane};
    o.limits = {path_class::nvl, path_class::sys, 0};
    return find_rings(g, members, o);
}
ring_set at_speeds(const graph& g, const list& members, const list& gb_per_s) {
    ring_options o;
    for (const int s : gb_per_s) o.speeds.push_back(s * 1e9);
    return find_rings(g, members, o);
}
const list volta{40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
const list hopper{60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};

// The greatest number of disjoint rings, found by trying all sets of all orders over single links of whole lanes.
int best_by_trying(const list& members, std::vector<std::vector<int>> lanes) {
    std::vector<list> orders;
    list order = members;
    do orders.push_back(order);
    while (std::next_permutation(order.begin() + 1, order.end()));
    const auto n = members.size();
    const auto pack = [&](const auto& self, std::size_t first) -> int {
        int best = 0;
        for (std::size_t k = first; k < orders.size(); ++k) {
            const auto each = [&](int by) {
                bool fits = true;
                for (std::size_t i = 0; i < n; ++i) {
                    int& left =
                        lanes[static_cast<std::size_t>(orders[k][i])][static_cast<std::size_t>(orders[k][(i + 1) % n])];
                    fits = fits && left >= 1;
                    left += by;
                }
                return fits;
            };
            if (each(-1)) best = std::max(best, 1 + self(self, k));
            each(+1);
        }
        return best;
    };
    return pack(pack, 0);
}

} // namespace

TEST_CASE("all eight of a DGX-1V have six rings, which are all their links") {
    const graph g = dgx_1v();
    const list all = gpus(g, upto(8));
    const ring_set set = find_rings(g, all);
    CHECK(wrong(g, set, all) == "");
    CHECK(set.total() == Approx(150e9));
    CHECK(set.class_bound == Approx(150e9));
    CHECK(set.bound == Approx(150e9 + 6e9)); // includes the link between CPUs, which none of these rings uses
    CHECK_THAT(explain(g, set), Contains("class NVL at most 150 GB/s; worse classes would add less than a quarter"));
    ring_options nvlink_only;
    nvlink_only.limits.intra = path_class::nvl;
    CHECK_THAT(explain(g, find_rings(g, all, nvlink_only)),
               Contains("; the limits exclude links that would raise this"));
    const ring_set counted = at_speeds(dgx_1v(rate_basis::nccl), all, volta);
    CHECK(counted.total() == Approx(120e9));
    CHECK(counted.limits.intra == path_class::nvl);
}

TEST_CASE("subsets of a DGX-1V have the numbers of rings that trying all sets gives") {
    const graph g = dgx_1v();
    const auto rings = [&](const list& numbers) {
        const ring_set set = without_relays(g, gpus(g, numbers), 25e9);
        CHECK(wrong(g, set, gpus(g, numbers)) == "");
        return static_cast<int>(std::lround(set.total() / 25e9));
    };
    int with_rings = 0, fives = 0, sixes = 0, triangles = 0;
    for (unsigned bits = 0; bits < 256; ++bits) {
        list numbers;
        for (int p = 0; p < 8; ++p)
            if ((bits >> p & 1) != 0) numbers.push_back(p);
        if (numbers.size() < 3 || numbers.size() == 8) continue;
        const int n = rings(numbers);
        CAPTURE(numbers);
        const auto is = [&](list other) { return numbers == other; };
        if (numbers.size() == 3) {
            CHECK(n == (numbers[2] < 4 || numbers[0] > 3 ? 2 : 0));
            triangles += n > 0;
        }
        if (numbers.size() == 4) {
            const int want = is({0, 1, 2, 3}) || is({4, 5, 6, 7}) ? 4
                             : is({0, 1, 4, 5}) || is({0, 3, 4, 7}) || is({1, 2, 5, 6}) || is({2, 3, 6, 7}) ||
                                     is({0, 2, 4, 6}) || is({1, 3, 5, 7})
                                 ? 2
                                 : 0;
            CHECK(n == want);
            with_rings += n > 0;
        }
        if (numbers.size() == 5) {
            CHECK((n == 0 || n == 2));
            fives += n == 2;
        }
        if (numbers.size() == 6) {
            const bool is_four =
                is({0, 1, 2, 4, 5, 6}) || is({0, 1, 3, 4, 5, 7}) || is({0, 2, 3, 4, 6, 7}) || is({1, 2, 3, 5, 6, 7});
            CHECK(n == (is_four ? 4 : 2));
            sixes += is_four;
        }
        if (numbers.size() == 7) CHECK(n == 4);
    }
    CHECK(triangles == 8);
    CHECK(with_rings == 8);
    CHECK(fives == 24);
    CHECK(sixes == 4);
    CHECK(rings({0, 3}) == 2);
    CHECK(rings({0, 1}) == 1);
    CHECK(rings({0, 5}) == 0);
}

TEST_CASE("a DGX-1P has four rings") {
    const graph g = dgx_1p();
    CHECK(without_relays(g, gpus(g, upto(8)), 20e9).total() == Approx(4 * 20e9));
    CHECK(without_relays(g, gpus(g, upto(7)), 20e9).total() == Approx(2 * 20e9));
    CHECK(without_relays(g, gpus(g, {0, 1, 2, 3}), 20e9).total() == Approx(2 * 20e9));
    // Whole links of a quad make two rings, split links six.
    const ring_set halves = find_rings(g, gpus(g, {0, 1, 2, 3}), {{path_class::nvl, path_class::sys, 0}, {}});
    CHECK(wrong(g, halves, gpus(g, {0, 1, 2, 3})) == "");
    CHECK(halves.total() == Approx(6 * 10e9));
}

TEST_CASE("0, 2, 4 and 6 of a DGX-1V reach what all eight have, through their neighbours") {
    const graph g = dgx_1v();
    const list even = gpus(g, {0, 2, 4, 6});
    CHECK(without_relays(g, even, 25e9).total() == Approx(50e9));
    const ring_set set = find_rings(g, even);
    CHECK(wrong(g, set, even) == "");
    CHECK(set.total() >= 150e9);
    CHECK_THAT(explain(g, set), Contains("(GPU"));
}

TEST_CASE("machines with switches reach what NCCL's search finds at its speeds") {
    const graph a = dgx_a100(rate_basis::nccl), h = dgx_h100(rate_basis::nccl), b = hgx_b200(rate_basis::nccl);
    const ring_set ampere = at_speeds(a, gpus(a, upto(8)), volta), hundred = at_speeds(h, gpus(h, upto(8)), hopper),
                   black = at_speeds(b, gpus(b, upto(8)), {90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18});
    CHECK((ampere.rings.size() == 6 && ampere.bytes_per_s == 40e9));
    CHECK((hundred.rings.size() == 6 && hundred.bytes_per_s == 60e9));
    CHECK((black.rings.size() == 8 && black.bytes_per_s == 90e9));
    CHECK(wrong(h, hundred, gpus(h, upto(8))) == "");
    const graph rack = gb200_nvl72();
    const ring_set all = find_rings(rack, gpus(rack, upto(72)));
    CHECK(wrong(rack, all, gpus(rack, upto(72))) == "");
    CHECK(all.total() >= 900e9);
}

TEST_CASE("two DGX-1V on rails: each ring stays on its card's rail") {
    const graph g = on_rails(dgx_1v(), 2, 12.5);
    const list all = g.all(site_type::gpu);
    const ring_set set = find_rings(g, all);
    CHECK(wrong(g, set, all) == "");
    REQUIRE(set.rings.size() == 4);
    CHECK(set.total() == Approx(50e9));
    CHECK(set.bound == Approx(50e9));
    for (std::size_t k = 0; k < 4; ++k) {
        const std::string text = to_text(g, set.rings[k]);
        for (int c = 0; c < 4; ++c) {
            const bool is_on = text.find("NIC" + std::to_string(c)) != std::string::npos;
            CHECK(is_on == (static_cast<std::size_t>(c) == k));
        }
    }
    // Ranks that are not next to a card use the neighbour that is.
    const list even = gpus(g, {0, 2, 4, 6, 8, 10, 12, 14});
    const ring_set through = find_rings(g, even);
    CHECK(wrong(g, through, even) == "");
    CHECK(through.total() == Approx(50e9));
    CHECK(through.limits.inter == path_class::pxn);
    CHECK_THAT(to_text(g, through.rings[0]), Contains("(h0.GPU") && Contains("(h0.NIC0) -> (h1.NIC0)"));
}

TEST_CASE("hosts with eight cards: a rail for each ring, on two hosts and on 32") {
    const graph h = on_rails(dgx_h100(rate_basis::nccl), 2, 50);
    const ring_set counted = at_speeds(h, h.all(site_type::gpu), {48, 45, 42, 40, 30, 24, 22, 20});
    CHECK((counted.rings.size() == 8 && counted.bytes_per_s == 45e9)); // 8 rings of 48 are more than NVLink has
    const graph a = on_rails(dgx_a100(rate_basis::nccl), 2, 25);
    CHECK(at_speeds(a, a.all(site_type::gpu), {48, 30, 28, 24, 20}).total() == Approx(192e9));
    const graph big = on_rails(dgx_h100(), 32, 50);
    const list all = big.all(site_type::gpu);
    const ring_set set = find_rings(big, all);
    CHECK(wrong(big, set, all) == "");
    CHECK(set.total() == Approx(400e9));
    CHECK(set.bound == Approx(400e9));
    for (std::size_t k = 0; k < set.rings.size(); ++k)
        for (const path& hop : set.rings[k].hops)
            for (const int i : hop.arcs)
                if (const site& s = big.at(big.arc_at(i).to); s.type == site_type::network_switch)
                    CHECK(s.name == "rail" + std::to_string(k));
}

TEST_CASE("clusters of CPUs, and workstations") {
    for (const graph& g : {fat_tree(4, 4, 2), fat_tree(4, 4, 2, 12.5, 2), dragonfly(5, 2, 2), torus({4, 4})}) {
        const list all = g.all(site_type::cpu);
        const ring_set set = find_rings(g, all);
        CHECK(wrong(g, set, all) == "");
        CHECK(set.total() == Approx(12.5e9));
    }
    const graph w = workstation(4, 2);
    const ring_set set = find_rings(w, w.all(site_type::gpu));
    CHECK(wrong(w, set, w.all(site_type::gpu)) == "");
    CHECK(set.total() == Approx(10e9));
    CHECK_THAT(explain(w, set), Contains("bottleneck") && Contains("CPU0 -> CPU1 (socket link)") &&
                                    Contains("twice the rate on CPU0 -> CPU1"));
}

TEST_CASE("as many rings as trying all sets finds, on small graphs") {
    std::mt19937 random(11);
    int with_rings = 0;
    for (int round = 0; round < 150; ++round) {
        const int n = 3 + round % 3;
        graph g;
        for (int s = 0; s < n; ++s) g.add({std::to_string(s), site_type::gpu});
        std::vector<std::vector<int>> lanes(static_cast<std::size_t>(n), std::vector<int>(static_cast<std::size_t>(n)));
        for (int a = 0; a < n; ++a)
            for (int b = a + 1; b < n; ++b)
                if (random() % 4 != 0) {
                    const int there = 1 + static_cast<int>(random() % 2), back = 1 + static_cast<int>(random() % 2);
                    g.link(a, b, link_type::nvlink, {static_cast<double>(there), 1, 1, static_cast<double>(back)});
                    lanes[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] = there;
                    lanes[static_cast<std::size_t>(b)][static_cast<std::size_t>(a)] = back;
                }
        ring_options o;
        o.speeds = {1};
        o.limits = {path_class::nvl, path_class::sys, 0};
        o.budget = 1 << 20;
        const list members = upto(n);
        const ring_set set = find_rings(g, members, o);
        CAPTURE(round);
        REQUIRE(wrong(g, set, members) == "");
        REQUIRE(set.is_complete);
        REQUIRE(static_cast<int>(set.rings.size()) == best_by_trying(members, lanes));
        with_rings += !set.rings.empty();
    }
    CHECK(with_rings > 60);
}

TEST_CASE("rings of random machines are valid, below the bound, and not below the ring in order; twice the same") {
    std::mt19937 random(5);
    int with_rings = 0;
    for (int round = 0; round < 60; ++round) {
        graph g;
        const auto rate = [&] { return static_cast<double>(1 + random() % 6) * 1e9; };
        const int n = 8 + static_cast<int>(random() % 6);
        for (int s = 0; s < n; ++s)
            g.add({std::to_string(s), s < 5 ? site_type::gpu : static_cast<site_type>(random() % 6),
                   static_cast<int>(random() % 2)});
        for (int k = 0; k < 5 * n; ++k) {
            const int a = static_cast<int>(random() % static_cast<unsigned>(n)),
                      b = static_cast<int>(random() % static_cast<unsigned>(n));
            if (a != b) g.link(a, b, static_cast<link_type>(random() % 5), {rate(), 10, 1, rate()});
        }
        const list members = upto(5);
        ring_options o;
        o.budget = 1 << 10;
        const ring_set set = find_rings(g, members, o);
        CAPTURE(round);
        REQUIRE(wrong(g, set, members) == "");
        REQUIRE(set.total() >= detail::rank_order_ring(g, members).total() * (1 - 1e-9));
        const ring_set again = find_rings(g, members, o);
        REQUIRE(explain(g, set) == explain(g, again));
        with_rings += !set.rings.empty();
    }
    CHECK(with_rings > 20);
}

TEST_CASE("members that cannot be are refused with the place and the remedy") {
    const graph g = dgx_1v();
    const list all = gpus(g, upto(8));
    CHECK_THROWS_WITH(find_rings(g, {all[0]}), Contains("1 members") && Contains("at least two"));
    CHECK_THROWS_WITH(find_rings(g, {all[0], all[1], all[0]}), Contains("'GPU0'") && Contains("twice"));
    CHECK_THROWS_WITH(find_rings(g, {all[0], g.require("PCI0")}), Contains("can hold no rank"));
    CHECK_THROWS_AS(find_rings(g, {all[0], -1}), invalid_argument);
    ring_options o;
    o.speeds = {0};
    CHECK_THROWS_AS(find_rings(g, all, o), invalid_argument);
    o.speeds = {1}; // more of these rings would fit than an int counts
    CHECK(find_rings(g, all, o).rings.size() == 32);
    graph apart;
    apart.add({"a"});
    apart.add({"b"});
    CHECK(find_rings(apart, {0, 1}).rings.empty());
    CHECK_THAT(explain(apart, find_rings(apart, {0, 1})), Contains("no ring"));
}

TEST_CASE("two complementary binary trees: all below one root, two children at most, inside one of them only, but for "
          "one place of an odd number") {
    CHECK(binary_tree(8) == list{-1, 2, 4, 2, 0, 6, 4, 6});
    for (int n = 1; n <= 70; ++n) {
        std::vector<int> inside(static_cast<std::size_t>(n));
        for (const list& parents : {binary_tree(n), complementary_tree(n)}) {
            std::vector<int> children(static_cast<std::size_t>(n));
            for (int r = 0; r < n; ++r) {
                if (parents[static_cast<std::size_t>(r)] >= 0)
                    ++children[static_cast<std::size_t>(parents[static_cast<std::size_t>(r)])];
                int steps = 0;
                for (int up = r; up >= 0; up = parents[static_cast<std::size_t>(up)]) REQUIRE(++steps <= 9);
            }
            CHECK(std::count(parents.begin(), parents.end(), -1) == 1);
            for (int r = 0; r < n; ++r) {
                CHECK(children[static_cast<std::size_t>(r)] <= 2);
                inside[static_cast<std::size_t>(r)] += children[static_cast<std::size_t>(r)] > 0;
            }
        }
        CHECK(std::count(inside.begin(), inside.end(), 2) == (n > 2 ? n % 2 : 0)); // as docs/topology.md says
    }
}

// The trees along the rings of some members: each has all of them below one root, and each way begins and ends where it
// should, without a gap.
tree_set checked_trees(const graph& g, const list& members, const ring_set& rings, bool is_double) {
    tree_set set = find_trees(g, rings, is_double);
    CHECK(set.trees.size() == rings.rings.size() * (is_double ? 2 : 1));
    CHECK(set.total() <= set.bound * (1 + 1e-6));
    const auto loads = link_loads(g, set);
    for (int i = 0; i < g.arcs(); ++i)
        REQUIRE(loads[static_cast<std::size_t>(i)] <= g.arc_at(i).bytes_per_s * (1 + 1e-6));
    for (const tree& t : set.trees) {
        CHECK(std::is_permutation(t.members.begin(), t.members.end(), members.begin(), members.end()));
        CHECK(std::count(t.parents.begin(), t.parents.end(), -1) == 1);
        const auto leads = [&](const path& p, int from, int to) {
            for (const int i : p.arcs) {
                if (g.arc_at(i).from != from) return false;
                from = g.arc_at(i).to;
            }
            return from == to;
        };
        for (std::size_t k = 0; k < t.members.size(); ++k) {
            std::size_t steps = 0;
            for (int up = static_cast<int>(k); up >= 0 && steps <= t.members.size(); ++steps)
                up = t.parents[static_cast<std::size_t>(up)];
            REQUIRE(steps <= t.members.size()); // the root is above it
            if (t.parents[k] < 0) continue;
            const int above = t.members[static_cast<std::size_t>(t.parents[k])];
            REQUIRE(leads(t.ups[k], t.members[k], above));
            REQUIRE(leads(t.downs[k], above, t.members[k]));
        }
    }
    return set;
}

TEST_CASE("trees along rings reach all members and load no link beyond its rate") {
    for (const graph& g :
         {dgx_1v(), dgx_h100(), on_rails(dgx_1v(), 2, 12.5), on_rails(dgx_h100(), 5, 50), fat_tree(4, 2, 2)})
        for (const bool is_double : {false, true}) {
            const list members = g.all(site_type::gpu).empty() ? g.all(site_type::cpu) : g.all(site_type::gpu);
            (void)checked_trees(g, members, find_rings(g, members), is_double);
        }
    const graph two = on_rails(dgx_1v(), 2, 12.5);
    CHECK(find_trees(two, find_rings(two, two.all(site_type::gpu))).total() == Approx(50e9)); // equals the bound
    CHECK(find_trees(two, ring_set{}).trees.empty());
}

TEST_CASE("trees of some members: over other rails than the ring's, and along a ring that comes back to a host") {
    std::mt19937 random(11);
    int in_rank_order = 0;
    for (const graph& g : {on_rails(dgx_1p(), 3, 44), on_rails(dgx_1v(), 2, 12.5), fat_tree(4, 2, 2)})
        for (int round = 0; round < 12; ++round) {
            list members = g.all(site_type::gpu).empty() ? g.all(site_type::cpu) : g.all(site_type::gpu);
            if (round % 2 != 0) std::shuffle(members.begin(), members.end(), random);
            for (std::size_t k = members.size(); k-- > 0;)
                if (members.size() > 2 && random() % 3 == 0)
                    members.erase(members.begin() + static_cast<std::ptrdiff_t>(k));
            CAPTURE(round);
            const ring_set found = find_rings(g, members);
            ring_set in_order = detail::rank_order_ring(g, members);
            in_order.bound = found.bound;
            in_rank_order += in_order.is_rank_order;
            (void)checked_trees(g, members, found, round % 3 == 0);
            (void)checked_trees(g, members, in_order, round % 3 == 0);
        }
    CHECK(in_rank_order > 0);
    graph g; // hosts of two NUMA nodes on one network switch, without a card: round robin over hosts
    const int a0 = g.add({"h0.CPU0", site_type::cpu, 0}), a1 = g.add({"h0.CPU1", site_type::cpu, 0});
    const int b0 = g.add({"h1.CPU0", site_type::cpu, 1}), top = g.add({"switch", site_type::network_switch, -1});
    g.link(a0, a1, link_type::socket, {20e9, 100});
    g.link(a0, top, link_type::network, {10e9, 1000});
    g.link(b0, top, link_type::network, {10e9, 1000});
    const list members{a0, b0, a1};
    CHECK(checked_trees(g, members, find_rings(g, members), true).bytes_per_s == Approx(5e9));
}
