// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The places of ranks on a machine: links, each direction separately, and the path from one rank to another, found
// when first asked for: in a machine graph, or by a formula where a search would take longer than the simulation.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <collx/topo/hosts.hpp>
#include <collx/topo/path.hpp>

COLLX_BEGIN_NAMESPACE
namespace sim {

// One direction of a link.
struct link {
    std::string name; // "GPU0 > GPU3"
    topo::link_type type = topo::link_type::nvlink;
    double bytes_per_s = 0;
    double latency_ns = 0;
};

// The path between two ranks.
struct route {
    std::vector<int> links; // in order; none: within a rank
    topo::link_type worst = topo::link_type::nvlink;
    double latency_ns = 0;
    double bytes_per_s = 0; // of its narrowest link
};

// The links from each rank to a switch that reduces and multicasts, and back. Empty: no switch is linked to all ranks.
struct switch_ports {
    std::vector<int> to, from;
};

class fabric {
public:
    using finder = std::function<std::vector<int>(int from, int to)>; // links between two different ranks

    // Errors: invalid_argument, with its name, for a link whose rate is not positive and finite, or whose latency is
    // negative.
    fabric(int ranks, std::vector<link> links, finder find)
        : ranks_(ranks), links_(std::move(links)), find_(std::move(find)) {
        for (const link& l : links_) check(l);
    }
    // Rank r is at sites[r]. The graph must outlive the fabric, which searches it for each new pair of ranks. Errors:
    // invalid_argument for a site that the machine does not have, and, when a path is asked for, if there is none, with
    // both names.
    fabric(const topo::graph&& g, std::vector<int> sites) = delete;
    fabric(const topo::graph& g, std::vector<int> sites) : ranks_(static_cast<int>(sites.size())) {
        for (const int s : sites)
            if (s < 0 || s >= g.size())
                fail(errc::invalid_argument, -1, -1, "the sites are listed by `collx_topo tree`",
                     "a rank is at site %d of a machine of %d sites", s, g.size());
        for (int i = 0; i < g.arcs(); ++i) {
            const topo::arc& a = g.arc_at(i);
            links_.push_back({g.name(a.from) + " > " + g.name(a.to), a.type, a.bytes_per_s, a.latency_ns});
        }
        for (const int s : g.all(topo::site_type::nvswitch))
            if (ports_.to.empty() && g.at(s).has_multicast) ports_ = ports_of(g, sites, s);
        find_ = [&g, sites = std::move(sites)](int from, int to) {
            return topo::best_path(g, sites[static_cast<std::size_t>(from)], sites[static_cast<std::size_t>(to)]).arcs;
        };
    }

    // The same, but messages between hosts go through the GPU of the sender's host whose card is on the rail of the
    // receiver's card (PXN, NCCL 2.12). They reach it over NVLink, so no flow crosses rails or sockets. Ranks without
    // such a card, and ranks of one host, take the best path.
    static fabric with_pxn(const topo::graph&& g, std::vector<int> sites) = delete;
    static fabric with_pxn(const topo::graph& g, std::vector<int> sites) {
        fabric f(g, sites);
        f.find_ = [&g, sites = std::move(sites), own = topo::own_cards(g)](int from, int to) {
            return pxn_way(g, own, sites[static_cast<std::size_t>(from)], sites[static_cast<std::size_t>(to)]);
        };
        return f;
    }

    int ranks() const { return ranks_; }
    const std::vector<link>& links() const { return links_; }
    const switch_ports& switch_of_all() const { return ports_; }
    const route& between(int from, int to) {
        const auto key = static_cast<unsigned long long>(from) << 32 | static_cast<unsigned>(to);
        const auto [it, is_new] = known_.try_emplace(key);
        if (is_new && from != to) it->second = measured(find_(from, to));
        return it->second;
    }
    // The properties of a path. Errors: invalid_argument for a link that the machine does not have.
    route measured(std::vector<int> links) const {
        route r{std::move(links)};
        for (const int i : r.links)
            if (i < 0 || i >= static_cast<int>(links_.size()))
                fail(errc::invalid_argument, -1, -1, "count the links of the fabric from 0",
                     "a way takes link %d of a machine of %zu links", i, links_.size());
        for (const int i : r.links) {
            const link& l = links_[static_cast<std::size_t>(i)];
            if (badness(l.type) > badness(r.worst)) r.worst = l.type;
            r.latency_ns += l.latency_ns;
            if (r.bytes_per_s == 0 || l.bytes_per_s < r.bytes_per_s) r.bytes_per_s = l.bytes_per_s;
        }
        return r;
    }

private:
    static void check(const link& l) {
        if (!(l.bytes_per_s > 0) || !std::isfinite(l.bytes_per_s))
            fail(errc::invalid_argument, -1, -1, "give a positive rate, or leave the link out where there is none",
                 "the link '%s' has a rate of %g bytes/s", l.name.c_str(), l.bytes_per_s);
        if (!(l.latency_ns >= 0) || !std::isfinite(l.latency_ns))
            fail(errc::invalid_argument, -1, -1, "give a latency of 0 or more", "the link '%s' has a latency of %g ns",
                 l.name.c_str(), l.latency_ns);
    }
    static switch_ports ports_of(const topo::graph& g, const std::vector<int>& sites, int s) {
        switch_ports p;
        for (const int site : sites)
            for (const int i : g.arcs_of(site))
                if (const topo::arc& a = g.arc_at(i); a.to == s && a.type == topo::link_type::nvlink) {
                    p.to.push_back(i);
                    p.from.push_back(a.back);
                }
        return p.to.size() == sites.size() ? p : switch_ports{};
    }
    static std::vector<int> pxn_way(const topo::graph& g, const std::vector<int>& own, int from, int to) {
        const int in = own[static_cast<std::size_t>(to)], host = g.at(from).host;
        const auto joined = [&](int a, int b, int c, int d) {
            std::vector<int> arcs;
            for (const auto& [x, y] : {std::pair{a, b}, std::pair{b, c}, std::pair{c, d}, std::pair{d, to}})
                for (const int i : topo::best_path(g, x, y).arcs) arcs.push_back(i);
            return arcs;
        };
        if (host != g.at(to).host && in >= 0 && g.at(in).rail >= 0)
            for (const int peer : g.all(g.at(from).type, host)) {
                const int out = own[static_cast<std::size_t>(peer)];
                const bool is_beside = peer == from || topo::find_path(g, from, peer).type == topo::path_class::nvl;
                if (is_beside && out >= 0 && g.at(out).rail == g.at(in).rail) return joined(from, peer, out, in);
            }
        return topo::best_path(g, from, to).arcs;
    }
    static int badness(topo::link_type t) {
        return t == topo::link_type::network ? 2 : t == topo::link_type::pcie || t == topo::link_type::socket ? 1 : 0;
    }

    int ranks_;
    std::vector<link> links_;
    finder find_;
    switch_ports ports_;
    std::unordered_map<unsigned long long, route> known_;
};

// `hosts` hosts of `per_host` ranks. Each host has a switch; each rank has a network card on the rail of its number,
// which joins equal numbers of all hosts. A message between ranks of different rails goes through the sender's
// neighbour on the target's rail (PXN). As a DGX H100 on full rails; for thousands of ranks.
struct rails {
    int hosts = 1, per_host = 8;
    double host_bytes_per_s = 450e9, card_bytes_per_s = 50e9;
    double host_latency_ns = 0, card_latency_ns = 0;
};
// The fabric of these hosts. Errors: invalid_argument for counts below 1, more than 2^20 ranks, and rates or latencies
// that no link has.
inline fabric fabric_of(const rails& m) {
    if (m.hosts < 1 || m.per_host < 1 || double{1} * m.hosts * m.per_host > 1 << 20)
        fail(errc::invalid_argument, -1, -1, "give at least one of each, and at most 1048576 ranks",
             "%d hosts of %d ranks on rails", m.hosts, m.per_host);
    const int n = m.hosts * m.per_host;
    std::vector<link> links;
    links.reserve(static_cast<std::size_t>(4 * n));
    for (int r = 0; r < n; ++r) {
        const std::string name = "rank" + std::to_string(r);
        links.push_back({name + " > switch", topo::link_type::nvlink, m.host_bytes_per_s, m.host_latency_ns / 2});
        links.push_back({"switch > " + name, topo::link_type::nvlink, m.host_bytes_per_s, m.host_latency_ns / 2});
        links.push_back({name + " > rail", topo::link_type::network, m.card_bytes_per_s, m.card_latency_ns / 2});
        links.push_back({"rail > " + name, topo::link_type::network, m.card_bytes_per_s, m.card_latency_ns / 2});
    }
    return {n, std::move(links), [g = m.per_host](int from, int to) -> std::vector<int> {
                if (from / g == to / g) return {4 * from, 4 * to + 1};
                const int beside = from / g * g + to % g;
                if (beside == from) return {4 * from + 2, 4 * to + 3};
                return {4 * from, 4 * beside + 1, 4 * beside + 2, 4 * to + 3};
            }};
}

// The machine without the links between two sites. Errors: invalid_argument if there are none, or no such sites.
inline topo::graph without_link(const topo::graph& g, int a, int b) {
    for (const int s : {a, b})
        if (s < 0 || s >= g.size())
            fail(errc::invalid_argument, -1, -1, "the sites are listed by `collx_topo tree`",
                 "no link of site %d can be lost: the machine has %d sites", s, g.size());
    topo::graph left;
    for (int s = 0; s < g.size(); ++s) left.add(g.at(s));
    bool is_there = false;
    for (int i = 0; i < g.arcs(); i += 2) {
        const topo::arc &there = g.arc_at(i), &back = g.arc_at(there.back);
        const bool is_lost = (there.from == a && there.to == b) || (there.from == b && there.to == a);
        is_there = is_there || is_lost;
        if (!is_lost)
            left.link(there.from, there.to, there.type,
                      {there.bytes_per_s, there.latency_ns, there.lanes, back.bytes_per_s});
    }
    if (!is_there)
        fail(errc::invalid_argument, -1, -1, "the links are listed by `collx_topo tree`",
             "no link joins '%s' and '%s', so none can be lost", g.name(a).c_str(), g.name(b).c_str());
    return left;
}

} // namespace sim
COLLX_END_NAMESPACE
