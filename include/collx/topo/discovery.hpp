// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the kernel reports about this machine: NUMA nodes, caches and network cards, read from /sys without a library;
// and a graph (topo/graph.hpp) made of that. Another root than /sys may be a recorded tree. Missing entries are left
// out, as containers hide many of them. Measures nothing.
#pragma once

#include <dirent.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <collx/topo/machine_parts.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

// A NUMA node of this host.
struct numa_node {
    int number = 0;
    std::vector<int> cores;
    std::uint64_t memory_bytes = 0;
    std::vector<int> distances; // to all nodes, in their order; 10: itself
};
// A cache, and the cores that share it.
struct cache {
    int level = 0;
    std::string type; // Data, Instruction, Unified
    std::uint64_t bytes = 0;
    std::vector<int> cores; // that share it
};
// A network interface of this host.
struct network_card {
    std::string name;
    int node = -1;       // NUMA node, -1: not known
    int speed_mbit = -1; // -1: not known
    bool is_up = false;
};
// What /sys says of this host.
struct discovered {
    std::vector<numa_node> nodes;
    std::vector<cache> caches; // each once, lowest level first
    std::vector<network_card> cards;
};

namespace detail {

// Reads the first line of a file, without its end; empty if there is none.
inline std::string line_of(const std::string& path) {
    char text[4096] = "";
    std::FILE* f = std::fopen(path.c_str(), "re");
    if (f == nullptr) return "";
    if (std::fgets(text, sizeof text, f) == nullptr) text[0] = '\0';
    std::fclose(f);
    std::string line = text;
    while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.pop_back();
    return line;
}
inline int number_of(const std::string& text, int if_none) {
    char* end = nullptr;
    const long n = std::strtol(text.c_str(), &end, 10);
    return end != text.c_str() && n >= INT32_MIN && n <= INT32_MAX ? static_cast<int>(n) : if_none;
}
// Parses a size such as "512K".
inline std::uint64_t bytes_of(const std::string& text) {
    char* end = nullptr;
    const std::uint64_t n = std::strtoull(text.c_str(), &end, 10);
    return *end == 'K' ? n << 10 : *end == 'M' ? n << 20 : *end == 'G' ? n << 30 : n;
}
// Parses a list such as "0-3,8,10-11", at most 64 Ki numbers. Numbers that no int has are left out.
inline std::vector<int> list_in(const std::string& text) {
    std::vector<int> all;
    for (const char* at = text.c_str(); *at >= '0' && *at <= '9';) {
        char* end = nullptr;
        const long first = std::strtol(at, &end, 10);
        const long last = std::min<long>(*end == '-' ? std::strtol(end + 1, &end, 10) : first, INT32_MAX);
        for (long n = first; n <= last && all.size() < (1u << 16); ++n) all.push_back(static_cast<int>(n));
        at = *end == ',' ? end + 1 : end;
    }
    return all;
}
// The entries of a directory. With a prefix: those named by it and a number, in the order of the numbers.
inline std::vector<std::string> entries(const std::string& path, const std::string& prefix = "") {
    std::vector<std::string> names;
    DIR* d = ::opendir(path.c_str());
    for (const dirent* e; d != nullptr && (e = ::readdir(d)) != nullptr;) {
        const std::string name = e->d_name, number = name.substr(name.size() < prefix.size() ? 0 : prefix.size());
        const bool is_numbered = !number.empty() && number.find_first_not_of("0123456789") == number.npos;
        if (name[0] != '.' && name == prefix + number && (prefix.empty() || is_numbered)) names.push_back(name);
    }
    if (d != nullptr) ::closedir(d);
    std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
        return a.size() != b.size() ? a.size() < b.size() : a < b;
    });
    return names;
}

} // namespace detail

// Reads /sys. root: another place, for tests. Missing entries are left out.
inline discovered discover(const std::string& root = "/sys") {
    discovered d;
    const std::string nodes = root + "/devices/system/node", cores = root + "/devices/system/cpu";
    for (const auto& name : detail::entries(nodes, "node")) {
        const std::string at = nodes + "/" + name;
        numa_node n{detail::number_of(name.substr(4), 0), detail::list_in(detail::line_of(at + "/cpulist")), 0, {}};
        const std::string memory = detail::line_of(at + "/meminfo"); // "Node 0 MemTotal:  65 kB"
        if (const auto colon = memory.find("MemTotal:"); colon != memory.npos)
            n.memory_bytes = detail::bytes_of(memory.substr(colon + 9)) << 10;
        const std::string distances = detail::line_of(at + "/distance"); // "10 21"
        for (std::size_t from = 0; from < distances.size(); from = distances.find(' ', from))
            n.distances.push_back(detail::number_of(distances.substr(from += distances[from] == ' '), 0));
        d.nodes.push_back(std::move(n));
    }
    for (const auto& core : detail::entries(cores, "cpu"))
        for (const auto& index : detail::entries(cores + "/" + core + "/cache", "index")) {
            const std::string at = cores + "/" + core + "/cache/" + index + "/";
            cache c{detail::number_of(detail::line_of(at + "level"), 0), detail::line_of(at + "type"),
                    detail::bytes_of(detail::line_of(at + "size")),
                    detail::list_in(detail::line_of(at + "shared_cpu_list"))};
            const auto same = [&](const cache& o) {
                return o.level == c.level && o.type == c.type && o.cores == c.cores;
            };
            if (c.level > 0 && std::none_of(d.caches.begin(), d.caches.end(), same)) d.caches.push_back(std::move(c));
        }
    std::stable_sort(d.caches.begin(), d.caches.end(),
                     [](const cache& a, const cache& b) { return a.level < b.level; });
    for (const auto& name : detail::entries(root + "/class/net")) {
        const std::string at = root + "/class/net/" + name;
        DIR* device = ::opendir((at + "/device").c_str()); // bridges, lo and veth have no device
        if (device == nullptr) continue;
        ::closedir(device);
        d.cards.push_back({name, detail::number_of(detail::line_of(at + "/device/numa_node"), -1),
                           detail::number_of(detail::line_of(at + "/speed"), -1),
                           detail::line_of(at + "/operstate") == "up"});
    }
    return d;
}

// Makes a graph of NUMA nodes as CPUs, numbered as in `d`, followed by the cards that are up, each at the rate of its
// speed. The rate between nodes is `gb_per_s` at distance 20 and inversely proportional to the distance. That is a
// guess: firmware reports distances, not rates. A card whose node is not known is linked to all nodes.
inline graph graph_of(const discovered& d, double gb_per_s = 40) {
    graph g;
    for (const auto& n : d.nodes) g.add({"CPU" + std::to_string(n.number), site_type::cpu, 0, -1, 1, n.number});
    for (std::size_t a = 0; a < d.nodes.size(); ++a)
        for (std::size_t b = a + 1; b < d.nodes.size() && b < d.nodes[a].distances.size(); ++b)
            if (const int distance = d.nodes[a].distances[b]; distance > 0)
                g.link(static_cast<int>(a), static_cast<int>(b), link_type::socket, {gb_per_s * 1e9 * 20 / distance});
    for (const auto& c : d.cards) {
        if (!c.is_up || c.speed_mbit <= 0) continue;
        const int card = g.add({detail::card_name(c.name), site_type::nic, 0, -1, 1, c.node});
        for (std::size_t n = 0; n < d.nodes.size(); ++n)
            if (c.node < 0 || d.nodes[n].number == c.node)
                g.link(static_cast<int>(n), card, link_type::pcie, {c.speed_mbit * 125e3});
    }
    return g;
}

} // namespace topo
COLLX_END_NAMESPACE
