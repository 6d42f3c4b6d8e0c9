// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Orders ranks by their machine: in each host along its widest ring of direct links, and so that ranks of one place on
// two hosts have cards of one rail. No rank passes on data of others here, because neighbours that are no members make
// no calls. Predicts whether ring or direct exchange loads the links less; measures nothing.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <collx/topo/hosts.hpp>
#include <collx/topo/rings.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

// Where a rank is: its host, and its site in the host's machine.
struct standing {
    int host = 0, site = 0;
};

struct member_order {
    std::vector<int> along; // all members, host after host
    // For members on one host, each at a separate GPU: one ring, two of opposite directions if they load the links
    // less, or none. Each has all members.
    std::vector<std::vector<int>> rings;
    // Seconds on the most loaded link for each byte of an all_reduce: along the rings, and by direct exchange of a part
    // between any two members. 0: not computed.
    double ring_s = 0, direct_s = 0;
    bool has_rails = false;  // members of one host have cards of several rails
    bool is_complete = true; // false: some host has no ring; its members are in the order of their sites
};

namespace detail {

inline double most_seconds(const graph& g, const std::vector<double>& load) {
    double seconds = 0;
    for (int i = 0; i < g.arcs(); ++i)
        seconds = std::max(seconds, load[static_cast<std::size_t>(i)] / g.arc_at(i).bytes_per_s);
    return seconds;
}

// The widest ring of direct paths; without members if there is none.
inline ring ring_through_sites(const graph& g, const std::vector<int>& sites) {
    if (sites.size() < 2) return {sites, {}};
    ring_options one;
    one.most_rings = 1;
    one.once = true;
    one.limits.relays = 0;
    const ring_set set = find_rings(g, sites, one);
    return set.rings.empty() ? ring{} : set.rings[0];
}

// Seconds on the most loaded link for each byte of an all_reduce along a ring, or half along it and half against it.
inline double ring_seconds(const graph& g, const ring& r, bool both_ways) {
    std::vector<double> load(static_cast<std::size_t>(g.arcs()), 0);
    const double n = static_cast<double>(r.members.size()), each = 2 * (n - 1) / n / (both_ways ? 2 : 1);
    for (const path& hop : r.hops)
        for (const int i : hop.arcs) {
            load[static_cast<std::size_t>(i)] += each;
            if (both_ways) load[static_cast<std::size_t>(g.arc_at(i).back)] += each;
        }
    return most_seconds(g, load);
}

// The same where every site exchanges a part with every other site, there and back.
inline double direct_seconds(const graph& g, const std::vector<int>& sites) {
    std::vector<double> load(static_cast<std::size_t>(g.arcs()), 0);
    for (const int a : sites)
        for (const int b : sites) {
            const path way = find_path(g, a, b, false);
            if (way.type == path_class::dis) return std::numeric_limits<double>::infinity();
            for (const int i : way.arcs) load[static_cast<std::size_t>(i)] += 2.0 / static_cast<double>(sites.size());
        }
    return most_seconds(g, load);
}

// By site: the rail of the card that it uses, -1: none.
inline std::vector<int> rails_of(const graph& g) {
    std::vector<int> rails = own_cards(g);
    for (int& r : rails)
        if (r >= 0) r = g.at(r).rail;
    return rails;
}

// The sites of one host's ring, rotated and mirrored so that as many places as possible have the rails of `lead`.
inline std::vector<int> aligned(const std::vector<int>& ring, const std::vector<int>& rail_of,
                                const std::vector<int>& lead) {
    const std::size_t k = ring.size();
    std::vector<int> best = ring;
    int most = -1;
    for (std::size_t turn = 0; turn < 2 * k; ++turn) {
        std::vector<int> now;
        int same = 0;
        for (std::size_t i = 0; i < k; ++i) {
            now.push_back(ring[turn < k ? (turn + i) % k : (2 * k + turn - i) % k]);
            same += i < lead.size() && rail_of[static_cast<std::size_t>(now.back())] == lead[i];
        }
        if (same > most) {
            most = same;
            best = now;
        }
    }
    return best;
}

} // namespace detail

// Orders ranks. members: by rank. machine_of: by host. Ensures: depends on its arguments only. Cost: one find_rings()
// for each kind of machine and set of sites.
inline member_order order_members(const std::vector<standing>& members, const std::vector<const graph*>& machine_of) {
    member_order made;
    std::vector<int> hosts; // in the order of their first members
    for (const standing& m : members)
        if (std::find(hosts.begin(), hosts.end(), m.host) == hosts.end()) hosts.push_back(m.host);
    std::map<std::pair<const graph*, std::vector<int>>, ring> searched;
    std::map<const graph*, std::vector<int>> rails;
    std::vector<int> lead; // rails by place, of the first host
    for (const int h : hosts) {
        const graph& g = *machine_of[static_cast<std::size_t>(h)];
        std::vector<int> sites;
        int here = 0;
        for (const standing& m : members) {
            here += m.host == h;
            if (m.host == h && std::find(sites.begin(), sites.end(), m.site) == sites.end()) sites.push_back(m.site);
        }
        std::sort(sites.begin(), sites.end());
        const auto [it, is_new] = searched.try_emplace({&g, sites});
        if (is_new) it->second = detail::ring_through_sites(g, sites);
        const ring& found = it->second;
        made.is_complete = made.is_complete && !found.members.empty();
        const auto [known, is_new_kind] = rails.try_emplace(&g);
        if (is_new_kind) known->second = detail::rails_of(g);
        const std::vector<int>& rail_of = known->second;
        const std::vector<int> in_order = detail::aligned(found.members.empty() ? sites : found.members, rail_of, lead);
        for (const int s : in_order) {
            made.has_rails = made.has_rails ||
                             rail_of[static_cast<std::size_t>(s)] != rail_of[static_cast<std::size_t>(in_order[0])];
            if (h == hosts[0]) lead.push_back(rail_of[static_cast<std::size_t>(s)]);
            for (std::size_t r = 0; r < members.size(); ++r) // several may be at one site
                if (members[r].host == h && members[r].site == s) made.along.push_back(static_cast<int>(r));
        }
        const bool each_alone = here == static_cast<int>(sites.size());
        if (hosts.size() > 1 || !each_alone || found.hops.empty() || g.at(sites[0]).type != site_type::gpu) continue;
        const double one = detail::ring_seconds(g, found, false), two = detail::ring_seconds(g, found, true);
        made.ring_s = std::min(one, two);
        made.direct_s = detail::direct_seconds(g, sites);
        made.rings.push_back(made.along);
        if (here > 2 && two < one) made.rings.emplace_back(made.along.rbegin(), made.along.rend());
    }
    return made;
}

} // namespace topo
COLLX_END_NAMESPACE
