// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parts of machines: rates per link by generation, hosts of GPUs, and hosts joined by rails. The machines themselves
// are in topo/machines.hpp (GPUs) and topo/clusters.hpp (CPUs).
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <collx/topo/graph.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

// The rates that describe a machine: those that its maker publishes, or those that NCCL counts on (a link's rate less
// its protocol's overhead), for comparison with NCCL's searches.
enum class rate_basis : unsigned char { published, nccl };

// GB/s in one direction. Source: makers' data sheets; NCCL 2.30 src/graph/topo.h. No published rate fits the socket
// links of all processors of a kind, so both bases use NCCL's.
struct link_rates {
    double nvlink = 0; // one link
    double pcie = 0;   // x16
    double socket = 0;
    double nic = 0;
};

// Initial one-way latencies in ns; a fit to measurements replaces them. Source: cuda-samples p2pBandwidthLatencyTest
// (1.8 to 2.3 us for a write by NVLink, through a switch or not), 0.1 to 0.2 us for a network switch, 0.5 to 1 us for a
// PCIe round trip.
struct link_latencies {
    static constexpr double nvlink = 1900, nvswitch = 1000, c2c = 500, pcie = 250, socket = 150, network = 400;
};

namespace detail {

// Errors: invalid_argument if the product of the counts is too large for a machine's sites or links.
inline void require_few(const char* what, std::initializer_list<int> counts) {
    double all = 1;
    for (const int n : counts) all *= n;
    if (all > 1 << 20)
        fail(errc::invalid_argument, -1, -1, "a machine has at most 1048576 sites or links of a kind",
             "%s: %.10g of them", what, all);
}

inline std::string numbered(const char* name, int number) { return name + std::to_string(number); }

// The name of a card: its system's, or "NIC " and that where it might be the name of another kind of site. (The name of
// an interface is its owner's choice.)
inline std::string card_name(const std::string& name) {
    const bool is_numbered = name.compare(0, 3, "GPU") == 0 || name.compare(0, 3, "CPU") == 0;
    const bool is_taken = is_numbered && name.find_first_not_of("0123456789", 3) == name.npos;
    const bool is_made = name == "NVSwitch" || name.compare(0, 4, "PCI ") == 0 || name.compare(0, 4, "NIC ") == 0;
    return is_taken || is_made ? "NIC " + name : name;
}

inline link_speed nvlinks(const link_rates& r, int lanes, double latency = link_latencies::nvlink) {
    return {r.nvlink * lanes * 1e9, latency, lanes};
}
inline link_speed pcie(const link_rates& r) { return {r.pcie * 1e9, link_latencies::pcie}; }
inline link_speed network(const link_rates& r) { return {r.nic * 1e9, link_latencies::network}; }

// Adds CPUs, each linked with all others.
inline void add_cpus(graph& g, const link_rates& r, int count) {
    for (int c = 0; c < count; ++c) g.add({numbered("CPU", c), site_type::cpu, 0, -1, 1, c});
    for (int a = 0; a < count; ++a)
        for (int b = a + 1; b < count; ++b) g.link(a, b, link_type::socket, {r.socket * 1e9, link_latencies::socket});
}
// Adds a PCIe switch below a CPU or a switch.
inline int add_switch(graph& g, const link_rates& r, int above) {
    const int s = g.add({numbered("PCI", static_cast<int>(g.all(site_type::pcie_switch).size())),
                         site_type::pcie_switch, 0, -1, 1, g.at(above).numa});
    g.link(above, s, link_type::pcie, pcie(r));
    return s;
}
// Adds a GPU or a card below a CPU or a switch. A card is on the rail of its number, and its port has the rate r.nic.
inline int add_device(graph& g, const link_rates& r, site_type type, int above) {
    const int number = static_cast<int>(g.all(type).size());
    const bool is_nic = type == site_type::nic;
    site device{numbered(is_nic ? "NIC" : "GPU", number), type, 0, is_nic ? number : -1, 1, g.at(above).numa};
    if (is_nic) device.port_bytes_per_s = r.nic * 1e9;
    const int s = g.add(std::move(device));
    g.link(above, s, link_type::pcie, pcie(r));
    return s;
}
// Links GPUs by their numbers.
inline void add_mesh(graph& g, const link_rates& r, int lanes, const std::vector<std::pair<int, int>>& pairs) {
    const std::vector<int> gpus = g.all(site_type::gpu);
    for (const auto& [a, b] : pairs)
        g.link(gpus[static_cast<std::size_t>(a)], gpus[static_cast<std::size_t>(b)], link_type::nvlink,
               nvlinks(r, lanes));
}
// Links all GPUs to `units` switches, with `lanes` links for each GPU in all.
inline void add_nvswitch(graph& g, const link_rates& r, int units, int lanes, bool has_multicast) {
    const int s = g.add({"NVSwitch", site_type::nvswitch, 0, -1, units});
    g.at(s).has_multicast = has_multicast;
    for (const int gpu : g.all(site_type::gpu))
        g.link(gpu, s, link_type::nvlink, nvlinks(r, lanes, link_latencies::nvswitch));
}

} // namespace detail

// Copies the sites and links of `one` behind those of `g`, as host `host`; names get `prefix`. Returns the first new
// site.
inline int add_copy(graph& g, const graph& one, int host, const std::string& prefix) {
    const int first = g.size();
    for (int s = 0; s < one.size(); ++s) {
        site copy = one.at(s);
        copy.name = prefix + copy.name;
        copy.host = host;
        g.add(std::move(copy));
    }
    for (int i = 0; i < one.arcs(); i += 2) {
        const arc &there = one.arc_at(i), &back = one.arc_at(i + 1);
        g.link(first + there.from, first + there.to, there.type,
               {there.bytes_per_s, there.latency_ns, there.lanes, back.bytes_per_s});
    }
    return first;
}

// Joins `count` hosts of one kind: card c of each is on one network switch with card c of all others (a rail), at `nic`
// GB/s in each direction. Site s of host h is site h * one.size() + s, named "h<h>.<name>"; the switches come last.
inline graph on_rails(const graph& one, int count, double nic) {
    if (count < 1) fail(errc::invalid_argument, -1, -1, "give at least one host", "%d hosts on rails", count);
    detail::require_few("hosts on rails", {count, one.size()});
    graph g;
    for (int h = 0; h < count; ++h) add_copy(g, one, h, "h" + std::to_string(h) + ".");
    const auto cards = one.all(site_type::nic);
    for (std::size_t c = 0; c < cards.size(); ++c) {
        const int rail = g.add({detail::numbered("rail", static_cast<int>(c)), site_type::network_switch, -1});
        for (int h = 0; h < count; ++h)
            g.link(h * one.size() + cards[c], rail, link_type::network, {nic * 1e9, link_latencies::network});
    }
    return g;
}

} // namespace topo
COLLX_END_NAMESPACE
