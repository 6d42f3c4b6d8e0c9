// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Paths from one site to another: their class, named and ordered as NCCL does, and the best path with the reason. The
// class of a path is the worst of its links'. The best path has the lowest class, then the highest rate, then the
// fewest links. Each path is found alone, as if it shared no link; topo/rings.hpp searches for rings.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <collx/topo/graph.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

// LOC the site itself, NVL by NVLink, NVB through one other GPU, C2C between CPU and GPU, PIX one PCIe switch, PXB
// several, P2C by C2C and then the PCIe of that CPU, PXN through a GPU beside the card, PHB the PCIe of a CPU, SYS
// between CPUs, NET the network, DIS no path.
enum class path_class : unsigned char { loc, nvl, nvb, c2c, pix, pxb, p2c, pxn, phb, sys, net, dis };

// Its name in `nvidia-smi topo -m` and here.
constexpr const char* name_of(path_class c) {
    constexpr const char* names[] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                     "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};
    return names[static_cast<int>(c)];
}

struct path {
    std::vector<int> arcs; // in order
    path_class type = path_class::dis;
    double bytes_per_s = 0; // of its narrowest link
    double latency_ns = 0;  // sum of its links
};

// The class of one link.
inline path_class class_of(const graph& g, const arc& a) {
    const auto one_is = [&](site_type t) { return g.at(a.from).type == t || g.at(a.to).type == t; };
    switch (a.type) {
        case link_type::nvlink: return path_class::nvl;
        case link_type::c2c: return path_class::c2c;
        case link_type::socket: return path_class::sys;
        case link_type::network: return path_class::net;
        case link_type::pcie: break;
    }
    if (one_is(site_type::cpu)) return path_class::phb;
    return g.at(a.from).type == g.at(a.to).type ? path_class::pxb : path_class::pix;
}

namespace detail {

// Searches for paths from one site to another over links of at most one class.
class way_search {
public:
    way_search(const graph& g, int from, int to) : g_(g), from_(from), to_(to) {}

    // The best path of at most this class; no arcs: there is none.
    path best(path_class most) {
        most_ = most;
        std::vector<double> rates;
        for (int i = 0; i < g_.arcs(); ++i)
            if (admits(g_.arc_at(i))) rates.push_back(g_.arc_at(i).bytes_per_s);
        std::sort(rates.begin(), rates.end());
        rates.erase(std::unique(rates.begin(), rates.end()), rates.end());
        std::size_t low = 0, high = rates.size(); // binary search for the highest rate with a path
        path found;
        while (low < high) {
            const std::size_t middle = (low + high) / 2;
            path way = shortest(rates[middle]);
            if (way.arcs.empty()) high = middle;
            else {
                found = std::move(way);
                low = middle + 1;
            }
        }
        return found;
    }

private:
    // P2C uses the PCIe of a CPU to which an end is linked by C2C; that end must use its C2C.
    bool is_beside(int cpu, int end) const {
        const auto& out = g_.arcs_of(end);
        return std::any_of(out.begin(), out.end(),
                           [&](int i) { return g_.arc_at(i).type == link_type::c2c && g_.arc_at(i).to == cpu; });
    }
    bool admits(const arc& a) const {
        const path_class c = class_of(g_, a);
        if (most_ != path_class::p2c || c != path_class::phb) return c <= most_;
        const int cpu = g_.at(a.from).type == site_type::cpu ? a.from : a.to, other = a.from + a.to - cpu;
        return (is_beside(cpu, from_) && other != from_) || (is_beside(cpu, to_) && other != to_);
    }
    bool may_continue(const arc& in, const arc& out) const {
        switch (g_.at(in.to).type) {
            case site_type::gpu: return false;
            case site_type::nic: return (in.type == link_type::network) != (out.type == link_type::network);
            default: return true;
        }
    }
    // Breadth first over links, not sites: a path may not enter and leave a card by the network.
    path shortest(double rate) const {
        std::vector<int> came(static_cast<std::size_t>(g_.arcs()), -2), queue;
        const auto visit = [&](int i, int before) {
            const arc& a = g_.arc_at(i);
            if (came[static_cast<std::size_t>(i)] != -2 || a.bytes_per_s < rate || !admits(a)) return;
            came[static_cast<std::size_t>(i)] = before;
            queue.push_back(i);
        };
        for (const int i : g_.arcs_of(from_)) visit(i, -1);
        for (std::size_t next = 0; next < queue.size(); ++next) {
            const int here = queue[next];
            const arc& a = g_.arc_at(here);
            if (a.to == to_) return path_of(here, came);
            for (const int i : g_.arcs_of(a.to))
                if (g_.arc_at(i).to != a.from && may_continue(a, g_.arc_at(i))) visit(i, here);
        }
        return {};
    }
    path path_of(int last, const std::vector<int>& came) const {
        path p;
        for (int i = last; i >= 0; i = came[static_cast<std::size_t>(i)]) p.arcs.insert(p.arcs.begin(), i);
        return p;
    }

    const graph& g_;
    int from_, to_;
    path_class most_ = path_class::net;
};

// Fills in class, rate and latency from the links.
inline path measured(const graph& g, path p) {
    p.type = path_class::loc;
    p.bytes_per_s = p.latency_ns = 0;
    bool by_c2c = false;
    for (std::size_t i = 0; i < p.arcs.size(); ++i) {
        const arc& a = g.arc_at(p.arcs[i]);
        p.type = std::max(p.type, class_of(g, a));
        p.bytes_per_s = i == 0 ? a.bytes_per_s : std::min(p.bytes_per_s, a.bytes_per_s);
        p.latency_ns += a.latency_ns;
        by_c2c = by_c2c || a.type == link_type::c2c;
    }
    if (p.type == path_class::phb && by_c2c) p.type = path_class::p2c;
    return p;
}

// The widest path by NVLink through one other GPU.
inline path through_neighbour(const graph& g, int from, int to) {
    path best;
    for (const int first : g.arcs_of(from))
        for (const int second : g.arcs_of(g.arc_at(first).to)) {
            const arc &a = g.arc_at(first), &b = g.arc_at(second);
            if (a.type != link_type::nvlink || b.type != link_type::nvlink || b.to != to ||
                g.at(a.to).type != site_type::gpu)
                continue;
            path p = measured(g, {{first, second}});
            p.type = path_class::nvb;
            if (p.bytes_per_s > best.bytes_per_s) best = p;
        }
    return best;
}

} // namespace detail

// The best path, which passes through no GPU except as NVB; type DIS if there is none. relays: false: no NVB either,
// for data that no GPU passes on.
inline path find_path(const graph& g, int from, int to, bool relays = true) {
    if (from == to) return {{}, path_class::loc, 0, 0};
    detail::way_search search(g, from, to);
    const bool are_gpus = g.at(from).type == site_type::gpu && g.at(to).type == site_type::gpu;
    for (const path_class most : {path_class::nvl, path_class::nvb, path_class::c2c, path_class::pix, path_class::pxb,
                                  path_class::p2c, path_class::phb, path_class::sys, path_class::net}) {
        if (most == path_class::nvb) {
            if (path p = are_gpus && relays ? detail::through_neighbour(g, from, to) : path{}; !p.arcs.empty())
                return p;
            continue;
        }
        if (path p = detail::measured(g, search.best(most)); !p.arcs.empty()) return p;
    }
    return {};
}

namespace detail {

// Calls visit(path) for each way from a GPU to a card through a GPU beside the card (PXN). That GPU is on the same
// host, reaches the card by PCIe switches or by its own CPU (P2C), and `gpu` by NVLink.
template <class Visit>
void each_pxn(const graph& g, int gpu, int nic, Visit&& visit) {
    for (const int peer : g.all(site_type::gpu, g.at(gpu).host)) {
        if (peer == gpu) continue;
        path p = find_path(g, gpu, peer);
        if (p.type != path_class::nvl) continue;
        const path out = find_path(g, peer, nic);
        if (out.type > path_class::p2c) continue;
        p.arcs.insert(p.arcs.end(), out.arcs.begin(), out.arcs.end());
        p = measured(g, std::move(p));
        p.type = path_class::pxn;
        visit(std::move(p));
    }
}

} // namespace detail

// The best path from a GPU to a card through a GPU beside the card. Only if it is wider than the direct path, or the
// direct path is worse than PXN. For sending only: a card does not write to another GPU's neighbour. No arcs: there is
// none.
inline path find_pxn(const graph& g, int gpu, int nic) {
    const path direct = find_path(g, gpu, nic);
    path best;
    detail::each_pxn(g, gpu, nic, [&](path p) {
        const bool helps = p.bytes_per_s > direct.bytes_per_s || direct.type > path_class::pxn;
        const bool is_better =
            p.bytes_per_s > best.bytes_per_s || (p.bytes_per_s == best.bytes_per_s && p.arcs.size() < best.arcs.size());
        if (helps && is_better) best = std::move(p);
    });
    return best;
}

// As find_path. Errors: invalid_argument, with both names, if there is no path.
inline path best_path(const graph& g, int from, int to) {
    path p = find_path(g, from, to);
    if (p.type == path_class::dis)
        fail(errc::invalid_argument, -1, -1, "link them, or leave one of them out",
             "the machine has no path from '%s' to '%s'", g.name(from).c_str(), g.name(to).c_str());
    return p;
}

// Writes a path as "GPU0 -NVLink 50- GPU3", in GB/s.
inline std::string to_text(const graph& g, const path& p) {
    std::string text = p.arcs.empty() ? "" : g.name(g.arc_at(p.arcs[0]).from);
    for (const int i : p.arcs) {
        char rate[32];
        std::snprintf(rate, sizeof rate, " %g- ", g.arc_at(i).bytes_per_s / 1e9);
        text += std::string(" -") + name_of(g.arc_at(i).type) + rate + g.name(g.arc_at(i).to);
    }
    return text;
}

// Explains the best path: its class and rate, the links that determine them, and a PXN path if there is one.
inline std::string why(const graph& g, int from, int to) {
    const path p = best_path(g, from, to);
    if (p.arcs.empty()) return g.name(from) + " is itself: LOC";
    char head[96];
    std::snprintf(head, sizeof head, "%s, %g GB/s, %g us: ", name_of(p.type), p.bytes_per_s / 1e9, p.latency_ns / 1e3);
    std::string text = head + to_text(g, p);
    const auto ends = [&](const arc& a) { return g.name(a.from) + " - " + g.name(a.to); };
    for (const int i : p.arcs)
        if (const arc& a = g.arc_at(i); class_of(g, a) == p.type) {
            text += "\n  its class comes from " + ends(a) + " (" + name_of(a.type) + ")";
            break;
        }
    if (p.type == path_class::nvb) text += "\n  no NVLink joins them; this GPU in between is linked to both";
    if (p.type == path_class::p2c) text += "\n  by C2C to the CPU, and by PCIe of that CPU";
    for (const int i : p.arcs)
        if (const arc& a = g.arc_at(i); a.bytes_per_s == p.bytes_per_s) {
            text += "\n  its rate comes from " + ends(a);
            break;
        }
    if (g.at(from).type == site_type::gpu && g.at(to).type == site_type::nic)
        if (const path relayed = find_pxn(g, from, to); !relayed.arcs.empty())
            text += "\n  to send, through a neighbour (PXN): " + to_text(g, relayed);
    return text;
}

} // namespace topo
COLLX_END_NAMESPACE
