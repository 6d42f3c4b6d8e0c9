// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds sets of rings through some ranks' sites in which no link carries more than its rate, and a bound that no set
// exceeds. Within an island (topo/islands.hpp) rings are packed. Across the network ring k enters and leaves each
// island by the card of rail k, so that no flow crosses rails. Searches the machine's description; measures nothing.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <collx/topo/islands.hpp>
#include <collx/topo/max_flow.hpp>
#include <collx/topo/ring_packing.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

// members[i] sends to members[i + 1] by hops[i]; the last one sends to the first.
struct ring {
    std::vector<int> members;
    std::vector<path> hops;
};
// Rings that run at the same time, and their rates.
struct ring_set {
    std::vector<ring> rings;    // none: there is no ring
    double bytes_per_s = 0;     // of each ring
    double bound = 0;           // bytes/s that no set exceeds (max-flow over all links)
    double class_bound = 0;     // the same over links of the classes that were used
    double allowed_bound = 0;   // the same over links of the classes that the options allow
    way_limits limits;          // the worst classes that were needed
    bool is_complete = true;    // false: a search ended at its budget; there may be wider rings
    bool is_rank_order = false; // the search found nothing better than one ring in the order given
    double total() const { return bytes_per_s * static_cast<double>(rings.size()); }
};
// Options of find_rings().
struct ring_options {
    way_limits limits;          // the worst paths that may be used
    std::vector<double> speeds; // bytes/s of a ring, to try in this order; empty: the rates of links and their shares
    int most_rings = 32;
    bool once = false;     // no GPU twice in a ring, also not between two members: algo::on_route needs that
    long budget = 1 << 14; // steps of one attempt (island shape, rate, pair of classes); 16 attempts may use it up
};

// The sites of a ring in order: members, and GPUs between them that only pass data on.
inline std::vector<int> ranks_along(const graph& g, const ring& r) {
    std::vector<int> sites;
    for (std::size_t h = 0; h < r.hops.size(); ++h) {
        sites.push_back(r.members[h]);
        for (std::size_t k = 0; k + 1 < r.hops[h].arcs.size(); ++k)
            if (const int s = g.arc_at(r.hops[h].arcs[k]).to; g.at(s).type == site_type::gpu) sites.push_back(s);
    }
    return sites;
}

namespace detail {

inline constexpr double quarter_more = 1.25;

class ring_search {
public:
    ring_search(const graph& g, const std::vector<int>& members, const ring_options& options)
        : g_(g), members_(members), options_(options), islands_(islands_of(g, members)) {
        result_.bound = ring_bound(g, members);
        rails_ = islands_[0].cards.size();
        for (const island& in : islands_) rails_ = std::min(rails_, in.cards.size());
    }
    // Tries classes from the best on. A worse one is used only where it could carry a quarter more: full NVLink is not
    // mixed with PCIe for a smaller gain.
    ring_set run() {
        if (islands_.size() > 1 && rails_ == 0) return std::move(result_); // some island has no card
        for (const path_class intra : {path_class::nvl, path_class::nvb, path_class::phb, path_class::sys})
            for (const path_class inter :
                 {path_class::pxb, path_class::p2c, path_class::pxn, path_class::phb, path_class::sys}) {
                if (islands_.size() == 1 && inter != path_class::pxb) continue;
                const way_limits limits{std::min(intra, options_.limits.intra), std::min(inter, options_.limits.inter),
                                        options_.limits.relays};
                bound_ = islands_.size() == 1 ? ring_bound(within(limits.intra), members_) : result_.bound;
                if (bound_ >= result_.total() * quarter_more && bound_ > 0) try_speeds(limits);
            }
        result_.allowed_bound = bound_; // that of the worst classes, which come last
        return std::move(result_);
    }

private:
    struct packed {
        std::vector<ring> rings; // local; with several islands hops.front() leaves the card, hops.back() leads to it
        bool is_complete = true;
    };

    bool is_enough() const { return result_.total() >= bound_ * (1 - 1e-9); }
    // The machine with only the links of at most this class.
    graph within(path_class most) const {
        graph some;
        for (int s = 0; s < g_.size(); ++s) some.add(g_.at(s));
        for (int i = 0; i < g_.arcs(); i += 2) {
            const arc &a = g_.arc_at(i), &b = g_.arc_at(i + 1);
            if (class_of(g_, a) <= most)
                some.link(a.from, a.to, a.type, {a.bytes_per_s, a.latency_ns, a.lanes, b.bytes_per_s});
        }
        return some;
    }

    void try_speeds(const way_limits& limits) {
        known_.clear();
        std::map<std::string, routes> ways;
        for (const double speed : speeds()) {
            if (attempts_left_ <= 0) result_.is_complete = false;
            if (attempts_left_ <= 0 || is_enough()) return;
            const int most = static_cast<int>(std::min<double>(options_.most_rings, bound_ * (1 + 1e-9) / speed));
            if (most * speed <= result_.total() * (1 + 1e-9)) continue;
            int count = most;
            std::vector<const packed*> parts;
            bool is_complete = true;
            for (const island& in : islands_) {
                parts.push_back(&pack(in, limits, speed, most, ways));
                count = std::min(count, static_cast<int>(parts.back()->rings.size()));
                is_complete = is_complete && parts.back()->is_complete;
                if (count * speed <= result_.total() * (1 + 1e-9)) break;
            }
            result_.is_complete = result_.is_complete && is_complete;
            if (count * speed > result_.total() * (1 + 1e-9)) keep(parts, count, speed, limits);
        }
    }
    std::vector<double> speeds() const {
        if (!options_.speeds.empty()) return options_.speeds;
        std::vector<double> all;
        for (int i = 0; i < g_.arcs(); ++i)
            for (int k = 1; k <= 8; ++k) all.push_back(g_.arc_at(i).bytes_per_s / k);
        std::sort(all.rbegin(), all.rend());
        all.erase(std::unique(all.begin(), all.end(), [](double a, double b) { return a - b < 1e-9 * a; }), all.end());
        return all;
    }
    // The rings of an island, found once for all islands of its shape.
    const packed& pack(const island& in, const way_limits& limits, double speed, int most,
                       std::map<std::string, routes>& ways) {
        const std::string shape = shape_of(in);
        const auto [it, is_new] = known_.try_emplace({shape, speed});
        if (!is_new) return it->second;
        routes& r = ways.try_emplace(shape, in.local, limits).first->second;
        const bool is_alone = islands_.size() == 1;
        const std::vector<int> cards(in.cards.begin(), in.cards.begin() + static_cast<std::ptrdiff_t>(rails_)),
            first{in.members[0]};
        ring_packing search(in.local, in.members, is_alone ? first : cards, r, options_.once);
        std::vector<stop_ring> found;
        if (is_alone) found = search.find(speed, most, options_.budget, true);
        bool gave_up = is_alone && search.has_given_up();
        attempts_left_ -= gave_up;
        if (static_cast<int>(found.size()) < most) {
            ring_packing singly(in.local, in.members, is_alone ? first : cards, r, options_.once);
            std::vector<stop_ring> others = singly.find(speed, most, options_.budget, false);
            gave_up = singly.has_given_up();
            attempts_left_ -= gave_up;
            if (others.size() > found.size()) return it->second = {local_rings(others), !gave_up};
        }
        return it->second = {local_rings(found), !gave_up};
    }
    static std::vector<ring> local_rings(const std::vector<stop_ring>& found) {
        std::vector<ring> rings;
        for (const stop_ring& f : found) {
            ring r{f.stops, {}};
            for (const path* way : f.ways) r.hops.push_back(*way);
            rings.push_back(std::move(r));
        }
        return rings;
    }
    // Makes rings of the whole machine, as many as the network carries; keeps them if they are better.
    void keep(const std::vector<const packed*>& parts, int count, double speed, const way_limits& limits) {
        std::vector<double> left;
        for (int i = 0; i < g_.arcs(); ++i) left.push_back(g_.arc_at(i).bytes_per_s * (1 + 1e-9));
        std::vector<ring> rings;
        for (int k = 0; k < count; ++k) {
            ring r = islands_.size() == 1 ? whole(parts, k) : across(parts, k, speed, left);
            if (r.members.empty()) break;
            rings.push_back(std::move(r));
        }
        if (static_cast<double>(rings.size()) * speed <= result_.total()) return;
        result_.rings = std::move(rings);
        result_.bytes_per_s = speed;
        result_.limits = limits;
        result_.class_bound = bound_;
    }
    path global(const island& in, path p) const {
        for (int& i : p.arcs) i = in.arc_of[static_cast<std::size_t>(i)];
        return p;
    }
    ring whole(const std::vector<const packed*>& parts, int k) const {
        ring r = parts[0]->rings[static_cast<std::size_t>(k)];
        for (int& m : r.members) m = islands_[0].site_of[static_cast<std::size_t>(m)];
        for (path& p : r.hops) p = global(islands_[0], std::move(p));
        return r;
    }
    // Joins ring k of all islands from card to card.
    ring across(const std::vector<const packed*>& parts, int k, double speed, std::vector<double>& left) const {
        ring r;
        for (std::size_t at = 0; at < islands_.size(); ++at) {
            const island &in = islands_[at], &next = islands_[(at + 1) % islands_.size()];
            const ring &here = parts[at]->rings[static_cast<std::size_t>(k)],
                       &there = parts[(at + 1) % islands_.size()]->rings[static_cast<std::size_t>(k)];
            const auto site = [](const island& i, int s) { return i.site_of[static_cast<std::size_t>(s)]; };
            path join = network_way(g_, site(in, here.members[0]), site(next, there.members[0]), speed, left);
            if (join.arcs.empty()) return {};
            for (std::size_t m = 1; m < here.members.size(); ++m) r.members.push_back(site(in, here.members[m]));
            for (std::size_t h = 1; h + 1 < here.hops.size(); ++h) r.hops.push_back(global(in, here.hops[h]));
            const path out = global(in, here.hops.back()), into = global(next, there.hops.front());
            join.arcs.insert(join.arcs.begin(), out.arcs.begin(), out.arcs.end());
            join.arcs.insert(join.arcs.end(), into.arcs.begin(), into.arcs.end());
            r.hops.push_back(measured(g_, std::move(join)));
        }
        return r;
    }
    const graph& g_;
    const std::vector<int>& members_;
    const ring_options& options_;
    const std::vector<island> islands_;
    std::size_t rails_ = 0;
    std::map<std::pair<std::string, double>, packed> known_;
    double bound_ = 0;       // of the classes that are being tried
    int attempts_left_ = 16; // attempts that may still end at their budget
    ring_set result_;
};

// One ring in the order given over the best path of each pair, with the rate that its most loaded link allows.
inline ring_set rank_order_ring(const graph& g, const std::vector<int>& members) {
    ring_set set;
    ring r{members, {}};
    std::vector<int> times(static_cast<std::size_t>(g.arcs()), 0);
    for (std::size_t k = 0; k < members.size(); ++k) {
        r.hops.push_back(find_path(g, members[k], members[(k + 1) % members.size()]));
        if (r.hops.back().type == path_class::dis) return set;
        for (const int i : r.hops.back().arcs) ++times[static_cast<std::size_t>(i)];
    }
    set.bytes_per_s = std::numeric_limits<double>::infinity();
    for (int i = 0; i < g.arcs(); ++i)
        if (const int n = times[static_cast<std::size_t>(i)]; n > 0)
            set.bytes_per_s = std::min(set.bytes_per_s, g.arc_at(i).bytes_per_s / n);
    set.rings.push_back(std::move(r));
    set.is_rank_order = true;
    return set;
}

} // namespace detail

// Returns the widest set of rings that the search finds through the members: GPUs or CPUs, two or more, each once.
// Ensures: deterministic; no link carries more than its rate; total() <= bound, and without limits, speeds and once at
// least that of one ring in the order given over the best paths. No rings where members do not reach one another.
// Cost: bounded by budget steps for each rate and pair of classes, and two max-flows for each member.
// Errors: invalid_argument for fewer than two members, one that is no GPU or CPU of the machine, one that comes twice.
inline ring_set find_rings(const graph& g, const std::vector<int>& members, const ring_options& options = {}) {
    if (members.size() < 2)
        fail(errc::invalid_argument, -1, -1, "name at least two", "a ring of %zu members", members.size());
    for (std::size_t k = 0; k < members.size(); ++k) {
        const int m = members[k];
        if (m < 0 || m >= g.size() || (g.at(m).type != site_type::gpu && g.at(m).type != site_type::cpu))
            fail(errc::invalid_argument, -1, -1, "name GPUs or CPUs", "site %d of a machine of %d can hold no rank", m,
                 g.size());
        if (std::find(members.begin(), members.begin() + static_cast<std::ptrdiff_t>(k), m) !=
            members.begin() + static_cast<std::ptrdiff_t>(k))
            fail(errc::invalid_argument, -1, -1, "name each once", "'%s' is a member of the ring twice",
                 g.name(m).c_str());
    }
    for (const double s : options.speeds)
        if (!(s > 0)) fail(errc::invalid_argument, -1, -1, "give bytes/s", "rings of %g bytes/s", s);
    ring_set found = detail::ring_search(g, members, options).run();
    if (!options.speeds.empty() || !(options.limits == way_limits{}) || options.once ||
        found.total() >= found.bound * (1 - 1e-9))
        return found;
    ring_set simple = detail::rank_order_ring(g, members);
    if (simple.total() <= found.total() * (1 + 1e-9)) return found;
    simple.bound = simple.class_bound = simple.allowed_bound = found.bound;
    simple.is_complete = found.is_complete;
    return simple;
}

} // namespace topo
COLLX_END_NAMESPACE
