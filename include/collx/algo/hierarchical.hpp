// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Hierarchical algorithms: one algorithm inside the nodes, another between them, so that as little as possible goes
// over the slow links. Both are ordinary algorithms of the given suites and run over sub-executors.
//
//   all_reduce, 2 nodes of 3 ranks         node 0: 0 1 2    node 1: 3 4 5      rail i: the ranks of local index i
//     reduce_scatter in each node          0 1 2 | 3 4 5                      each rank: 1/3 of the buffer
//     all_reduce along each rail           0-3   1-4   2-5                     1/3 each: all rails at once
//     all_gather in each node              0 1 2 | 3 4 5
//
// Where nodes have different numbers of ranks there are no complete rails; each algorithm says what it does instead. A
// node_view (sched/node_map.hpp) says which rank is on which node; the ranks of a node need not be consecutive. With
// one node only the inner algorithm runs, with nodes of one rank only the outer one.
//
// Source: Cho, Finkler, Serrano, Kung, Hunter, "BlueConnect: decomposing all-reduce for deep learning on heterogeneous
// network hierarchy", MLSys 2019, for the all-reduce.
#pragma once

#include <collx/algo/hierarchical_parts.hpp>
#include <collx/algo/hierarchical_rooted.hpp>
#include <collx/algo/suites.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Shape: even nodes: G chunks for each chunk of the outer all-reduce. Uneven nodes: one rail for each rank of the
// smallest node, each with its part of the buffer; nodes reduce to the ranks of the rails and broadcast from them. The
// same with fewer rails than a node has ranks (one, for short messages).
// Cost, N nodes of G ranks: between nodes the cost of G outer all-reduces of S/G; with rings that is 2(N - 1)/N S for
// each node, all its ranks at once. Inside nodes 2(G - 1)/G S per rank. Uneven nodes send as many bytes between nodes,
// over as many ranks as the smallest node has, and inside nodes about S per rank up and S down. Scratch S.
// Order: equal on all ranks; needs a commutative operator unless both suites are in rank order and nodes are intervals.
template <class Inner = rings, class Outer = Inner>
struct hierarchical_all_reduce : hierarchical_base {
    using inner = typename Inner::all_reduce;
    using outer = typename Outer::all_reduce;
    using scatter = typename Inner::reduce_scatter;
    using gather = typename Inner::all_gather;
    using up = typename Inner::reduce;
    using down = typename Inner::broadcast;
    static constexpr collective op = collective::all_reduce;
    static constexpr int min_depth = parts::min_depth<inner, outer, scatter, gather, up, down>();
    static constexpr bool needs_commutative = parts::need_commutative<inner, outer, scatter, up>();
    int rails = 0; // ranks of each node that send to other nodes; 0: as many as the smallest node has
    constexpr std::uint64_t parameter_bits() const {
        return nodes.hash() ^ static_cast<std::uint64_t>(rails) * 0x9e37'79b9'7f4a'7c15;
    }
    constexpr bool needs_commutative_for(int n) const { return needs_commutative || !nodes.over(n).in_rank_order(); }
    COLLX_HD constexpr int chunks(int n) const {
        const node_view at = nodes.over(n);
        if (is_flat(at)) return flat_chunks(at, inner{}, outer{}, n);
        return rails_of(at) * rail_chunks(at);
    }
    constexpr int tmp_chunks(int n) const {
        const node_view at = nodes.over(n);
        return is_flat(at) ? flat_tmp_chunks(at, inner{}, outer{}, n) : chunks(n);
    }
    constexpr int messages_between(int n) const { return parts::messages_across(*this, n); }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const node_view at = nodes.over(n);
        if (is_flat(at)) return run_flat(ex, at, inner{}, outer{}, r, n);
        const int me = at.node_of(r), i = at.local_of(r), g = at.size(me), all = chunks(n);
        const team mine = at.members(me);
        if (is_shared(at)) {
            const sched::chunk_part shares{g, all, 0, all};
            sched::run_inside(ex, scatter{}, i, g, mine, shares, {place::in, place::tmp});
            across(ex, at, r, n);
            return sched::run_inside(ex, gather{}, i, g, mine, shares, {place::out, place::out});
        }
        up reduces{};
        down tells{};
        for (int rail = 0; g > 1 && rail < rails_of(at); ++rail) {
            reduces.root = rail;
            sched::run_inside(ex, reduces, i, g, mine, rail_part(at, rail, reduces.chunks(g)), {place::in, place::tmp});
        }
        across(ex, at, r, n);
        for (int rail = 0; g > 1 && rail < rails_of(at); ++rail) {
            tells.root = rail;
            sched::run_inside(ex, tells, i, g, mine, rail_part(at, rail, tells.chunks(g)), {place::out, place::out});
        }
    }
    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void across(Ex& ex, const node_view& at, int r, int n) const {
        if (at.largest() == 1) return outer{}(ex, r, n);
        const int me = at.node_of(r), rail = at.local_of(r);
        if (rail >= rails_of(at)) return;
        sched::run_inside(ex, outer{}, me, at.nodes(), at.column(rail), rail_part(at, rail, outer{}.chunks(at.nodes())),
                          {at.size(me) > 1 ? place::tmp : place::in, place::out});
    }

private:
    COLLX_HD constexpr int rails_of(const node_view& at) const {
        return rails > 0 && rails < at.smallest() ? rails : at.smallest();
    }
    // Whether all ranks of a node work on shares of equal size.
    COLLX_HD constexpr bool is_shared(const node_view& at) const {
        return at.is_even() && rails_of(at) == at.smallest();
    }
    COLLX_HD constexpr int rail_chunks(const node_view& at) const {
        const int least = outer{}.chunks(at.nodes());
        return is_shared(at) ? least : parts::chunks_inside<up, down>(at, least);
    }
    COLLX_HD constexpr sched::chunk_part rail_part(const node_view& at, int rail, int chunks) const {
        const int each = rail_chunks(at);
        return {chunks, rails_of(at) * each, rail * each, each};
    }
};

// Shape: n chunks; rank r keeps chunk r. Even nodes: reduce_scatter inside (each rank the chunks of its rail), then
// along the rail. Uneven nodes reduce each chunk in each node to the rank that stands for its owner, then to the owner.
// Cost: (N - 1)/N S between nodes for each node, over all ranks; inside nodes (G - 1)/G S per rank. Uneven nodes send
// the same bytes in more messages, one for each chunk. Scratch S.
// Order: as hierarchical_all_reduce.
template <class Inner = rings, class Outer = Inner>
struct hierarchical_reduce_scatter : hierarchical_base {
    using inner = typename Inner::reduce_scatter;
    using outer = typename Outer::reduce_scatter;
    using up = typename Inner::reduce;
    using over = typename Outer::reduce;
    static constexpr collective op = collective::reduce_scatter;
    static constexpr int min_depth = parts::min_depth<inner, outer, up, over>();
    static constexpr bool needs_commutative = parts::need_commutative<inner, outer, up, over>();
    constexpr bool needs_commutative_for(int n) const { return needs_commutative || !nodes.over(n).in_rank_order(); }
    COLLX_HD static constexpr int chunks(int n) { return n; }
    constexpr int tmp_chunks(int n) const {
        const node_view at = nodes.over(n);
        return is_flat(at) ? flat_tmp_chunks(at, inner{}, outer{}, n) : n;
    }
    constexpr int messages_between(int n) const { return parts::messages_across(*this, n); }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const node_view at = nodes.over(n);
        if (is_flat(at)) return run_flat(ex, at, inner{}, outer{}, r, n);
        const int me = at.node_of(r), i = at.local_of(r), g = at.size(me);
        const team mine = at.members(me);
        up reduces{};
        if (at.is_even())
            sched::run_inside(ex, inner{}, i, g, mine, {g, n, 0, n, at.by_rail()}, {place::in, place::tmp});
        for (int c = 0; !at.is_even() && g > 1 && c < n; ++c) {
            reduces.root = at.local_of(c) % g;
            sched::run_inside(ex, reduces, i, g, mine, {reduces.chunks(g), n, c, 1}, {place::in, place::tmp});
        }
        across(ex, at, r, n);
    }
    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void across(Ex& ex, const node_view& at, int r, int n) const {
        if (at.largest() == 1) return outer{}(ex, r, n);
        const int me = at.node_of(r), i = at.local_of(r), g = at.size(me), count = at.nodes();
        const sched::places from_node{g > 1 ? place::tmp : place::in, place::out};
        if (at.is_even())
            return sched::run_inside(ex, outer{}, me, count, at.column(i), {count, n, i * count, count, at.by_rail()},
                                     from_node);
        over reduces{};
        for (int c = 0; c < n; ++c) {
            if (at.local_of(c) % g != i) continue;
            reduces.root = at.node_of(c);
            sched::run_inside(ex, reduces, me, count, at.column(at.local_of(c)), {reduces.chunks(count), n, c, 1},
                              from_node);
        }
    }
};

// Shape: n chunks; rank r contributes chunk r. Even nodes: all_gather along the rails, then inside. Uneven nodes: each
// chunk is broadcast between the ranks that stand for its owner, then in each node.
// Cost: as hierarchical_reduce_scatter, no scratch.
template <class Inner = rings, class Outer = Inner>
struct hierarchical_all_gather : hierarchical_base {
    using inner = typename Inner::all_gather;
    using outer = typename Outer::all_gather;
    using over = typename Outer::broadcast;
    using down = typename Inner::broadcast;
    static_assert(parts::keep_nothing<inner, outer, over, down>, "collx: broadcasts inside others use no scratch.");
    static constexpr collective op = collective::all_gather;
    static constexpr int min_depth = parts::min_depth<inner, outer, over, down>();
    COLLX_HD static constexpr int chunks(int n) { return n; }
    constexpr int messages_between(int n) const { return parts::messages_across(*this, n); }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const node_view at = nodes.over(n);
        if (is_flat(at)) return run_flat(ex, at, inner{}, outer{}, r, n);
        const int me = at.node_of(r), i = at.local_of(r), g = at.size(me);
        const team mine = at.members(me);
        const sched::places onward{place::out, place::out};
        across(ex, at, r, n);
        if (at.is_even()) return sched::run_inside(ex, inner{}, i, g, mine, {g, n, 0, n, at.by_rail()}, onward);
        down tells{};
        for (int c = 0; c < n; ++c) {
            tells.root = at.local_of(c) % g;
            sched::run_inside(ex, tells, i, g, mine, {tells.chunks(g), n, c, 1}, onward);
        }
    }
    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void across(Ex& ex, const node_view& at, int r, int n) const {
        if (at.largest() == 1) return outer{}(ex, r, n);
        const int me = at.node_of(r), i = at.local_of(r), g = at.size(me), count = at.nodes();
        if (at.is_even())
            return sched::run_inside(ex, outer{}, me, count, at.column(i), {count, n, i * count, count, at.by_rail()});
        over tells{};
        for (int c = 0; c < n; ++c) {
            if (at.local_of(c) % g != i) continue;
            tells.root = at.node_of(c);
            sched::run_inside(ex, tells, me, count, at.column(at.local_of(c)), {tells.chunks(count), n, c, 1});
        }
    }
};

// hierarchical<collective::broadcast, trees>: the hierarchical algorithm of a collective.
template <collective C, class Inner, class Outer>
constexpr auto hierarchical_of() {
    if constexpr (C == collective::all_reduce) return hierarchical_all_reduce<Inner, Outer>();
    else if constexpr (C == collective::reduce_scatter) return hierarchical_reduce_scatter<Inner, Outer>();
    else if constexpr (C == collective::all_gather) return hierarchical_all_gather<Inner, Outer>();
    else if constexpr (C == collective::broadcast) return hierarchical_broadcast<Inner, Outer>();
    else if constexpr (C == collective::reduce) return hierarchical_reduce<Inner, Outer>();
    else if constexpr (C == collective::barrier) return hierarchical_barrier<Inner, Outer>();
}
template <collective C, class Inner = rings, class Outer = Inner>
using hierarchical = decltype(hierarchical_of<C, Inner, Outer>());

} // namespace algo
COLLX_END_NAMESPACE
