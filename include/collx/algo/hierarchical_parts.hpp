// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the hierarchical algorithms share: queries about the algorithms they are made of, and the base with the node
// map. No algorithm here.
#pragma once

#include <concepts>
#include <cstdint>

#include <collx/sched/schedule.hpp>
#include <collx/sched/sub_executor.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Queries about the algorithms that a hierarchical one is made of.
struct parts {
    template <class... Algorithms>
    static constexpr int min_depth() {
        int most = 0;
        ((most = sched::min_depth_v<Algorithms> > most ? sched::min_depth_v<Algorithms> : most), ...);
        return most;
    }
    template <class... Algorithms>
    static constexpr bool need_commutative() {
        return ((sched::reorders_v<Algorithms> || requires { Algorithms{}.needs_commutative_for(1); }) || ...);
    }
    // Whether none has scratch. Data that are only passed on need none, and hierarchical algorithms declare none.
    template <class... Algorithms>
    static constexpr bool keep_nothing = !(sched::has_scratch_v<Algorithms> || ...);
    COLLX_HD static constexpr int common_multiple(int a, int b) {
        int x = a, y = b;
        while (y != 0) {
            const int rest = x % y;
            x = y;
            y = rest;
        }
        return x == 0 ? 1 : a / x * b;
    }
    // A multiple of `chunks` that the algorithms of all nodes can divide.
    template <class... Algorithms>
    COLLX_HD static constexpr int chunks_inside(const node_view& at, int chunks) {
        for (int k = 0; k < at.nodes(); ++k) ((chunks = common_multiple(chunks, Algorithms{}.chunks(at.size(k)))), ...);
        return chunks;
    }
    // The messages of all n ranks between nodes.
    template <class Algorithm>
    static constexpr int messages_across(const Algorithm& a, int n) {
        sched::tally count;
        for (int r = 0; a.nodes.over(n).nodes() > 1 && r < n; ++r) a.across(count, a.nodes.over(n), r, n);
        return count.messages;
    }
};

// The base of the hierarchical algorithms: a value that holds the node map.
struct hierarchical_base {
    static constexpr const char* name = "hierarchical";
    node_view nodes{}; // of as many ranks as the communicator has; default: one node
    constexpr hierarchical_base() = default;
    template <std::convertible_to<node_view> Map>
    constexpr hierarchical_base(Map&& map) : nodes(static_cast<Map&&>(map)) {}

    constexpr bool fits(int n) const { return nodes.fits(n); }
    constexpr std::uint64_t parameter_bits() const { return nodes.hash(); }

    // Whether one of the two algorithms has nothing to do.
    COLLX_HD static constexpr bool is_flat(const node_view& at) { return at.nodes() == 1 || at.largest() == 1; }
    template <class In, class Out>
    COLLX_HD static constexpr int flat_chunks(const node_view& at, const In& inner, const Out& outer, int n) {
        return at.nodes() == 1 ? inner.chunks(n) : outer.chunks(n);
    }
    template <class In, class Out>
    static constexpr int flat_tmp_chunks(const node_view& at, const In& inner, const Out& outer, int n) {
        return at.nodes() == 1 ? sched::tmp_chunks_of(inner, n) : sched::tmp_chunks_of(outer, n);
    }
    COLLX_EXEC_CHECK_DISABLE
    template <class Ex, class In, class Out>
    COLLX_HD static constexpr void run_flat(Ex& ex, const node_view& at, const In& inner, const Out& outer, int r,
                                            int n) {
        if (at.nodes() == 1) inner(ex, r, n);
        else outer(ex, r, n);
    }
};
// The base of hierarchical algorithms with a root.
struct rooted_hierarchical_base : hierarchical_base {
    int root = 0;
    constexpr rooted_hierarchical_base() = default;
    template <std::convertible_to<node_view> Map>
    constexpr rooted_hierarchical_base(Map&& map, int r = 0) : hierarchical_base(static_cast<Map&&>(map)), root(r) {}

    constexpr std::uint64_t parameter_bits() const {
        return nodes.hash() ^ static_cast<std::uint64_t>(root) * 0x9e37'79b9'7f4a'7c15;
    }
    // The local index of the rank that stands for its node: that of the root, modulo the node's size.
    COLLX_HD constexpr int stands_for(const node_view& at, int node) const { return at.local_of(root) % at.size(node); }
};

} // namespace algo
COLLX_END_NAMESPACE
