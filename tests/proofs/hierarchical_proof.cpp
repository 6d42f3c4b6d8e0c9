// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Hierarchical algorithms on all shapes of node maps: even, round-robin, uneven, interleaved, single ranks, one node.
// Each is correct, ordered and as shallow as declared, and sends the declared messages between nodes.
// tests/algo/hierarchical_test.cpp tests thousands of other maps at run time.
#include <collx/algo/aggregated.hpp>
#include <collx/algo/hierarchical.hpp>
#include <collx/algo/leader.hpp>
#include <collx/sched/facts.hpp>

using namespace collx;
using namespace collx::sched;
using namespace collx::algo;

template <class Algorithm>
constexpr schedule on(const node_map& m, Algorithm a = {}, int root = 0) {
    if constexpr (requires { a.nodes; }) a.nodes = m;
    collx::sched::set_root(a, root);
    return record_all(a, m.view().ranks());
}

// Correct, with the declared messages between nodes.
template <class Algorithm>
constexpr bool right(std::initializer_list<int> node_of, int root = 0) {
    const node_map m(node_of);
    Algorithm a{};
    a.nodes = m;
    const schedule s = on<Algorithm>(m, {}, root);
    collx::sched::set_root(a, root);
    return verify(s).ok() && messages_between(s, [&](int r) { return m.view().node_of(r); }).total_messages ==
                                 a.messages_between(m.view().ranks());
}
template <class Algorithm>
constexpr bool right_on_all() {
    return right<Algorithm>({0, 0, 1, 1}) && right<Algorithm>({0, 1, 0, 1}, 1) &&
           right<Algorithm>({0, 0, 0, 1, 1}, 2) && right<Algorithm>({0, 1, 2, 0, 1, 0}, 4) &&
           right<Algorithm>({0, 1, 2}, 2) && right<Algorithm>({0, 0, 0}, 1);
}
template <class Algorithm>
constexpr bool ordered() {
    return races(on<Algorithm>({0, 1, 0, 1}, {}, 1)).ok() && races(on<Algorithm>({0, 0, 1}, {}, 2)).ok();
}
template <class Algorithm>
constexpr crossings two_of_four(int root = 0) {
    return messages_between(on<Algorithm>(node_map::blocks(8, 4), {}, root), [](int r) { return r / 4; });
}

#define COLLX_PROVE_ON_NODES(...)               \
    static_assert(right_on_all<__VA_ARGS__>()); \
    static_assert(ordered<__VA_ARGS__>());      \
    static_assert(right<__VA_ARGS__>({0, 0, 0, 0, 1, 1, 1, 1}, 6))

COLLX_PROVE_ON_NODES(hierarchical_all_reduce<rings>);
COLLX_PROVE_ON_NODES(hierarchical_all_reduce<rank_ordered>);
COLLX_PROVE_ON_NODES(hierarchical_reduce_scatter<rings>);
COLLX_PROVE_ON_NODES(hierarchical_all_gather<trees, rings>);
COLLX_PROVE_ON_NODES(hierarchical_broadcast<trees>);
COLLX_PROVE_ON_NODES(hierarchical_reduce<trees>);
COLLX_PROVE_ON_NODES(hierarchical_barrier<trees>);
COLLX_PROVE_ON_NODES(aggregated_all_to_all);
COLLX_PROVE_ON_NODES(leader_all_to_all);
COLLX_PROVE_ON_NODES(leader_all_gather);
COLLX_PROVE_ON_NODES(leader_barrier);

// Two nodes of four, S of 8 chunks: 4 rails, on which each rank sends one chunk and gets one back.
static_assert(two_of_four<hierarchical_all_reduce<rings>>().total_messages == 4 * 2 * 2);
static_assert(two_of_four<hierarchical_all_reduce<rings>>().chunks_sent == 2);
static_assert(two_of_four<hierarchical_reduce_scatter<rings>>().total_chunks == 8);
static_assert(two_of_four<hierarchical_all_gather<rings>>().total_chunks == 8);
static_assert(two_of_four<hierarchical_broadcast<trees>>(5).total_messages == 1);
static_assert(two_of_four<hierarchical_reduce<trees>>(5).total_messages == 1);
static_assert(two_of_four<hierarchical_barrier<trees>>().total_messages == 2);

// N - 1 messages of G chunks per rank, instead of (N - 1) G messages of one.
static_assert(two_of_four<aggregated_all_to_all>().messages == 1);
static_assert(two_of_four<aggregated_all_to_all>().chunks_sent == 4);
static_assert(two_of_four<pairwise_all_to_all>().messages == 4);
// N - 1 messages of G^2 chunks per node.
static_assert(two_of_four<leader_all_to_all>().total_messages == 2);
static_assert(two_of_four<leader_all_to_all>().total_chunks == two_of_four<pairwise_all_to_all>().total_chunks);

// Nodes that are intervals keep the order of operands, other nodes do not.
static_assert(verify(on<hierarchical_all_reduce<rank_ordered>>({0, 0, 1, 1, 1})).order == reduction_order::rank_order);
static_assert(verify(on<hierarchical_all_reduce<rank_ordered>>({0, 1, 0, 1})).order == reduction_order::unordered);
