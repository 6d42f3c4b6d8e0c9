// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Hierarchical broadcast, reduce and barrier: one rank stands for its node. hierarchical.hpp says how such algorithms
// are made.
#pragma once

#include <collx/algo/hierarchical_parts.hpp>
#include <collx/algo/suites.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Shape: as many chunks as both broadcasts can divide. Broadcasts between the ranks that stand for the nodes, then
// inside.
// Cost: the outer broadcast over N nodes and the inner one over the ranks of a node, one after the other; N - 1 times S
// between nodes.
template <class Inner = rings, class Outer = Inner>
struct hierarchical_broadcast : rooted_hierarchical_base {
    using inner = typename Inner::broadcast;
    using outer = typename Outer::broadcast;
    static_assert(parts::keep_nothing<inner, outer>, "collx: broadcasts inside others use no scratch.");
    static constexpr collective op = collective::broadcast;
    static constexpr int min_depth = parts::min_depth<inner, outer>();
    COLLX_HD constexpr int chunks(int n) const {
        const node_view at = nodes.over(n);
        return parts::chunks_inside<inner>(at, outer{}.chunks(at.nodes()));
    }
    constexpr int messages_between(int n) const { return parts::messages_across(*this, n); }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const node_view at = nodes.over(n);
        const int me = at.node_of(r), g = at.size(me), all = chunks(n);
        across(ex, at, r, n);
        inner tells{};
        tells.root = stands_for(at, me);
        sched::run_inside(ex, tells, at.local_of(r), g, at.members(me), {tells.chunks(g), all, 0, all},
                          {place::out, place::out});
    }
    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void across(Ex& ex, const node_view& at, int r, int n) const {
        const int me = at.node_of(r), all = chunks(n);
        if (at.local_of(r) != stands_for(at, me)) return;
        outer tells{};
        tells.root = at.node_of(root);
        sched::run_inside(ex, tells, me, at.nodes(), at.column(at.local_of(root)),
                          {tells.chunks(at.nodes()), all, 0, all});
    }
};

// The broadcast backwards: inside the nodes, then between the ranks that stand for them.
// Cost: as hierarchical_broadcast; scratch S. Order: as hierarchical_all_reduce, for every root.
template <class Inner = rings, class Outer = Inner>
struct hierarchical_reduce : rooted_hierarchical_base {
    using inner = typename Inner::reduce;
    using outer = typename Outer::reduce;
    static constexpr collective op = collective::reduce;
    static constexpr int min_depth = parts::min_depth<inner, outer>();
    static constexpr bool needs_commutative = parts::need_commutative<inner, outer>();
    constexpr bool needs_commutative_for(int n) const { return needs_commutative || !nodes.over(n).in_rank_order(); }
    COLLX_HD constexpr int chunks(int n) const {
        const node_view at = nodes.over(n);
        return parts::chunks_inside<inner>(at, outer{}.chunks(at.nodes()));
    }
    constexpr int tmp_chunks(int n) const {
        const node_view at = nodes.over(n);
        if (!is_flat(at)) return chunks(n);
        return flat_tmp_chunks(at, rooted(inner{}, at.local_of(root)), rooted(outer{}, root), n) == 0 ? 0 : chunks(n);
    }
    constexpr int messages_between(int n) const { return parts::messages_across(*this, n); }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const node_view at = nodes.over(n);
        const int me = at.node_of(r), g = at.size(me), all = chunks(n);
        const inner reduces = rooted(inner{}, stands_for(at, me));
        if (g > 1)
            sched::run_inside(ex, reduces, at.local_of(r), g, at.members(me), {reduces.chunks(g), all, 0, all},
                              {place::in, at.nodes() > 1 ? place::tmp : place::out});
        if (at.nodes() > 1 || g == 1) across(ex, at, r, n);
    }
    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void across(Ex& ex, const node_view& at, int r, int n) const {
        const int me = at.node_of(r), all = chunks(n);
        if (at.local_of(r) != stands_for(at, me)) return;
        const outer reduces = rooted(outer{}, at.node_of(root));
        sched::run_inside(ex, reduces, me, at.nodes(), at.column(at.local_of(root)),
                          {reduces.chunks(at.nodes()), all, 0, all},
                          {at.size(me) > 1 ? place::tmp : place::in, place::out});
    }

private:
    template <class Algorithm>
    COLLX_HD static constexpr Algorithm rooted(Algorithm a, int rank) {
        a.root = rank;
        return a;
    }
};

// Shape: 1 chunk, the token. A barrier in each node, then one of their first ranks, which then notify the others.
// Cost: the outer barrier of N ranks between nodes; scratch for the token.
template <class Inner = trees, class Outer = Inner>
struct hierarchical_barrier : hierarchical_base {
    using inner = typename Inner::barrier;
    using outer = typename Outer::barrier;
    using down = typename Inner::broadcast;
    static constexpr collective op = collective::barrier;
    static constexpr int min_depth = parts::min_depth<inner, outer, down>();
    COLLX_HD static constexpr int chunks(int) { return 1; }
    static constexpr int tmp_chunks(int n) { return n > 1 ? 1 : 0; }
    constexpr int messages_between(int n) const { return parts::messages_across(*this, n); }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const node_view at = nodes.over(n);
        const int me = at.node_of(r), i = at.local_of(r), g = at.size(me);
        const team mine = at.members(me);
        const sched::places token{place::in, place::tmp};
        sched::run_inside(ex, inner{}, i, g, mine, {inner{}.chunks(g), 1, 0, 1}, token);
        if (at.nodes() == 1) return;
        across(ex, at, r, n);
        if (g > 1) sched::run_inside(ex, down{}, i, g, mine, {down{}.chunks(g), 1, 0, 1}, token);
    }
    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void across(Ex& ex, const node_view& at, int r, int) const {
        if (at.local_of(r) != 0) return;
        sched::run_inside(ex, outer{}, at.node_of(r), at.nodes(), at.column(0), {outer{}.chunks(at.nodes()), 1, 0, 1},
                          {place::in, place::tmp});
    }
};

} // namespace algo
COLLX_END_NAMESPACE
