// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// GPUs, cards and the PCIe switches between them, as /sys/devices or a recorded tree shows them, added to the NUMA
// nodes of topo/discovery.hpp. NVLink is not shown there. Missing entries are left out; measures nothing.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <collx/topo/discovery.hpp>
#include <collx/topo/nccl_rates.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

// A device of the PCI tree.
struct pci_device {
    std::string bus_id;
    unsigned type = 0; // the class: 0x0302xx and 0x0300xx GPUs, 0x02xxxx cards, 0x0604xx bridges
    unsigned vendor = 0;
    int numa = -1;
    double bytes_per_s = 0;           // of its link, 0: not known
    std::vector<std::string> names;   // RDMA devices and network interfaces, in this order
    double port_bytes_per_s = 0;      // of the first port whose rate is known
    std::vector<std::string> bridges; // above it, the outermost first
};

namespace detail {

inline bool is_bus_id(const std::string& name) { // dddd:bb:dd.f
    return name.size() >= 12 && name[name.size() - 2] == '.' && name[name.size() - 5] == ':' &&
           name[name.size() - 8] == ':' && name.find_first_not_of("0123456789abcdef:.") == name.npos;
}

class pci_walk {
public:
    explicit pci_walk(const std::string& root) : root_(root) {}
    std::vector<pci_device> run() {
        for (const std::string& bus : entries(root_ + "/devices", ""))
            if (bus.compare(0, 3, "pci") == 0) walk(root_ + "/devices/" + bus);
        std::sort(found_.begin(), found_.end(),
                  [](const pci_device& a, const pci_device& b) { return a.bus_id < b.bus_id; });
        return std::move(found_);
    }

private:
    static constexpr std::size_t most_devices = 1 << 14, most_depth = 32;

    void walk(const std::string& folder) {
        for (const std::string& name : entries(folder, ""))
            if (is_bus_id(name) && found_.size() < most_devices && above_.size() < most_depth) {
                found_.push_back(read(folder + "/" + name, name));
                above_.push_back(name);
                walk(folder + "/" + name);
                above_.pop_back();
            }
    }
    pci_device read(const std::string& at, const std::string& name) const {
        pci_device d;
        d.bus_id = name;
        d.type = static_cast<unsigned>(std::strtoul(line_of(at + "/class").c_str(), nullptr, 16));
        d.vendor = static_cast<unsigned>(std::strtoul(line_of(at + "/vendor").c_str(), nullptr, 16));
        d.numa = number_of(line_of(at + "/numa_node"), -1);
        d.bridges = above_;
        const int width = number_of(line_of(at + "/max_link_width"), 0);
        if (const std::string speed = line_of(at + "/max_link_speed"); width > 0 && width <= 32 && !speed.empty())
            d.bytes_per_s = pcie_rate(speed, width, rate_basis::published) * 1e9;
        for (const std::string& rdma : entries(at + "/infiniband", "")) {
            d.names.push_back(rdma);
            const double gbit = number_of(line_of(at + "/infiniband/" + rdma + "/ports/1/rate"), 0);
            if (d.port_bytes_per_s <= 0 && gbit > 0) d.port_bytes_per_s = gbit * 125e6;
        }
        for (const std::string& card : entries(at + "/net", "")) {
            d.names.push_back(card);
            const double mbit = number_of(line_of(at + "/net/" + card + "/speed"), 0);
            if (d.port_bytes_per_s <= 0 && mbit > 0) d.port_bytes_per_s = mbit * 125e3;
        }
        return d;
    }

    const std::string root_;
    std::vector<pci_device> found_;
    std::vector<std::string> above_;
};

} // namespace detail

// All PCI devices, in the order of their bus ids.
inline std::vector<pci_device> discover_pci(const std::string& root = "/sys") { return detail::pci_walk(root).run(); }

// Adds the PCIe switches, GPUs ("GPU0", ... by bus id) and cards (named as their RDMA device or interface) of a host
// below its CPUs, which `g` has already. Linux shows a switch as two bridges, its upstream and its downstream port;
// here it is one site. A root port is the CPU's. A link has the rate of its slower end, or of PCIe 3 x16 if neither is
// known. of_gpu: if not null, gets the site of each GPU by bus id. Requires: bridges are among the devices.
inline graph with_devices(graph g, const std::vector<pci_device>& devices,
                          std::map<std::string, int>* of_gpu = nullptr) {
    std::map<std::string, const pci_device*> by_id;
    for (const pci_device& d : devices) by_id[d.bus_id] = &d;
    std::map<std::string, int> sites;
    // Adds the site of a device, and first the site above it: two bridges up, else its CPU.
    const auto add = [&](const auto& self, const pci_device& dev, site s) -> int {
        if (const auto it = sites.find(dev.bus_id); it != sites.end()) return it->second;
        int above = 0;
        for (const int cpu : g.all(site_type::cpu))
            if (g.at(cpu).numa == dev.numa) above = cpu;
        double rate = dev.bytes_per_s;
        const std::size_t depth = dev.bridges.size();
        if (depth >= 1)
            if (const double port = by_id[dev.bridges[depth - 1]]->bytes_per_s; port > 0)
                rate = rate > 0 ? std::min(rate, port) : port;
        if (depth >= 2) {
            const pci_device& upper = *by_id[dev.bridges[depth - 2]];
            above = self(self, upper, {"PCI " + upper.bus_id, site_type::pcie_switch, 0, -1, 1, upper.numa});
        }
        const int here = g.add(std::move(s));
        g.link(above, here, link_type::pcie, {rate > 0 ? rate : 15.75e9, link_latencies::pcie});
        return sites[dev.bus_id] = here;
    };
    int gpus = 0, cards = 0;
    for (const pci_device& dev : devices) {
        // A display controller of another vendor is a server's console.
        const bool is_makers = dev.vendor == 0x10de || dev.vendor == 0x1002;
        const bool is_gpu = dev.type >> 8 == 0x0302 || (dev.type >> 8 == 0x0300 && is_makers),
                   is_card = dev.type >> 16 == 0x02 && !dev.names.empty();
        if (is_gpu) {
            const int s = add(add, dev, {detail::numbered("GPU", gpus++), site_type::gpu, 0, -1, 1, dev.numa});
            if (of_gpu != nullptr) (*of_gpu)[dev.bus_id] = s;
        }
        if (!is_card) continue;
        const std::string name = detail::card_name(dev.names[0]);
        site s{g.find(name) < 0 ? name : "NIC " + dev.bus_id, site_type::nic, 0, cards++, 1, dev.numa};
        s.port_bytes_per_s = dev.port_bytes_per_s;
        add(add, dev, std::move(s));
    }
    return g;
}

// The machine of this host, or a recorded one: NUMA nodes with the devices that with_devices() adds. of_gpu: as there.
inline graph discover_graph(const std::string& root = "/sys", std::map<std::string, int>* of_gpu = nullptr) {
    discovered d = discover(root);
    if (d.nodes.empty()) d.nodes.push_back({}); // hidden: everything is at one CPU
    d.cards.clear();
    return with_devices(graph_of(d), discover_pci(root), of_gpu);
}

} // namespace topo
COLLX_END_NAMESPACE
