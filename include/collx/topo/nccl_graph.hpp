// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// NCCL's graph file (NCCL_GRAPH_FILE, NCCL_GRAPH_DUMP_FILE): the order of the GPUs for each channel, with the cards by
// which the channel enters and leaves a host. Reads it, writes it, and makes it from the rings of topo/rings.hpp.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <collx/core/decimal.hpp>
#include <collx/topo/nccl_rates.hpp>
#include <collx/topo/rings.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

// One ring of NCCL's graph file.
struct nccl_channel {
    std::vector<int> gpus; // dev, in order
    int net_in = -1, net_out = -1;
};
struct nccl_graph {
    int id = 0;      // 0 ring, 1 tree, 2 CollNet chain, 3 NVLS, 4 CollNet direct
    int pattern = 4; // 1 balanced tree, 2 split tree, 3 tree, 4 ring, 5 NVLS, 6 CollNet direct
    int crossnic = 0;
    double speed_intra = 0, speed_inter = 0, latency_inter = 0; // GB/s, us
    std::string type_intra = "NVL", type_inter = "PIX";
    bool same_channels = false;
    std::vector<nccl_channel> channels;
};

namespace detail {

// A <channel>: a card, GPUs, a card.
inline nccl_channel channel_of(const xml_element& e, const std::string& file, bool is_ring) {
    const attributes_of in{e, file};
    if (e.name != "channel") in.wrong("not known in <graph>", "<channel> is");
    nccl_channel channel;
    std::set<int> seen;
    for (const xml_element& stop : e.children) {
        const attributes_of s{stop, file};
        s.no_content();
        (void)s.needed("dev");
        const int dev = s.number("dev", 0, 0, 1 << 30);
        if (stop.name == "gpu") {
            if (!seen.insert(dev).second && is_ring)
                s.wrong("dev " + *stop.find("dev") + " comes twice", "each GPU once");
            channel.gpus.push_back(dev);
        } else if (stop.name == "net") {
            int& net = channel.gpus.empty() ? channel.net_in : channel.net_out;
            if (net >= 0) s.wrong("two cards in a row", "one before the GPUs, one after them");
            net = dev;
        } else s.wrong("not known in <channel>", "<gpu> and <net> are");
    }
    if (channel.gpus.empty()) in.wrong("a channel without a GPU", "list its GPUs in order");
    return channel;
}

} // namespace detail

// Reads a graph file. Errors: invalid_argument as "FILE:LINE: what (remedy)".
inline std::vector<nccl_graph> read_nccl_graphs(const std::string& text, const std::string& file = "graph") {
    const xml_element root = read_xml(text, file);
    const detail::attributes_of of{root, file};
    if (root.name != "graphs" || of.needed("version") != "1")
        of.wrong("no graphs of version 1", "begin with <graphs version=\"1\">");
    const auto type_of = [&](const detail::attributes_of& a, const char* name) {
        const std::string word = a.needed(name);
        for (int c = 0; c <= static_cast<int>(path_class::dis); ++c)
            if (word == name_of(static_cast<path_class>(c))) return word;
        a.wrong(std::string(name) + "=\"" + word + "\"",
                "name a class: LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS NET DIS");
    };
    std::vector<nccl_graph> graphs;
    std::set<int> ids;
    for (const xml_element& e : root.children) {
        const detail::attributes_of a{e, file};
        if (e.name != "graph") a.wrong("not known in <graphs>", "<graph> is");
        nccl_graph g{a.number("id", 0, 0, 15),
                     a.number("pattern", 4, 1, 6),
                     a.number("crossnic", 0, 0, 2),
                     a.rate("speedintra", 0),
                     a.rate("speedinter", 0),
                     a.rate("latencyinter", 0),
                     type_of(a, "typeintra"),
                     type_of(a, "typeinter"),
                     a.number("samechannels", 0, 0, 1) != 0,
                     {}};
        if (!ids.insert(g.id).second) a.wrong("id " + std::to_string(g.id) + " comes twice", "keep one of them");
        for (const xml_element& c : e.children) g.channels.push_back(detail::channel_of(c, file, g.pattern == 4));
        if (const int n = a.number("nchannels", -1, 0, 1 << 20); n >= 0 && n != static_cast<int>(g.channels.size()))
            a.wrong("nchannels=\"" + std::to_string(n) + "\" and " + std::to_string(g.channels.size()) + " channels",
                    "make them agree");
        graphs.push_back(std::move(g));
    }
    return graphs;
}

// Writes the text of a graph file: NCCL_GRAPH_FILE.
inline std::string write_nccl_graphs(const std::vector<nccl_graph>& graphs) {
    const auto number = [](double x) { return collx::detail::decimal(x, 6); };
    xml_element root{"graphs", {{"version", "1"}}, {}, 0};
    for (const nccl_graph& g : graphs) {
        xml_element e{"graph",
                      {{"id", std::to_string(g.id)},
                       {"pattern", std::to_string(g.pattern)},
                       {"crossnic", std::to_string(g.crossnic)},
                       {"nchannels", std::to_string(g.channels.size())},
                       {"speedintra", number(g.speed_intra)},
                       {"speedinter", number(g.speed_inter)},
                       {"latencyinter", number(g.latency_inter)},
                       {"typeintra", g.type_intra},
                       {"typeinter", g.type_inter},
                       {"samechannels", g.same_channels ? "1" : "0"}},
                      {},
                      0};
        for (const nccl_channel& c : g.channels) {
            xml_element channel{"channel", {}, {}, 0};
            const auto add = [&](const char* what, int dev) {
                // Old versions of NCCL read decimal numbers, new ones hexadecimal; both take the prefix.
                char text[16];
                std::snprintf(text, sizeof text, dev < 10 ? "%d" : "0x%x", static_cast<unsigned>(dev));
                channel.children.push_back({what, {{"dev", text}}, {}, 0});
            };
            if (c.net_in >= 0) add("net", c.net_in);
            for (const int dev : c.gpus) add("gpu", dev);
            if (c.net_out >= 0) add("net", c.net_out);
            e.children.push_back(std::move(channel));
        }
        root.children.push_back(std::move(e));
    }
    return to_xml(root);
}

// The rings of one host as NCCL reads them. GPUs and cards have their numbers on that host (site::device).
// Errors: invalid_argument if a ring passes through no GPU of the host.
inline nccl_graph nccl_graph_of(const graph& g, const ring_set& set, int host = 0) {
    nccl_graph out;
    out.speed_intra = out.speed_inter = set.bytes_per_s / 1e9;
    out.type_intra = name_of(set.limits.intra);
    out.type_inter = name_of(set.limits.inter);
    const auto gpus = g.all(site_type::gpu, host), cards = g.all(site_type::nic, host);
    const auto number = [&](const std::vector<int>& all, int s) {
        if (g.at(s).device >= 0) return g.at(s).device;
        return static_cast<int>(std::find(all.begin(), all.end(), s) - all.begin());
    };
    for (const ring& r : set.rings) {
        nccl_channel c;
        for (std::size_t k = 0; k < r.members.size(); ++k) {
            if (const site& s = g.at(r.members[k]); s.host == host && s.type == site_type::gpu)
                c.gpus.push_back(number(gpus, r.members[k]));
            for (const int i : r.hops[k].arcs)
                if (const arc& a = g.arc_at(i); a.type == link_type::network) {
                    if (g.at(a.from).host == host && g.at(a.from).type == site_type::nic)
                        c.net_out = number(cards, a.from);
                    if (g.at(a.to).host == host && g.at(a.to).type == site_type::nic) c.net_in = number(cards, a.to);
                }
        }
        if (c.gpus.empty())
            fail(errc::invalid_argument, -1, -1, "a graph file is of one host and lists its GPUs",
                 "a ring passes through no GPU of host %d", host);
        out.channels.push_back(std::move(c));
    }
    return out;
}

} // namespace topo
COLLX_END_NAMESPACE
