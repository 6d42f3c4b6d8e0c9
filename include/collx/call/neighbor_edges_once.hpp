// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of neighbor_edges.hpp.
#pragma once

#include <collx/call/neighbor_edges.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

inline void require_ranks(const communicator_core& c, const verb_row& row, const growing_array<int>& ranks,
                          const char* which) {
    for (std::size_t i = 0; i < ranks.size(); ++i)
        if (ranks[i] < 0 || ranks[i] >= c.net.size())
            fail(errc::invalid_argument, c.net.rank(), -1, "neighbours are ranks of this communicator",
                 "%s: %s %zu of the graph is %d, and there are %d ranks", row.name, which, i, ranks[i], c.net.size());
}

// The edges of one list. table: null for parts of `part` elements. apart: the parts lie one after the other; else all
// edges have the same part.
inline growing_array<graph_edge> edges_to(const growing_array<int>& peers, const count_table* table, std::size_t part,
                                          bool apart) {
    growing_array<graph_edge> edges;
    for (std::size_t i = 0; i < peers.size(); ++i)
        if (table != nullptr) edges.push_back({peers[i], table->offsets()[i], table->sizes()[i]});
        else edges.push_back({peers[i], apart ? i * part : 0, part});
    return edges;
}

// The number of elements of each part, where all parts are equal.
inline std::size_t equal_part(const communicator_core& c, const verb_row& row, const neighbors& g,
                              const call_arguments& a) {
    const std::size_t sources = g.sources.size(), destinations = g.destinations.size();
    const auto divided = [&](std::size_t elems, std::size_t by, const char* which) {
        if (elems % by != 0)
            fail(errc::invalid_argument, c.net.rank(), -1, "pad it, or use the v-variant with counts",
                 "%s: %zu elements do not divide among %zu %s", row.name, elems, by, which);
        return elems / by;
    };
    std::size_t part = a.in.elems;
    if (row.in == extent::destinations && destinations != 0) part = divided(a.in.elems, destinations, "destinations");
    else if (row.in == extent::destinations) part = sources != 0 ? divided(a.out.elems, sources, "sources") : 0;
    const auto times = [&](std::size_t n) { // no buffer has SIZE_MAX elements
        std::size_t all = 0;
        return __builtin_mul_overflow(part, n, &all) ? SIZE_MAX : all;
    };
    if (row.in == extent::destinations) require_size(c, {"input", row.name}, a.in.elems, times(destinations));
    require_size(c, {"output", row.name}, a.out.elems, times(sources));
    return part;
}

COLLX_ONCE graph_edges check_edges(const communicator_core& c, const verb_row& row, const neighbors& g,
                                   const call_arguments& a) {
    require_ranks(c, row, g.sources, "source");
    require_ranks(c, row, g.destinations, "destination");
    require_memory(c, a.in, {"input", row.name});
    require_writable(c, a.out, {"output", row.name});
    require_no_overlap(c.net.rank(), a.in, a.out, SIZE_MAX, a.is_same_type, row.name);
    if (a.tables == nullptr) {
        const std::size_t part = equal_part(c, row, g, a);
        return {edges_to(g.sources, nullptr, part, true),
                edges_to(g.destinations, nullptr, part, row.in == extent::destinations)};
    }
    const count_table &sent = a.tables->first, &received = a.tables->second;
    received.require_disjoint(c.net.rank(), "receive");
    require_at_least(c, {"output", row.name}, a.out.elems, received.end());
    if (row.in != extent::destinations)
        return {edges_to(g.sources, &received, 0, true), edges_to(g.destinations, nullptr, a.in.elems, false)};
    require_at_least(c, {"input", row.name}, a.in.elems, sent.end());
    return {edges_to(g.sources, &received, 0, true), edges_to(g.destinations, &sent, 0, true)};
}

COLLX_ONCE growing_array<edge_sum> sums_by_peer(int ranks, const growing_array<graph_edge>& edges) {
    growing_array<edge_sum> sums(static_cast<std::size_t>(ranks));
    for (const graph_edge& e : edges) {
        edge_sum& s = sums[e.peer];
        ++s.edges;
        s.elems += e.count;
    }
    return sums;
}

COLLX_ONCE edge_fault first_fault(int me, const growing_array<edge_sum>& announced,
                                  const growing_array<edge_sum>& expected) {
    for (std::size_t k = 0; k < announced.size(); ++k)
        if (announced[k].edges != expected[k].edges || announced[k].elems != expected[k].elems)
            return {static_cast<int>(k), me, announced[k], expected[k]};
    return {};
}

COLLX_ONCE void refuse_edge(const communicator_core& c, const edge_fault& f) {
    const int me = c.net.rank(), peer = me == f.from ? f.to : f.from;
    if (f.sent.edges != f.expected.edges)
        fail(errc::mismatch, me, peer, "both ends of an edge list it, as destination and as source, equally often",
             "edge from rank %d to rank %d: rank %d has it %zu times among its destinations, rank %d %zu times among "
             "its sources",
             f.from, f.to, f.from, f.sent.edges, f.to, f.expected.edges);
    fail(errc::mismatch, me, peer, "what a rank sends over an edge the other end must expect",
         "edge from rank %d to rank %d: %zu elements are sent, the receive counts of rank %d say %zu", f.from, f.to,
         f.sent.elems, f.to, f.expected.elems);
}

} // namespace detail
COLLX_END_NAMESPACE
