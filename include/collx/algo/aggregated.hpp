// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// All-to-all in which everything that goes from one node to one rank elsewhere travels as one message. Inside the node
// the data first moves to the rank that carries for that destination, so a rank sends N - 1 messages out of its node
// where a direct exchange sends (N - 1) G, each G times as long. (NCCL calls the same idea PXN.)
//
//   3 nodes of 2, what rank 0 does:     inside: to rank 1, what is for rank 1, and what is for ranks 3 and 5
//     node 0: 0 1   rail 0: 0 2 4       from rank 1, what is for rank 0, and what is for ranks 2 and 4
//     node 1: 2 3   rail 1: 1 3 5       outside: to rank 2 and to rank 4, what ranks 0 and 1 have for them
//     node 2: 4 5                       from rank 2 and from rank 4, what their nodes have for rank 0
//
// Who carries: count the ranks of all other nodes, node after node, from the next node on; the q-th of them is served
// by local rank q mod G. With even nodes that is the local rank on the destination's own rail, so every message between
// nodes stays on its rail; with uneven ones it shares the work evenly.
//
// Source: NVIDIA, "Doubling all2all performance with NVIDIA Collective Communication Library 2.12", 2022.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>
#include <collx/sched/node_map.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Shape: n chunks; chunk d of the input goes to rank d. Not in place. Strand 0 sends inside the node, strand 1 collects
// and sends out, strand 2 receives from outside: a slow node keeps nobody's data from leaving.
// Cost, N nodes of G ranks: N - 1 messages of G chunks between nodes per rank, 2(G - 1) inside, of 1 and of N - 1
// chunks; n(N - 1) messages between nodes in all, whatever the nodes' sizes. Scratch about n chunks; slots >= 1.
struct aggregated_all_to_all {
    static constexpr collective op = collective::all_to_all;
    static constexpr const char* name = "aggregated";
    static constexpr int min_depth = 1;
    static constexpr bool needs_commutative = false;
    COLLX_HD static constexpr int chunks(int n) { return n; }
    node_view nodes{};

    constexpr bool fits(int n) const { return nodes.fits(n); }
    constexpr std::uint64_t parameter_bits() const { return nodes.hash(); }
    constexpr int messages_between(int n) const { return n * (nodes.over(n).nodes() - 1); }
    constexpr int tmp_chunks(int n) const {
        const node_view at = nodes.over(n);
        int positions = 0, most = 0;
        for (int k = 0; k < at.nodes(); ++k) {
            const int g = at.size(k), used = g > 1 ? served(0, n - g, g) * g : 0;
            positions = used > positions ? used : positions;
        }
        for (int p = 0; p < positions; ++p) most = at.by_node()[p] >= most ? at.by_node()[p] + 1 : most;
        return most;
    }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const node_view at = nodes.over(n);
        const int* const order = at.by_node(); // chunk sets count positions: node after node
        const int me = at.node_of(r), i = at.local_of(r), g = at.size(me), outside = n - g;
        const int end = at.first(me) + g, mine = served(i, outside, g);
        const auto carried_by = [&](int local) { // destinations
            return chunk_set((end + local) % n, served(local, outside, g), 1, g).in_order(order);
        };
        const auto collected_from = [&](int local) { return chunk_set(local, mine, 1, g).in_order(order); };
        if (ex.strand(0)) {
            for (int d = 1; d < g; ++d) {
                const int other = (i + d) % g, peer = at.rank_of(me, other);
                ex.template step<send>(to(peer), in(peer));
                if (served(other, outside, g) > 0) ex.template step<send>(to(peer), in(carried_by(other)));
            }
        }
        if (ex.strand(1)) {
            ex.template step<copy>(in(r), out(r));
            if (g > 1 && mine > 0) ex.template step<copy>(in(carried_by(i)), tmp(collected_from(i)));
            for (int d = 1; d < g; ++d) {
                const int other = (i + g - d) % g, peer = at.rank_of(me, other);
                ex.template step<recv | copy>(from(peer), out(peer));
                if (mine > 0) ex.template step<recv | copy>(from(peer), tmp(collected_from(other)));
            }
            for (int t = 0; t < mine; ++t) {
                const int position = (end + i + t * g) % n, target = order[position];
                if (g > 1) ex.template step<send>(to(target), tmp(chunk_set(t * g, g).in_order(order)));
                else ex.template step<send>(to(target), in(target));
            }
        }
        if (ex.strand(2)) {
            for (int k = 1; k < at.nodes(); ++k) {
                const int node = (me + at.nodes() - k) % at.nodes(), size = at.size(node), begin = at.first(node);
                const int q = (at.first(me) + i + n - (begin + size)) % n;
                ex.template step<recv | copy>(from(at.rank_of(node, q % size)),
                                              out(chunk_set(begin, size).in_order(order)));
            }
        }
    }

private:
    // How many of `outside` ranks local rank `local` of g carries for.
    COLLX_HD static constexpr int served(int local, int outside, int g) {
        return local < outside ? (outside - local + g - 1) / g : 0;
    }
};

} // namespace algo
COLLX_END_NAMESPACE
