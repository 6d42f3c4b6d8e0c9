// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Cuts a machine at its network into islands: sites that reach one another without it, each island as a separate graph.
// So equal hosts are searched once. A rack with NVLink between its hosts is one island.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <collx/topo/path.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo::detail {

struct island {
    graph local;              // sites and links with local numbers
    std::vector<int> site_of; // the machine's, by local site
    std::vector<int> arc_of;  // the machine's, by local arc
    std::vector<int> members; // local, in the order in which they were given
    std::vector<int> cards;   // local, those that reach the network, in order of rails
};

// The number of the island of each site.
inline std::vector<int> island_numbers(const graph& g) {
    std::vector<int> number(static_cast<std::size_t>(g.size()), -1);
    int islands = 0;
    for (int s = 0; s < g.size(); ++s) {
        if (number[static_cast<std::size_t>(s)] >= 0) continue;
        std::vector<int> queue{s};
        number[static_cast<std::size_t>(s)] = islands;
        for (std::size_t k = 0; k < queue.size(); ++k)
            for (const int i : g.arcs_of(queue[k]))
                if (const arc& a = g.arc_at(i);
                    a.type != link_type::network && number[static_cast<std::size_t>(a.to)] < 0) {
                    number[static_cast<std::size_t>(a.to)] = islands;
                    queue.push_back(a.to);
                }
        ++islands;
    }
    return number;
}

// The islands that hold members, in the order of their first members.
inline std::vector<island> islands_of(const graph& g, const std::vector<int>& members) {
    const std::vector<int> number = island_numbers(g);
    std::vector<int> local(static_cast<std::size_t>(g.size()), -1), place(static_cast<std::size_t>(g.size()), -1);
    std::vector<island> all;
    for (const int m : members) // the islands, in order
        if (int& p = place[static_cast<std::size_t>(number[static_cast<std::size_t>(m)])]; p < 0) {
            p = static_cast<int>(all.size());
            all.emplace_back();
        }
    const auto island_at = [&](int s) {
        const int p = place[static_cast<std::size_t>(number[static_cast<std::size_t>(s)])];
        return p < 0 ? nullptr : &all[static_cast<std::size_t>(p)];
    };
    for (int s = 0; s < g.size(); ++s)
        if (island* in = island_at(s)) {
            local[static_cast<std::size_t>(s)] = in->local.add(g.at(s));
            in->site_of.push_back(s);
        }
    for (int i = 0; i < g.arcs(); i += 2) {
        const arc &a = g.arc_at(i), &b = g.arc_at(i + 1);
        island* in = a.type == link_type::network ? nullptr : island_at(a.from);
        if (in == nullptr) continue;
        in->local.link(local[static_cast<std::size_t>(a.from)], local[static_cast<std::size_t>(a.to)], a.type,
                       {a.bytes_per_s, a.latency_ns, a.lanes, b.bytes_per_s});
        in->arc_of.push_back(i);
        in->arc_of.push_back(i + 1);
    }
    for (const int m : members) island_at(m)->members.push_back(local[static_cast<std::size_t>(m)]);
    for (const int c : g.all(site_type::nic))
        for (const int i : g.arcs_of(c))
            if (island* in = island_at(c); in != nullptr && g.arc_at(i).type == link_type::network) {
                in->cards.push_back(local[static_cast<std::size_t>(c)]);
                break;
            }
    for (island& in : all)
        std::stable_sort(in.cards.begin(), in.cards.end(),
                         [&](int a, int b) { return in.local.at(a).rail < in.local.at(b).rail; });
    return all;
}

// A key. Islands with equal keys have equal results of the search.
inline std::string shape_of(const island& in) {
    std::string shape;
    const auto add = [&](double number) { shape.append(reinterpret_cast<const char*>(&number), sizeof number); };
    for (int s = 0; s < in.local.size(); ++s) {
        add(static_cast<int>(in.local.at(s).type));
        add(in.local.at(s).host - in.local.at(0).host);
    }
    for (int i = 0; i < in.local.arcs(); ++i) {
        const arc& a = in.local.arc_at(i);
        add(a.from);
        add(a.to);
        add(static_cast<int>(a.type));
        add(a.bytes_per_s);
        add(a.latency_ns);
    }
    for (const int m : in.members) add(m);
    add(-1);
    for (const int c : in.cards) add(c);
    return shape;
}

// The path of fewest network links from card to card on which each link has `speed` left; subtracts `speed` from these.
// No arcs: there is no path.
inline path network_way(const graph& g, int from, int to, double speed, std::vector<double>& left) {
    std::vector<int> came(static_cast<std::size_t>(g.size()), -1), queue{from};
    for (std::size_t k = 0; k < queue.size() && came[static_cast<std::size_t>(to)] < 0; ++k)
        for (const int i : g.arcs_of(queue[k])) {
            const arc& a = g.arc_at(i);
            const bool ends = a.to == to || g.at(a.to).type == site_type::network_switch;
            if (a.type != link_type::network || !ends || left[static_cast<std::size_t>(i)] < speed || a.to == from ||
                came[static_cast<std::size_t>(a.to)] >= 0)
                continue;
            came[static_cast<std::size_t>(a.to)] = i;
            queue.push_back(a.to);
        }
    path p;
    for (int s = to; s != from && came[static_cast<std::size_t>(s)] >= 0; s = g.arc_at(p.arcs.front()).from)
        p.arcs.insert(p.arcs.begin(), came[static_cast<std::size_t>(s)]);
    for (const int i : p.arcs) left[static_cast<std::size_t>(i)] -= speed;
    return p;
}

} // namespace topo::detail
COLLX_END_NAMESPACE
