// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Maps ranks to nodes: every rank belongs to one node. Nodes may have any number of ranks, and the ranks of a node need
// not be consecutive. Algorithms made of an inner and an outer one read the map, wherever it comes from (hosts,
// sockets, racks). Independent of algorithms and machines.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <collx/core/config.hpp>
#include <collx/core/error.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// Some ranks of a map, numbered 0, 1, … among themselves.
struct team;

// A small value with which algorithms refer to a map. Nodes are numbered in the order of their first ranks. The local
// index of a rank is its place among the ranks of its node, in rank order or in a given one. Ranks of one local index
// are a rail. A default view puts all ranks on one node.
class node_view {
public:
    constexpr node_view() = default;

    // The view for n ranks: this one, or a single node if this one refers to no map.
    COLLX_HD constexpr node_view over(int n) const {
        if (table_ != nullptr) return *this;
        node_view one;
        one.ranks_ = one.smallest_ = one.largest_ = n;
        one.nodes_ = 1;
        return one;
    }
    constexpr bool fits(int n) const { return table_ == nullptr || (ranks_ == n && is_map_); }

    COLLX_HD constexpr int ranks() const { return ranks_; }
    COLLX_HD constexpr int nodes() const { return nodes_; }
    COLLX_HD constexpr int smallest() const { return smallest_; } // ranks of the node that has fewest
    COLLX_HD constexpr int largest() const { return largest_; }
    COLLX_HD constexpr bool is_even() const { return smallest_ == largest_; }
    COLLX_HD constexpr bool in_rank_order() const { return in_rank_order_; } // every node is an interval of ranks

    COLLX_HD constexpr int node_of(int rank) const { return table_ == nullptr ? 0 : table_[rank]; }
    COLLX_HD constexpr int local_of(int rank) const { return table_ == nullptr ? rank : table_[ranks_ + rank]; }
    COLLX_HD constexpr int first(int node) const { return table_ == nullptr ? 0 : table_[4 * ranks_ + node]; }
    COLLX_HD constexpr int size(int node) const { return table_ == nullptr ? ranks_ : first(node + 1) - first(node); }
    COLLX_HD constexpr int rank_of(int node, int local) const {
        return table_ == nullptr ? local : table_[2 * ranks_ + first(node) + local];
    }
    // All ranks, node after node; first(node) is where a node begins in the list.
    COLLX_HD constexpr const int* by_node() const { return table_ == nullptr ? nullptr : table_ + 2 * ranks_; }
    // All ranks, rail after rail; rail i begins at i * nodes(). Requires: even nodes.
    COLLX_HD constexpr const int* by_rail() const { return table_ == nullptr ? nullptr : table_ + 3 * ranks_; }

    COLLX_HD constexpr team members(int node) const;
    // One rank of each node: the one with this local index, modulo the node's size.
    COLLX_HD constexpr team column(int local) const;

    constexpr std::uint64_t hash() const { return hash_; } // of the map's content: equal on all ranks

private:
    friend class node_map;
    const int* table_ = nullptr; // node, local index, ranks by node, ranks by rail; then where nodes begin
    int ranks_ = 0, nodes_ = 0, smallest_ = 0, largest_ = 0;
    bool in_rank_order_ = true, is_map_ = true; // is_map_: else it fits no communicator
    std::uint64_t hash_ = 0;
};

// The ranks on which an inner algorithm runs.
struct team {
    const int* list = nullptr; // these ranks; null: as the map says
    node_view all{};
    int node = 0; // -1: a column
    int local = 0;
    COLLX_HD constexpr int rank(int i) const {
        if (list != nullptr) return list[i];
        return node >= 0 ? all.rank_of(node, i) : all.rank_of(i, local % all.size(i));
    }
};

COLLX_HD constexpr team node_view::members(int node) const { return {nullptr, *this, node, 0}; }
COLLX_HD constexpr team node_view::column(int local) const { return {nullptr, *this, -1, local}; }

// A map of ranks to nodes. It must live as long as algorithm values that refer to it are bound or recorded.
//   const collx::node_map nodes({0, 0, 1, 1, 1});      // rank r is on node nodes[r]; any numbers will do
class node_map {
public:
    constexpr node_map(const int* node_of, int ranks) { build(node_of, ranks); }
    constexpr node_map(std::initializer_list<int> node_of) { build(node_of.begin(), static_cast<int>(node_of.size())); }
    constexpr explicit node_map(const detail::growing_array<int>& node_of) {
        build(node_of.data(), static_cast<int>(node_of.size()));
    }
    // order: all ranks, each once. The ranks of a node get their local indices in this order. A map with another list
    // fits no communicator.
    constexpr node_map(const detail::growing_array<int>& node_of, const detail::growing_array<int>& order) {
        const auto n = static_cast<int>(node_of.size());
        view_.is_map_ = order.size() == node_of.size() && names_each_once(order.data(), n);
        build(node_of.data(), n, view_.is_map_ ? order.data() : nullptr);
    }
    // Consecutive ranks share a node; the last node may have fewer. Errors: invalid_argument.
    static constexpr node_map blocks(int ranks, int per_node) {
        if (per_node < 1)
            fail(errc::invalid_argument, -1, -1, "a node has at least one rank", "nodes of %d ranks", per_node);
        detail::growing_array<int> v;
        for (int r = 0; r < ranks; ++r) v.push_back(r / per_node);
        return node_map(v);
    }
    // Rank r is on node r % nodes. Errors: invalid_argument.
    static constexpr node_map cyclic(int ranks, int nodes) {
        if (nodes < 1) fail(errc::invalid_argument, -1, -1, "there is at least one node", "%d nodes", nodes);
        detail::growing_array<int> v;
        for (int r = 0; r < ranks; ++r) v.push_back(r % nodes);
        return node_map(v);
    }

    constexpr node_view view() const {
        node_view v = view_;
        v.table_ = table_.data();
        return v;
    }
    // The view refers to this map, so a temporary map cannot be converted.
    constexpr operator node_view() const& { return view(); }
    operator node_view() const&& = delete;

private:
    static constexpr unsigned sized(int i) { return static_cast<unsigned>(i); }

    static constexpr bool names_each_once(const int* order, int n) {
        detail::growing_array<bool> seen(sized(n), false);
        for (int i = 0; i < n; ++i) {
            if (order[i] < 0 || order[i] >= n || seen[sized(order[i])]) return false;
            seen[sized(order[i])] = true;
        }
        return true;
    }
    [[gnu::cold]] constexpr void build(const int* label, int n, const int* order = nullptr) {
        detail::growing_array<int> seen, begin; // labels in the order of their first ranks
        detail::growing_array<int>& t = table_;
        t.resize(sized(4 * n));
        for (int r = 0; r < n; ++r) {
            unsigned k = 0;
            while (k < seen.size() && seen[k] != label[r]) ++k;
            if (k == seen.size()) {
                seen.push_back(label[r]);
                begin.push_back(0);
            }
            t[sized(r)] = static_cast<int>(k);
        }
        for (int i = 0; i < n; ++i) {
            const int r = order != nullptr ? order[i] : i;
            t[sized(n + r)] = begin[sized(t[sized(r)])]++; // begin: so far the sizes
        }
        view_.ranks_ = n;
        view_.nodes_ = static_cast<int>(seen.size());
        view_.smallest_ = n;
        int next = 0;
        for (int& b : begin) {
            view_.smallest_ = b < view_.smallest_ ? b : view_.smallest_;
            view_.largest_ = b > view_.largest_ ? b : view_.largest_;
            next += b;
            b = next - b;
        }
        for (int b : begin) t.push_back(b);
        t.push_back(n);
        view_.hash_ = 0xcbf2'9ce4'8422'2325;
        for (int r = 0; r < n; ++r) {
            const int node = t[sized(r)], local = t[sized(n + r)];
            t[sized(2 * n + begin[sized(node)] + local)] = r;
            if (view_.is_even()) t[sized(3 * n + local * view_.nodes_ + node)] = r;
            view_.hash_ = (view_.hash_ ^ sized(node) ^ std::uint64_t{sized(local)} << 32) * 0x0000'0100'0000'01b3;
        }
        for (int i = 0; i < n; ++i) view_.in_rank_order_ = view_.in_rank_order_ && t[sized(2 * n + i)] == i;
    }

    detail::growing_array<int> table_;
    node_view view_;
};

COLLX_END_NAMESPACE
