// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Joins the machines of a job's hosts at their rails, and finds the place and the card of each rank in a host's
// machine. Knows no rank's program and no file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <collx/core/decimal.hpp>
#include <collx/core/descriptor.hpp>
#include <collx/topo/machine_parts.hpp>
#include <collx/topo/path.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

// The places of ranks: GPUs in the order of their numbers, whatever their order in a file; CPUs if there are none.
inline std::vector<int> places_of_ranks(const graph& g) {
    std::vector<int> places = g.all(site_type::gpu);
    if (places.empty()) return g.all(site_type::cpu);
    const auto number = [&](int s) {
        const std::string& name = g.name(s);
        const std::size_t at = name.find("GPU");
        return at == name.npos ? 0 : std::atoi(name.c_str() + at + 3);
    };
    std::stable_sort(places.begin(), places.end(), [&](int a, int b) { return number(a) < number(b); });
    return places;
}

// By site: the card of its host that it uses, -1: none. It is the nearest one by class and rate. Sites that are equally
// near to the same cards take them in turn.
inline std::vector<int> own_cards(const graph& g) {
    std::vector<int> own(static_cast<std::size_t>(g.size()), -1);
    std::map<std::vector<int>, std::size_t> turns;
    for (const int s : places_of_ranks(g)) {
        path best;
        std::vector<int> nearest;
        for (const int c : g.all(site_type::nic, g.at(s).host)) {
            const path p = find_path(g, s, c);
            if (p.type == path_class::dis) continue;
            if (nearest.empty() || p.type < best.type || (p.type == best.type && p.bytes_per_s > best.bytes_per_s)) {
                best = p;
                nearest.clear();
            }
            if (p.type == best.type && p.bytes_per_s == best.bytes_per_s) nearest.push_back(c);
        }
        if (!nearest.empty()) own[static_cast<std::size_t>(s)] = nearest[turns[nearest]++ % nearest.size()];
    }
    return own;
}

// Equal for machines with the same sites and links in the same order, whatever else their files contain.
inline std::uint64_t content_hash(const graph& g) {
    std::string text;
    using collx::detail::decimal;
    char line[160];
    for (int s = 0; s < g.size(); ++s) {
        const site& a = g.at(s);
        std::snprintf(line, sizeof line, " %d %d %d %d %d %d ", static_cast<int>(a.type), a.host, a.rail, a.units,
                      a.numa, a.has_multicast ? 1 : 0);
        text += a.name + line + decimal(a.port_bytes_per_s, 9) + ";";
    }
    for (int i = 0; i < g.arcs(); ++i) {
        const arc& a = g.arc_at(i);
        std::snprintf(line, sizeof line, "%d %d %d %d ", a.from, a.to, static_cast<int>(a.type), a.lanes);
        text += line + decimal(a.bytes_per_s, 9) + " " + decimal(a.latency_ns, 9) + ";";
    }
    return collx::detail::hash_bytes(text.data(), text.size(), 16);
}

// Joined hosts: cards of one rail are linked to one network switch, at the rates of their ports. Cards whose rail or
// rate is not known stay without a link: nothing says that they reach one another. Site s of host h is
// site first[h] + s. If there are several hosts, "h<h>." is put before names.
struct joined_hosts {
    graph whole;
    std::vector<int> first;
};
// Joins hosts; a single one stays as it is.
inline joined_hosts join_hosts(const std::vector<const graph*>& hosts) {
    joined_hosts j;
    if (hosts.size() == 1) return {*hosts[0], {0}};
    for (std::size_t h = 0; h < hosts.size(); ++h)
        j.first.push_back(add_copy(j.whole, *hosts[h], static_cast<int>(h), "h" + std::to_string(h) + "."));
    std::map<int, std::vector<int>> rails;
    for (const int c : j.whole.all(site_type::nic))
        if (const site& card = j.whole.at(c); card.rail >= 0 && card.port_bytes_per_s > 0)
            rails[card.rail].push_back(c);
    for (const auto& [rail, cards] : rails) {
        if (cards.size() < 2) continue;
        const int s = j.whole.add({"rail" + std::to_string(rail), site_type::network_switch, -1});
        for (const int c : cards)
            j.whole.link(c, s, link_type::network, {j.whole.at(c).port_bytes_per_s, link_latencies::network});
    }
    return j;
}

} // namespace topo
COLLX_END_NAMESPACE
