// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trees through some ranks' sites, as NCCL makes them: within an island a chain along a ring, between islands binary
// trees over the chains' heads, two of them that complement each other (Sanders, Speck, Traeff 2009). Data go up and
// down each tree at the same time, as in an all-reduce in pieces. Trees are made of the rings that were found, without
// a search of their own.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <collx/topo/rings.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

// members[i] has the parent members[parents[i]], the root -1; ups[i] leads there, downs[i] back.
struct tree {
    std::vector<int> members, parents;
    std::vector<path> ups, downs;
};
// Trees that run at the same time, and their rates.
struct tree_set {
    std::vector<tree> trees;
    double bytes_per_s = 0; // of each tree, upward and downward at once
    double bound = 0;       // bytes/s that no set exceeds: a tree crosses each cut once in each direction
    double total() const { return bytes_per_s * static_cast<double>(trees.size()); }
};

// Parents of n places. Place 0 is the root; below it is a balanced binary tree whose leaves are the odd places.
inline std::vector<int> binary_tree(int n) {
    std::vector<int> parents(static_cast<std::size_t>(std::max(n, 0)), -1);
    for (int r = 1; r < n; ++r) {
        const int bit = r & -r, up = (r ^ bit) | (bit << 1);
        parents[static_cast<std::size_t>(r)] = up >= n ? r ^ bit : up;
    }
    return parents;
}
// Its complement: mirrored where n is even, shifted by one where n is odd, so that at most one place is inside both.
inline std::vector<int> complementary_tree(int n) {
    const std::vector<int> one = binary_tree(n);
    std::vector<int> parents(one.size(), -1);
    const auto there = [&](int r) { return n % 2 == 0 ? n - 1 - r : (r + 1) % n; };
    for (int r = 0; r < n; ++r)
        if (const int up = one[static_cast<std::size_t>(r)]; up >= 0)
            parents[static_cast<std::size_t>(there(r))] = there(up);
    return parents;
}

namespace detail {

class tree_maker {
public:
    explicit tree_maker(const graph& g) : g_(g), island_(island_numbers(g)) {}

    // A tree along a ring, with the binary tree `shape` over the ring's islands.
    tree along(const ring& r, std::vector<int> (*shape)(int), bool is_backwards) {
        const std::vector<chain> chains = chains_of(r);
        if (chains.size() == 1 && is_backwards) return chain_backwards(r);
        tree t;
        std::vector<std::size_t> heads; // where each chain begins among the tree's members
        for (const chain& places : chains) {
            heads.push_back(t.members.size());
            for (std::size_t k = 0; k < places.size(); ++k) {
                const bool is_head = k == 0;
                t.members.push_back(r.members[places[k]]);
                t.parents.push_back(is_head ? -1 : static_cast<int>(t.members.size()) - 2);
                t.downs.push_back(is_head ? path{} : hop(r, places[k - 1], places[k]));
                t.ups.push_back(is_head ? path{} : reversed(t.downs.back()));
            }
        }
        const std::vector<int> parents = shape(static_cast<int>(chains.size()));
        for (std::size_t i = 0; i < heads.size(); ++i) {
            if (parents[i] < 0) continue;
            const auto up = static_cast<std::size_t>(parents[i]);
            t.parents[heads[i]] = static_cast<int>(heads[up]);
            t.ups[heads[i]] = between(r, chains[i][0], chains[up][0]);
            t.downs[heads[i]] = between(r, chains[up][0], chains[i][0]);
        }
        return t;
    }

private:
    using chain = std::vector<std::size_t>; // places in the ring of the members of one island
    // In the order of their first members. A ring in rank order may come back to an island.
    std::vector<chain> chains_of(const ring& r) const {
        std::vector<chain> chains;
        std::map<int, std::size_t> place;
        for (std::size_t k = 0; k < r.members.size(); ++k) {
            const int island = island_[static_cast<std::size_t>(r.members[k])];
            const auto [at, is_new] = place.try_emplace(island, chains.size());
            if (is_new) chains.emplace_back();
            chains[at->second].push_back(k);
        }
        return chains;
    }
    path hop(const ring& r, std::size_t from, std::size_t to) const {
        return to == from + 1 ? r.hops[from] : find_path(g_, r.members[from], r.members[to]);
    }
    path reversed(path p) const {
        std::reverse(p.arcs.begin(), p.arcs.end());
        for (int& i : p.arcs) i = g_.arc_at(i).back;
        return measured(g_, std::move(p));
    }
    tree chain_backwards(const ring& r) const {
        tree t;
        const std::size_t n = r.members.size();
        for (std::size_t k = 0; k < n; ++k) {
            t.members.push_back(r.members[n - 1 - k]);
            t.parents.push_back(static_cast<int>(k) - 1);
            t.ups.push_back(k == 0 ? path{} : r.hops[n - 1 - k]);
            t.downs.push_back(k == 0 ? path{} : reversed(r.hops[n - 1 - k]));
        }
        return t;
    }
    // How a ring enters the island of the member at a place: its card, and the way from there. -1: not by the network.
    std::pair<int, path> entry(const ring& r, std::size_t place) const {
        const path& in = r.hops[(place + r.members.size() - 1) % r.members.size()];
        std::size_t k = in.arcs.size();
        while (k > 0 && g_.arc_at(in.arcs[k - 1]).type != link_type::network) --k;
        if (k == 0) return {-1, {}};
        return {g_.arc_at(in.arcs[k - 1]).to, {{in.arcs.begin() + static_cast<std::ptrdiff_t>(k), in.arcs.end()}}};
    }
    // The path from head to head: between the cards by which the ring enters their islands, else the best one.
    path between(const ring& r, std::size_t from, std::size_t to) const {
        const auto [card_out, into_from] = entry(r, from);
        const auto [card_in, into_to] = entry(r, to);
        path wire;
        if (card_out >= 0 && card_in >= 0) {
            std::vector<double> all(static_cast<std::size_t>(g_.arcs()), std::numeric_limits<double>::infinity());
            wire = network_way(g_, card_out, card_in, 1, all);
        }
        if (wire.arcs.empty()) return find_path(g_, r.members[from], r.members[to]);
        path p = reversed(into_from);
        p.arcs.insert(p.arcs.end(), wire.arcs.begin(), wire.arcs.end());
        p.arcs.insert(p.arcs.end(), into_to.arcs.begin(), into_to.arcs.end());
        return measured(g_, std::move(p));
    }

    const graph& g_;
    const std::vector<int> island_;
};

} // namespace detail

// The load of each arc in bytes/s: upward and downward traffic of all trees together.
inline std::vector<double> link_loads(const graph& g, const tree_set& set) {
    std::vector<double> loads(static_cast<std::size_t>(g.arcs()), 0);
    for (const tree& t : set.trees)
        for (const auto* ways : {&t.ups, &t.downs})
            for (const path& p : *ways)
                for (const int i : p.arcs) loads[static_cast<std::size_t>(i)] += set.bytes_per_s;
    return loads;
}

// Makes one tree along each ring, or two that complement each other; within a single island chains, the second one
// backwards. All have the rate that the most loaded link allows. No trees where there are no rings.
inline tree_set find_trees(const graph& g, const ring_set& rings, bool is_double = true) {
    tree_set set;
    set.bound = rings.bound;
    detail::tree_maker maker(g);
    for (const ring& r : rings.rings) {
        set.trees.push_back(maker.along(r, binary_tree, false));
        if (is_double) set.trees.push_back(maker.along(r, complementary_tree, true));
    }
    if (set.trees.empty()) return set;
    set.bytes_per_s = 1;
    double rate = std::numeric_limits<double>::infinity();
    const std::vector<double> times = link_loads(g, set);
    for (int i = 0; i < g.arcs(); ++i)
        if (const double n = times[static_cast<std::size_t>(i)]; n > 0)
            rate = std::min(rate, g.arc_at(i).bytes_per_s / n);
    set.bytes_per_s = rate;
    return set;
}

} // namespace topo
COLLX_END_NAMESPACE
