// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// All-to-all in which everything that goes from one node to one rank of another node travels as one message. Inside the
// node the data first move to the carrier for that destination. A rank then sends N - 1 messages out of its node where
// a direct exchange sends (N - 1) G; each is G times as long. (NCCL calls the same idea PXN.)
//
//   3 nodes of 2, what rank 0 does:     inside: to rank 1, what is for rank 1, and what is for ranks 3 and 5
//     node 0: 0 1   rail 0: 0 2 4       from rank 1, what is for rank 0, and what is for ranks 2 and 4
//     node 1: 2 3   rail 1: 1 3 5       outside: to rank 2 and to rank 4, what ranks 0 and 1 have for them
//     node 2: 4 5                       from rank 2 and from rank 4, what their nodes have for rank 0
//
// Carriers: the ranks of all other nodes are counted node after node, from the next node on. Local rank q mod G carries
// for the q-th of them. With even nodes that rank is on the destination's rail, so every message between nodes stays on
// its rail. With uneven nodes the work is shared evenly.
//
// Source: NVIDIA, "Doubling all2all performance with NVIDIA Collective Communication Library 2.12", 2022.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>
#include <collx/sched/node_map.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// Which rank of a node carries for which ranks of other nodes; shared by the two algorithms below.
class carriers {
public:
    COLLX_HD constexpr carriers(const node_view& nodes, int r, int n)
        : at_(nodes.over(n)), order_(at_.by_node()), ranks_(n), node_(at_.node_of(r)), local_(at_.local_of(r)) {}
    COLLX_HD constexpr const node_view& nodes() const { return at_; }
    COLLX_HD constexpr int node() const { return node_; }
    COLLX_HD constexpr int local() const { return local_; }
    COLLX_HD constexpr int size() const { return at_.size(node_); }
    COLLX_HD constexpr int peer(int local) const { return at_.rank_of(node_, local); }

    // The number of ranks for which this rank, or another one of its node, carries.
    COLLX_HD constexpr int served(int local) const { return served(local, ranks_ - size(), size()); }
    COLLX_HD constexpr int served() const { return served(local_); }
    // The destination of this rank's t-th message out of the node.
    COLLX_HD constexpr int target(int t) const { return order_[(end() + local_ + t * size()) % ranks_]; }
    // Chunk sets, which count positions node after node: the ranks for which a rank of this node carries; where this
    // rank keeps the chunks of a rank of its node for those it carries for; and all chunks for one of them.
    COLLX_HD constexpr chunk_set carried_by(int local) const {
        return chunk_set((end() + local) % ranks_, served(local), 1, size()).in_order(order_);
    }
    COLLX_HD constexpr chunk_set collected_from(int local) const {
        return chunk_set(local, served(), 1, size()).in_order(order_);
    }
    COLLX_HD constexpr chunk_set collected_for(int t) const { return chunk_set(t * size(), size()).in_order(order_); }
    // The rank of another node that carries for this rank, and the chunks of that node's ranks.
    COLLX_HD constexpr int carrier_in(int other) const {
        const int size = at_.size(other), q = (at_.first(node_) + local_ + ranks_ - at_.first(other) - size) % ranks_;
        return at_.rank_of(other, q % size);
    }
    COLLX_HD constexpr chunk_set chunks_of(int other) const {
        return chunk_set(at_.first(other), at_.size(other)).in_order(order_);
    }

    // One more than the largest chunk that a rank keeps for others.
    static constexpr int chunks_kept(const node_view& nodes, int n) {
        const node_view at = nodes.over(n);
        int positions = 0, most = 0;
        for (int k = 0; k < at.nodes(); ++k) {
            const int g = at.size(k), used = g > 1 ? served(0, n - g, g) * g : 0;
            positions = used > positions ? used : positions;
        }
        for (int p = 0; p < positions; ++p) most = at.by_node()[p] >= most ? at.by_node()[p] + 1 : most;
        return most;
    }

private:
    COLLX_HD constexpr int end() const { return at_.first(node_) + size(); }
    // The number of `outside` ranks for which local rank `local` of g carries.
    COLLX_HD static constexpr int served(int local, int outside, int g) {
        return local < outside ? (outside - local + g - 1) / g : 0;
    }
    node_view at_;
    const int* order_;
    int ranks_, node_, local_;
};

// Brings carriers the counts they need where each rank knows only its own: how many elements each rank of the node has
// for each rank that the carrier serves. The input is a rank's counts by destination. Scratch holds the counts in the
// places where aggregated_all_to_all keeps the elements. There is no output.
// Cost: 2(G - 1) messages inside the node, none between nodes.
struct aggregated_counts {
    static constexpr collective op = collective::send_recv; // promises nothing by itself: a test compares the places
    static constexpr const char* name = "aggregated_counts";
    static constexpr bool needs_commutative = false;
    COLLX_HD static constexpr int chunks(int n) { return n; }
    node_view nodes{};

    constexpr bool fits(int n) const { return nodes.fits(n); }
    constexpr std::uint64_t parameter_bits() const { return nodes.hash(); }
    constexpr int tmp_chunks(int n) const { return carriers::chunks_kept(nodes, n); }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const carriers c(nodes, r, n);
        const int i = c.local(), g = c.size();
        if (ex.strand(0))
            for (int d = 1; d < g; ++d) {
                const int other = (i + d) % g;
                if (c.served(other) > 0) ex.step(send, to(c.peer(other)), in(c.carried_by(other)));
            }
        if (ex.strand(1) && g > 1 && c.served() > 0) {
            ex.step(copy, in(c.carried_by(i)), tmp(c.collected_from(i)));
            for (int d = 1; d < g; ++d) {
                const int other = (i + g - d) % g;
                ex.step(recv | copy, from(c.peer(other)), tmp(c.collected_from(other)));
            }
        }
    }
};

// Shape: n chunks; chunk d of the input goes to rank d. Not in place. Strand 0 sends inside the node, strand 1 collects
// and sends out, strand 2 receives from outside: a slow node does not delay data that leave. Chunks may differ in size
// if carriers know the counts, which counts() brings.
// Cost, N nodes of G ranks: N - 1 messages of G chunks between nodes per rank, 2(G - 1) inside, of 1 and of N - 1
// chunks; n(N - 1) messages between nodes in all, whatever the nodes' sizes. Scratch about n chunks; slots >= 1.
struct aggregated_all_to_all {
    static constexpr collective op = collective::all_to_all;
    static constexpr const char* name = "aggregated";
    COLLX_HD static constexpr int chunks(int n) { return n; }
    node_view nodes{};

    constexpr bool fits(int n) const { return nodes.fits(n); }
    constexpr std::uint64_t parameter_bits() const { return nodes.hash(); }
    constexpr int messages_between(int n) const { return n * (nodes.over(n).nodes() - 1); }
    constexpr int tmp_chunks(int n) const { return carriers::chunks_kept(nodes, n); }
    constexpr aggregated_counts counts() const { return {nodes}; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const carriers c(nodes, r, n);
        const int i = c.local(), g = c.size(), others = c.nodes().nodes();
        if (ex.strand(0)) {
            for (int d = 1; d < g; ++d) {
                const int other = (i + d) % g, peer = c.peer(other);
                ex.step(send, to(peer), in(peer));
                if (c.served(other) > 0) ex.step(send, to(peer), in(c.carried_by(other)));
            }
        }
        if (ex.strand(1)) {
            ex.step(copy, in(r), out(r));
            if (g > 1 && c.served() > 0) ex.step(copy, in(c.carried_by(i)), tmp(c.collected_from(i)));
            for (int d = 1; d < g; ++d) {
                const int other = (i + g - d) % g, peer = c.peer(other);
                ex.step(recv | copy, from(peer), out(peer));
                if (c.served() > 0) ex.step(recv | copy, from(peer), tmp(c.collected_from(other)));
            }
            for (int t = 0; t < c.served(); ++t) {
                const int target = c.target(t);
                if (g > 1) ex.step(send, to(target), tmp(c.collected_for(t)));
                else ex.step(send, to(target), in(target));
            }
        }
        if (ex.strand(2)) {
            for (int k = 1; k < others; ++k) {
                const int node = (c.node() + others - k) % others;
                ex.step(recv | copy, from(c.carrier_in(node)), out(c.chunks_of(node)));
            }
        }
    }
};

} // namespace algo
COLLX_END_NAMESPACE
