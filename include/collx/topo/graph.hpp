// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A machine as a value: sites (processors, switches, network cards) and directed links with a rate and a latency. Ranks
// are on GPUs or CPUs; other sites only pass data on. Knows no rank's program, no algorithm, and measures nothing.
// topo/machines.hpp has machines that are sold; topo/path.hpp finds paths from one site to another.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <collx/core/error.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

// What a machine is made of.
enum class site_type : unsigned char { cpu, pcie_switch, gpu, nvswitch, nic, network_switch };
// What connects two sites.
enum class link_type : unsigned char { nvlink, c2c, pcie, socket, network };

// Its name in pictures and explanations.
constexpr const char* name_of(site_type t) {
    constexpr const char* names[] = {"CPU", "PCIe switch", "GPU", "NVSwitch", "NIC", "network switch"};
    return names[static_cast<int>(t)];
}
constexpr const char* name_of(link_type t) {
    constexpr const char* names[] = {"NVLink", "C2C", "PCIe", "socket link", "network"};
    return names[static_cast<int>(t)];
}

// A cpu is one NUMA node. NVSwitches to which every GPU is linked in the same way are one site with `units` > 1: none
// of them is narrower than its GPUs together, so a ring need not distinguish them.
struct site {
    std::string name;
    site_type type = site_type::cpu;
    int host = 0;                // the operating system that it belongs to
    int rail = -1;               // nic: cards of one rail are on one network switch; -1: not known
    int units = 1;               // nvswitch: the number of switches that this site stands for
    int numa = -1;               // number of the NUMA node, -1: not known
    double port_bytes_per_s = 0; // nic: rate of its port, 0: not known
    bool has_multicast = false;  // nvswitch: it reduces and multicasts (NVLink SHARP: those of H100 and later)
    int device = -1;             // gpu, nic: its number on its host; -1: its place among those of the host
};

// One direction of a link; its other direction is the arc `back`.
struct arc {
    int from = 0, to = 0, back = 0;
    link_type type = link_type::pcie;
    double bytes_per_s = 0; // of all lanes together
    double latency_ns = 0;
    int lanes = 1; // the number of links side by side
};

// The speed of a link: bytes/s in each direction, one-way latency, and the number of links that this describes.
struct link_speed {
    double bytes_per_s = 0;
    double latency_ns = 0;
    int lanes = 1;
    double back_bytes_per_s = 0; // 0: the same
};

class graph {
public:
    // Adds a site. Errors: invalid_argument where the name is taken, since files and messages name sites.
    int add(site s) {
        if (find(s.name) >= 0)
            fail(errc::invalid_argument, -1, -1, "give each site a name of its own",
                 "a machine has two sites that are called '%s'", s.name.c_str());
        sites_.push_back(std::move(s));
        arcs_of_.emplace_back();
        return size() - 1;
    }
    // Links two sites in both directions; a second link of the same type adds to the first. Returns the arc a -> b.
    // Errors: invalid_argument, with both ends, for a site that does not exist, a link to itself, a rate (or a sum of
    // rates) that is not a positive number, a negative latency, or lanes below 1 or above 2^29.
    int link(int a, int b, link_type type, const link_speed& speed) {
        check(a, b, type, speed);
        const double back = speed.back_bytes_per_s > 0 ? speed.back_bytes_per_s : speed.bytes_per_s;
        for (const int i : arcs_of(a))
            if (arc& there = arcs_[index(i)]; there.to == b && there.type == type) {
                arc& reverse = arcs_[index(there.back)];
                const link_speed sum{there.bytes_per_s + speed.bytes_per_s, there.latency_ns, there.lanes + speed.lanes,
                                     reverse.bytes_per_s + back};
                check(a, b, type, sum);
                there.bytes_per_s = sum.bytes_per_s;
                reverse.bytes_per_s = sum.back_bytes_per_s;
                there.lanes = reverse.lanes = sum.lanes;
                return i;
            }
        const int there = arcs(), here = there + 1;
        arcs_.push_back({a, b, here, type, speed.bytes_per_s, speed.latency_ns, speed.lanes});
        arcs_.push_back({b, a, there, type, back, speed.latency_ns, speed.lanes});
        arcs_of_[index(a)].push_back(there);
        arcs_of_[index(b)].push_back(here);
        return there;
    }

    int size() const { return static_cast<int>(sites_.size()); }
    int arcs() const { return static_cast<int>(arcs_.size()); }
    const site& at(int s) const { return sites_[index(s)]; }
    site& at(int s) { return sites_[index(s)]; }
    const arc& arc_at(int i) const { return arcs_[index(i)]; }
    const std::string& name(int s) const { return at(s).name; }
    // The arcs that leave a site, in the order in which they were linked.
    const std::vector<int>& arcs_of(int s) const { return arcs_of_[index(s)]; }

    // The site of that name, or -1. require() throws instead, for a name that a user wrote.
    int find(const std::string& name) const {
        for (int s = 0; s < size(); ++s)
            if (at(s).name == name) return s;
        return -1;
    }
    int require(const std::string& name) const {
        const int s = find(name);
        if (s < 0)
            fail(errc::invalid_argument, -1, -1, "the machine's sites are listed by `collx_topo tree`",
                 "the machine has no site '%s'", name.c_str());
        return s;
    }
    // The sites of a type in order, of one host or of all (-1).
    std::vector<int> all(site_type type, int host = -1) const {
        std::vector<int> found;
        for (int s = 0; s < size(); ++s)
            if (at(s).type == type && (host < 0 || at(s).host == host)) found.push_back(s);
        return found;
    }

private:
    static std::size_t index(int i) { return static_cast<std::size_t>(i); }
    void check(int a, int b, link_type type, const link_speed& speed) const {
        for (const int end : {a, b})
            if (end < 0 || end >= size())
                fail(errc::invalid_argument, -1, -1, "add both sites before they are linked",
                     "a link (%s) has an end at site %d of a machine of %d sites", name_of(type), end, size());
        const char *from = name(a).c_str(), *to = name(b).c_str();
        if (a == b) fail(errc::invalid_argument, -1, -1, "leave it out", "'%s' is linked to itself", from);
        const auto is_rate = [](double r) { return r > 0 && std::isfinite(r); };
        if (!is_rate(speed.bytes_per_s) || !(speed.back_bytes_per_s == 0 || is_rate(speed.back_bytes_per_s)))
            fail(errc::invalid_argument, -1, -1, "give a positive rate, or leave the link out where there is none",
                 "the %s link '%s' - '%s' has a rate of %g bytes/s (back: %g)", name_of(type), from, to,
                 speed.bytes_per_s, speed.back_bytes_per_s);
        if (!(speed.latency_ns >= 0) || !std::isfinite(speed.latency_ns) || speed.lanes < 1 || speed.lanes > 1 << 29)
            fail(errc::invalid_argument, -1, -1, "give a latency of 0 or more and 1 to 536870912 lanes",
                 "the %s link '%s' - '%s' has a latency of %g ns and %d lanes", name_of(type), from, to,
                 speed.latency_ns, speed.lanes);
    }

    std::vector<site> sites_;
    std::vector<arc> arcs_;
    std::vector<std::vector<int>> arcs_of_;
};

} // namespace topo
COLLX_END_NAMESPACE
