// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// All-to-all, all-gather and barrier through one rank of each node, its leader: everything that goes from one node to
// another travels as one message. For short parts, where a message between nodes costs more than moving the data twice
// inside nodes. The all-to-all:
//
//   2 nodes of 3      up: ranks 1 and 2 hand rank 0 what they have for ranks 3 to 5
//     node 0: 0 1 2   across: rank 0 sends rank 3 all nine parts, for rank 3, then rank 4, then rank 5
//     node 1: 3 4 5   down: rank 3 hands ranks 4 and 5 theirs; parts that stay inside a node go directly
//
// aggregated.hpp instead shares the messages out of a node among its ranks.
#pragma once

#include <collx/sched/collective.hpp>
#include <collx/sched/executor.hpp>
#include <collx/sched/node_map.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// The leaders, and where a leader keeps the data that pass through it. On the way out: G chunks for each of the m ranks
// of other nodes, those for one rank together. Behind these, on the way in: the m chunks of each of its G ranks.
class led_node {
public:
    COLLX_HD constexpr led_node(const node_view& nodes, int r, int n)
        : at_(nodes.over(n)), ranks_(n), node_(at_.node_of(r)), local_(at_.local_of(r)), size_(at_.size(node_)) {}
    COLLX_HD constexpr int local() const { return local_; }
    COLLX_HD constexpr int size() const { return size_; }
    COLLX_HD constexpr int peer(int local) const { return at_.rank_of(node_, local); }
    COLLX_HD constexpr int outside() const { return ranks_ - size_; }
    COLLX_HD constexpr int others() const { return at_.nodes() - 1; }
    // The k-th node after this one, and the leader of a node.
    COLLX_HD constexpr int next(int k) const { return (node_ + k) % at_.nodes(); }
    COLLX_HD constexpr int leader_of(int node) const { return at_.rank_of(node, 0); }

    // Chunks of a buffer: a node's ranks; all ranks of other nodes, node after node from the next one on.
    COLLX_HD constexpr chunk_set ranks_of(int node) const {
        return chunk_set(at_.first(node), at_.size(node)).in_order(at_.by_node());
    }
    COLLX_HD constexpr chunk_set all_outside() const {
        return chunk_set((at_.first(node_) + size_) % ranks_, outside()).in_order(at_.by_node());
    }
    // The chunks of all ranks but this one of the node, from the rank after it on.
    COLLX_HD constexpr chunk_set all_but(int local) const {
        return chunk_set((at_.first(node_) + local + 1) % ranks_, ranks_ - 1).in_order(at_.by_node());
    }
    // Chunks of the leader's scratch.
    COLLX_HD constexpr chunk_set handed_up_by(int local) const { return way(0, local, outside(), 1, size_); }
    COLLX_HD constexpr chunk_set meant_for(int node) const {
        const int count = size_ * at_.size(node);
        return way(0, size_ * before(node), count, count, count);
    }
    COLLX_HD constexpr chunk_set come_from(int node) const {
        return way(1, before(node), size_ * at_.size(node), at_.size(node), outside());
    }
    COLLX_HD constexpr chunk_set handed_down_to(int local) const {
        return way(1, local * outside(), outside(), outside(), outside());
    }
    static constexpr int chunks_kept(const node_view& nodes, int n) {
        const node_view at = nodes.over(n);
        int most = 0;
        for (int k = 0; k < at.nodes(); ++k) {
            const int g = at.size(k), kept = g > 1 ? 2 * g * (n - g) : 0;
            most = kept > most ? kept : most;
        }
        return most;
    }

private:
    // The number of ranks of other nodes that come before those of `node`.
    COLLX_HD constexpr int before(int node) const {
        return (at_.first(node) - at_.first(node_) - size_ + 2 * ranks_) % ranks_;
    }
    COLLX_HD constexpr chunk_set way(int in, int first, int count, int run, int period) const {
        chunk_set c(first, count, run, period);
        c.size = size_ * outside();
        c.base = in * c.size;
        return c;
    }
    node_view at_;
    int ranks_, node_, local_, size_;
};

// Brings leaders the counts they need where each rank knows only its own: what the ranks of the node have for each rank
// of other nodes or, with `expected`, what they expect. The input is a rank's counts by destination, or by source.
// Scratch holds the counts where leader_all_to_all keeps the elements.
// Cost: G - 1 messages inside the node, none between nodes.
struct leader_counts {
    static constexpr collective op = collective::send_recv; // promises nothing by itself: a test compares the places
    static constexpr const char* name = "leader_counts";
    static constexpr bool needs_commutative = false;
    COLLX_HD static constexpr int chunks(int n) { return n; }
    node_view nodes{};
    bool expected = false;

    constexpr bool fits(int n) const { return nodes.fits(n); }
    constexpr std::uint64_t parameter_bits() const { return nodes.hash() ^ (expected ? 1u : 0u); }
    constexpr int tmp_chunks(int n) const { return led_node::chunks_kept(nodes, n); }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const led_node at(nodes, r, n);
        if (at.others() == 0 || at.size() == 1) return;
        if (at.local() > 0) return ex.step(send, to(at.peer(0)), in(at.all_outside()));
        const auto kept = [&](int i) { return tmp(expected ? at.handed_down_to(i) : at.handed_up_by(i)); };
        ex.step(copy, in(at.all_outside()), kept(0));
        for (int i = 1; i < at.size(); ++i) ex.step(recv | copy, from(at.peer(i)), kept(i));
    }
};

// Shape: n chunks; chunk d of the input goes to rank d. Not in place. Strand 0 sends up, sends inside and, at a leader,
// passes down what comes from outside; strand 1 collects, sends across and receives inside. Chunks may differ in size
// if leaders know the counts, which counts() and expected_counts() bring.
// Cost, N nodes of G ranks: N - 1 messages of G^2 chunks between nodes per leader, N(N - 1) in all; inside, G + 1
// messages per rank, of which one up and one down of n - G chunks. Scratch 2 G(n - G) chunks at leaders; slots >= 1.
struct leader_all_to_all {
    static constexpr collective op = collective::all_to_all;
    static constexpr const char* name = "leader";
    COLLX_HD static constexpr int chunks(int n) { return n; }
    node_view nodes{};

    constexpr bool fits(int n) const { return nodes.fits(n); }
    constexpr std::uint64_t parameter_bits() const { return nodes.hash(); }
    constexpr leader_counts counts() const { return {nodes}; }
    constexpr leader_counts expected_counts() const { return {nodes, true}; }
    constexpr int messages_between(int n) const {
        const int all = nodes.over(n).nodes();
        return all * (all - 1);
    }
    constexpr int tmp_chunks(int n) const { return led_node::chunks_kept(nodes, n); }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const led_node at(nodes, r, n);
        const int i = at.local(), g = at.size();
        const bool crosses = at.others() > 0, leads = crosses && i == 0 && g > 1, follows = crosses && i > 0;
        if (ex.strand(0)) {
            if (follows) ex.step(send, to(at.peer(0)), in(at.all_outside()));
            for (int d = 1; d < g; ++d) {
                const int peer = at.peer((i + d) % g);
                ex.step(send, to(peer), in(peer));
            }
            if (leads) pass_down(ex, at);
        }
        if (ex.strand(1)) {
            if (leads) collect(ex, at);
            ex.step(copy, in(r), out(r));
            if (crosses && g == 1) exchange(ex, at);
            for (int d = 1; d < g; ++d) {
                const int peer = at.peer((i + g - d) % g);
                ex.step(recv | copy, from(peer), out(peer));
            }
            if (follows) ex.step(recv | copy, from(at.peer(0)), out(at.all_outside()));
        }
    }

private:
    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD static constexpr void collect(Ex& ex, const led_node& at) {
        ex.step(copy, in(at.all_outside()), tmp(at.handed_up_by(0)));
        for (int i = 1; i < at.size(); ++i) ex.step(recv | copy, from(at.peer(i)), tmp(at.handed_up_by(i)));
        for (int k = 1; k <= at.others(); ++k)
            ex.step(send, to(at.leader_of(at.next(k))), tmp(at.meant_for(at.next(k))));
    }
    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD static constexpr void pass_down(Ex& ex, const led_node& at) {
        for (int k = at.others(); k > 0; --k)
            ex.step(recv | copy, from(at.leader_of(at.next(k))), tmp(at.come_from(at.next(k))));
        for (int i = 1; i < at.size(); ++i) ex.step(send, to(at.peer(i)), tmp(at.handed_down_to(i)));
        ex.step(copy, tmp(at.handed_down_to(0)), out(at.all_outside()));
    }
    // For a node of one rank, which is its own leader.
    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD static constexpr void exchange(Ex& ex, const led_node& at) {
        for (int k = 1; k <= at.others(); ++k) ex.step(send, to(at.leader_of(at.next(k))), in(at.ranks_of(at.next(k))));
        for (int k = at.others(); k > 0; --k)
            ex.step(recv | copy, from(at.leader_of(at.next(k))), out(at.ranks_of(at.next(k))));
    }
};

// Shared by the two algorithms below: few messages, one after the other, for calls whose time is that of messages.
struct leader_base {
    static constexpr const char* name = "leader";
    static constexpr bool needs_commutative = false;
    node_view nodes{};
    constexpr bool fits(int n) const { return nodes.fits(n); }
    constexpr std::uint64_t parameter_bits() const { return nodes.hash(); }
    constexpr int messages_between(int n) const {
        const int all = nodes.over(n).nodes();
        return all * (all - 1);
    }
};

// Shape: n chunks; rank r contributes chunk r. Chunks go to the leader, between leaders, then to all other ranks.
// Cost, N nodes of G ranks: N - 1 messages of G chunks between nodes per leader, N(N - 1) in all; inside, one message
// up of one chunk and one down of n - 1 for each rank but the leader; no scratch; slots >= 1.
struct leader_all_gather : leader_base {
    static constexpr collective op = collective::all_gather;
    COLLX_HD static constexpr int chunks(int n) { return n; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const led_node at(nodes, r, n);
        const int i = at.local(), g = at.size(), leader = at.peer(0);
        if (i > 0) ex.step(send, to(leader), in(r));
        ex.step(copy, in(r), out(r));
        if (i > 0) return ex.step(recv | copy, from(leader), out(at.all_but(i)));
        for (int k = 1; k < g; ++k) ex.step(recv | copy, from(at.peer(k)), out(at.peer(k)));
        for (int k = 1; k <= at.others(); ++k)
            ex.step(send, to(at.leader_of(at.next(k))), out(at.ranks_of(at.next(0))));
        for (int k = at.others(); k > 0; --k)
            ex.step(recv | copy, from(at.leader_of(at.next(k))), out(at.ranks_of(at.next(k))));
        for (int k = 1; k < g; ++k) ex.step(send, to(at.peer(k)), out(at.all_but(k)));
    }
};

// Shape: 1 chunk, the token. Messages as in leader_all_gather.
// Cost: N(N - 1) messages between nodes; scratch for the token; slots >= 1.
struct leader_barrier : leader_base {
    static constexpr collective op = collective::barrier;
    COLLX_HD static constexpr int chunks(int) { return 1; }
    static constexpr int tmp_chunks(int n) { return n > 1 ? 1 : 0; }

    COLLX_EXEC_CHECK_DISABLE
    template <class Ex>
    COLLX_HD constexpr void operator()(Ex& ex, int r, int n) const {
        const led_node at(nodes, r, n);
        const int g = at.size(), leader = at.peer(0);
        if (at.local() > 0) {
            ex.step(send, to(leader), in(0));
            return ex.step(recv | copy, from(leader), tmp(0));
        }
        for (int k = 1; k < g; ++k) ex.step(recv | copy, from(at.peer(k)), tmp(0));
        for (int k = 1; k <= at.others(); ++k) ex.step(send, to(at.leader_of(at.next(k))), in(0));
        for (int k = at.others(); k > 0; --k) ex.step(recv | copy, from(at.leader_of(at.next(k))), tmp(0));
        for (int k = 1; k < g; ++k) ex.step(send, to(at.peer(k)), in(0));
    }
};

} // namespace algo
COLLX_END_NAMESPACE
