// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The graph of a neighbourhood collective as one rank sees it, and the edges of one call: which part of a buffer goes
// to or comes from which rank. Checks both. Independent of element types; compiled once.
#pragma once

#include <cstddef>

#include <collx/call/check_call.hpp>
#include <collx/core/growing_array.hpp>

COLLX_BEGIN_NAMESPACE

// The ranks that this rank receives from and sends to, in the order of the parts in its buffers. A rank may be its own
// neighbour, and may be listed more than once: edges between two ranks keep their order at both ends.
//   collx::neighbors ring{{right, left}, {left, right}}; // sources, destinations
struct neighbors {
    detail::growing_array<int> sources, destinations; // ranks of the communicator
};

namespace detail {

struct graph_edge {
    int peer;
    std::size_t at, count; // in elements
};
struct graph_edges {
    growing_array<graph_edge> received, sent;
};

// Returns the edges of a call. Throws if the graph, the sizes, the memory or the counts are wrong.
graph_edges check_edges(const communicator_core& c, const verb_row& row, const neighbors& g, const call_arguments& a);

// The number of edges to or from one rank, and the elements that go over them.
struct edge_sum {
    std::size_t edges = 0, elems = 0;
};
growing_array<edge_sum> sums_by_peer(int ranks, const growing_array<graph_edge>& edges);
// Two ranks whose edges to each other differ.
struct edge_fault {
    int from = -1, to = -1; // -1: none
    edge_sum sent, expected;
};
// The first rank that has `announced` other edges to this rank than this rank expects.
edge_fault first_fault(int me, const growing_array<edge_sum>& announced, const growing_array<edge_sum>& expected);
[[noreturn]] void refuse_edge(const communicator_core& c, const edge_fault& f);

} // namespace detail
COLLX_END_NAMESPACE

#if !defined(COLLX_ONLY_DECLARED)
#include <collx/call/neighbor_edges_once.hpp>
#endif
