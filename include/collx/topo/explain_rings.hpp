// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Explains what a set of rings does to a machine: each ring, the full links, the gap to the bound, and the single cable
// that would raise the bound.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <collx/topo/rings.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

// The load of each arc, in bytes/s.
inline std::vector<double> link_loads(const graph& g, const ring_set& set) {
    std::vector<double> loads(static_cast<std::size_t>(g.arcs()), 0);
    for (const ring& r : set.rings)
        for (const path& hop : r.hops)
            for (const int i : hop.arcs) loads[static_cast<std::size_t>(i)] += set.bytes_per_s;
    return loads;
}

// "GPU0 -> (GPU3) -> GPU2 -> GPU0": GPUs and cards that only pass data on are in brackets; switches are left out.
inline std::string to_text(const graph& g, const ring& r) {
    if (r.members.empty()) return "no ring";
    std::string text = g.name(r.members[0]);
    for (std::size_t h = 0; h < r.hops.size(); ++h) {
        const auto& arcs = r.hops[h].arcs;
        for (std::size_t k = 0; k + 1 < arcs.size(); ++k)
            if (const int s = g.arc_at(arcs[k]).to; g.at(s).type == site_type::gpu || g.at(s).type == site_type::nic)
                text += " -> (" + g.name(s) + ")";
        text += " -> " + g.name(r.members[(h + 1) % r.members.size()]);
    }
    return text;
}

namespace detail {
inline std::string gb_per_s(double bytes_per_s) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4g GB/s", bytes_per_s / 1e9);
    return text;
}
inline std::string link_name(const graph& g, const arc& a) {
    return g.name(a.from) + " -> " + g.name(a.to) + " (" + name_of(a.type) + ")";
}
// Why the rings use no links of worse classes although the machine has some.
inline const char* why_no_worse(const ring_set& set) {
    if (set.allowed_bound < set.bound * (1 - 1e-6)) return "the limits exclude links that would raise this";
    if (set.allowed_bound < set.total() * quarter_more) return "worse classes would add less than a quarter";
    return "the search found no wider rings over worse classes";
}
// One arc of each full link.
inline std::vector<int> full_links(const graph& g, const std::vector<double>& loads) {
    std::vector<int> full;
    for (int i = 0; i < g.arcs(); ++i) {
        const bool is_full = loads[static_cast<std::size_t>(i)] >= g.arc_at(i).bytes_per_s * (1 - 1e-6);
        if (is_full && std::find(full.begin(), full.end(), g.arc_at(i).back) == full.end()) full.push_back(i);
    }
    return full;
}
} // namespace detail

// The full link that raises the bound most if it is twice as wide, and that bound. -1: none helps.
struct better_cable {
    int arc = -1;
    double bound = 0;
};
// Finds it; tries at most `most` full links.
inline better_cable find_better_cable(const graph& g, const ring_set& set, int most = 8) {
    better_cable best{-1, set.bound};
    if (set.rings.empty()) return best;
    for (const int i : detail::full_links(g, link_loads(g, set))) {
        if (--most < 0) break;
        graph wider = g;
        const arc &a = g.arc_at(i), &b = g.arc_at(a.back);
        wider.link(a.from, a.to, a.type, {a.bytes_per_s, a.latency_ns, a.lanes, b.bytes_per_s});
        if (const double bound = ring_bound(wider, set.rings[0].members); bound > best.bound * (1 + 1e-9))
            best = {i, bound};
    }
    return best;
}

// Describes the rings, their rate and the highest possible one, full links (the bottleneck) and what a better cable
// would change; at most `most_lines` rings and links.
inline std::string explain(const graph& g, const ring_set& set, std::size_t most_lines = 16) {
    if (set.rings.empty()) return "no ring: the members do not reach one another within the limits\n";
    char line[200];
    std::snprintf(line, sizeof line, "%zu ring%s of %s: %s of at most %s (max-flow), gap %.1f %%\n", set.rings.size(),
                  set.rings.size() == 1 ? "" : "s", detail::gb_per_s(set.bytes_per_s).c_str(),
                  detail::gb_per_s(set.total()).c_str(), detail::gb_per_s(set.bound).c_str(),
                  100 * (1 - set.total() / set.bound));
    std::string text = line;
    if (set.class_bound < set.bound * (1 - 1e-6))
        text += "over links of class " + std::string(name_of(set.limits.intra)) + " at most " +
                detail::gb_per_s(set.class_bound) + "; " + detail::why_no_worse(set) + "\n";
    if (set.is_rank_order) text += "the search found nothing wider than the ring in the order given\n";
    if (!set.is_complete) text += "the search ended at its budget: there may be wider ones\n";
    for (std::size_t k = 0; k < std::min(set.rings.size(), most_lines); ++k)
        text += "  " + to_text(g, set.rings[k]) + "\n";
    if (set.rings.size() > most_lines) text += "  and " + std::to_string(set.rings.size() - most_lines) + " more\n";
    const auto loads = link_loads(g, set);
    const auto full = detail::full_links(g, loads);
    text += full.empty() ? "no link is full\n" : "bottleneck: " + std::to_string(full.size()) + " full links\n";
    for (std::size_t k = 0; k < std::min(full.size(), most_lines); ++k)
        text += "  " + detail::link_name(g, g.arc_at(full[k])) + " " + detail::gb_per_s(g.arc_at(full[k]).bytes_per_s) +
                "\n";
    if (full.size() > most_lines) text += "  and " + std::to_string(full.size() - most_lines) + " more\n";
    const better_cable cable = find_better_cable(g, set);
    if (cable.arc < 0) return text + "no single wider cable raises the bound\n";
    return text + "twice the rate on " + detail::link_name(g, g.arc_at(cable.arc)) + " raises the bound to " +
           detail::gb_per_s(cable.bound) + "\n";
}

} // namespace topo
COLLX_END_NAMESPACE
