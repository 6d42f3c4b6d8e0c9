// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Writes a machine as NCCL's topology file, which has only CPUs, PCIe, GPUs, NVLink, C2C and cards. The network is left
// out, as NCCL finds it itself; bus ids are made from the numbers of sites.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <collx/topo/nccl_rates.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

namespace detail {

class nccl_topology_writer {
public:
    nccl_topology_writer(const graph& g, int sm) : g_(g), sm_(sm) {}
    xml_element write() {
        require_one_switch_domain();
        xml_element system{"system", {{"version", "1"}}, {}, 0};
        for (const int s : g_.all(site_type::cpu)) {
            const site& at = g_.at(s);
            xml_element cpu{"cpu", {{"numaid", std::to_string(at.numa)}}, {}, 0};
            const std::string hash = "0x" + std::to_string(at.host + 1);
            cpu.attributes.emplace_back("host_hash", hash);
            add_processor(cpu, s);
            add_below(cpu, s, -1);
            system.children.push_back(std::move(cpu));
        }
        return system;
    }

private:
    // All NVSwitches of a file are one to NCCL, so GPUs that reach different ones would seem to reach each other.
    void require_one_switch_domain() const {
        std::vector<char> is_reached(static_cast<std::size_t>(g_.size()), 0);
        std::vector<int> queue;
        const auto reach = [&](int s) {
            if (!std::exchange(is_reached[static_cast<std::size_t>(s)], 1)) queue.push_back(s);
        };
        const auto switches = g_.all(site_type::nvswitch);
        if (!switches.empty()) reach(switches[0]);
        for (std::size_t k = 0; k < queue.size(); ++k)
            for (const int i : g_.arcs_of(queue[k]))
                if (g_.arc_at(i).type == link_type::nvlink) reach(g_.arc_at(i).to);
        for (const int s : switches)
            if (!is_reached[static_cast<std::size_t>(s)])
                fail(errc::invalid_argument, -1, -1, "write a file for each host",
                     "NVLink joins no GPU of %s with one of %s, and a file of NCCL has one NVSwitch",
                     g_.name(switches[0]).c_str(), g_.name(s).c_str());
    }
    // The compute capability whose NVLinks have the rate of this GPU's, published or NCCL's; of several with that rate
    // the one that has so many.
    int capability_of(int gpu) const {
        static constexpr struct {
            int sm, most_links;
        } known[] = {{90, 18}, {100, 18}, {60, 4}, {70, 6}, {80, 12}}; // the first: a GPU without NVLink
        double rate = 0;
        int links = 0;
        for (const int i : g_.arcs_of(gpu))
            if (const arc& a = g_.arc_at(i); a.type == link_type::nvlink) {
                links += a.lanes;
                rate = a.bytes_per_s / 1e9 / a.lanes;
            }
        int best = known[0].sm;
        double least = std::numeric_limits<double>::infinity();
        for (const auto& k : known)
            for (const rate_basis basis : {rate_basis::published, rate_basis::nccl}) {
                const double off = std::abs(nvlink_rate(k.sm, basis) - rate) + 1e-3 * std::abs(k.most_links - links);
                if (links != 0 && off < least) {
                    best = k.sm;
                    least = off;
                }
            }
        return best;
    }
    static std::string bus_of(int s) {
        char text[24];
        std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", s >> 13 & 0xffff, s >> 5 & 0xff, s & 31);
        return text;
    }
    // Writes a processor for which NCCL counts the rate of this CPU's links to other CPUs.
    void add_processor(xml_element& cpu, int s) const {
        int rate = 10;
        for (const int i : g_.arcs_of(s))
            if (g_.arc_at(i).type == link_type::socket) rate = static_cast<int>(g_.arc_at(i).bytes_per_s / 1e9 + 0.5);
        const bool is_amd = rate == 16, is_ibm = rate == 32;
        cpu.attributes.emplace_back("arch", is_ibm ? "ppc64" : "x86_64");
        if (is_ibm) return;
        cpu.attributes.emplace_back("vendor", is_amd ? "AuthenticAMD" : "GenuineIntel");
        cpu.attributes.emplace_back("familyid", is_amd ? "143" : "6");
        cpu.attributes.emplace_back("modelid", is_amd       ? "49"
                                               : rate >= 40 ? "207"
                                               : rate >= 22 ? "143"
                                               : rate >= 10 ? "85"
                                                            : "79");
    }
    // Writes the PCIe generation and width whose rate, published or NCCL's, is nearest.
    static void add_speed(xml_element& e, double bytes_per_s) {
        static constexpr const char* words[] = {"2.5", "5.0", "8.0", "16.0", "32.0", "64.0"};
        double best = 1e30;
        int generation = 0, lanes = 0;
        for (int g = 0; g < 6; ++g)
            for (int width = 1; width <= 16; width *= 2)
                for (const rate_basis basis : {rate_basis::published, rate_basis::nccl}) {
                    const std::string word = std::string(words[g]) + " GT/s PCIe";
                    const double off = std::abs(pcie_rate(word, width, basis) * 1e9 - bytes_per_s);
                    if (off < best) {
                        best = off;
                        generation = g;
                        lanes = width;
                    }
                }
        e.attributes.emplace_back("link_speed", std::string(words[generation]) + " GT/s PCIe");
        e.attributes.emplace_back("link_width", std::to_string(lanes));
    }
    void add_below(xml_element& e, int s, int above) {
        for (const int i : g_.arcs_of(s)) {
            const arc& a = g_.arc_at(i);
            const site_type type = g_.at(a.to).type;
            if (a.to == above || type == site_type::cpu) continue;
            // A GPU that is linked to its CPU by C2C alone still needs a place on PCIe.
            const bool is_c2c = a.type == link_type::c2c && type == site_type::gpu && !has_pcie(a.to);
            if (a.type != link_type::pcie && !is_c2c) continue;
            const char* kind = type == site_type::gpu ? "0x030200" : type == site_type::nic ? "0x020700" : "0x060400";
            xml_element pci{"pci", {{"busid", bus_of(a.to)}, {"class", kind}}, {}, 0};
            add_speed(pci, is_c2c ? 12e9 : a.bytes_per_s);
            if (type == site_type::gpu) pci.children.push_back(gpu_of(a.to));
            else if (type == site_type::nic) pci.children.push_back(nic_of(a.to));
            else add_below(pci, a.to, s);
            e.children.push_back(std::move(pci));
        }
    }
    bool has_pcie(int s) const {
        for (const int i : g_.arcs_of(s))
            if (g_.arc_at(i).type == link_type::pcie) return true;
        return false;
    }
    static int place_in(const std::vector<int>& all, int s) {
        return static_cast<int>(std::find(all.begin(), all.end(), s) - all.begin());
    }
    // The number of a GPU or card on its host, as in a graph file (nccl_graph_of()).
    std::string number_of(int s) const {
        const site& at = g_.at(s);
        return std::to_string(at.device >= 0 ? at.device : place_in(g_.all(at.type, at.host), s));
    }
    xml_element gpu_of(int s) {
        const std::string sm = std::to_string(sm_ != 0 ? sm_ : capability_of(s));
        const std::string rank = std::to_string(place_in(g_.all(site_type::gpu), s));
        xml_element gpu{"gpu", {{"dev", number_of(s)}, {"sm", sm}, {"rank", rank}, {"gdr", "1"}}, {}, 0};
        for (const int i : g_.arcs_of(s)) {
            const arc& a = g_.arc_at(i);
            const std::string count = std::to_string(a.lanes);
            if (a.type == link_type::c2c) {
                const auto mb_per_s = std::to_string(std::lround(a.bytes_per_s / 1e6 / a.lanes));
                gpu.children.push_back({"c2c", {{"bw", mb_per_s}, {"count", count}}, {}, 0});
            }
            if (a.type != link_type::nvlink) continue;
            const site_type other = g_.at(a.to).type;
            const char* kind = other == site_type::nvswitch ? "0x068000"
                               : other == site_type::gpu    ? "0x030200"
                                                            : "0x068001";
            const std::string target = other == site_type::nvswitch ? "fffffff:ff:ff.0" : bus_of(a.to);
            gpu.children.push_back({"nvlink", {{"target", target}, {"count", count}, {"tclass", kind}}, {}, 0});
        }
        return gpu;
    }
    xml_element nic_of(int s) {
        const site& at = g_.at(s);
        double rate = at.port_bytes_per_s;
        for (const int i : g_.arcs_of(s))
            if (g_.arc_at(i).type == link_type::network) rate = g_.arc_at(i).bytes_per_s;
        xml_element net{
            "net",
            {{"name", at.name}, {"dev", number_of(s)}, {"speed", std::to_string(std::lround(rate / 125e3))}},
            {},
            0};
        if (at.rail >= 0) net.attributes.emplace_back("rail", std::to_string(at.rail));
        net.attributes.emplace_back("gdr", "1");
        return {"nic", {}, {net}, 0};
    }

    const graph& g_;
    const int sm_;
};

} // namespace detail

// Writes g. sm: compute capability of the GPUs (60 P100, 70 V100, 80 A100, 90 H100, 100 B200), from which NCCL takes
// the rate of a link; 0: of each GPU the one whose links are as fast. Ranks and devices have the numbers that the GPUs
// have in g, whatever their order in the file. Errors: invalid_argument for a machine with NVSwitches that no NVLinks
// join.
inline std::string write_nccl_topology(const graph& g, int sm = 0) {
    return to_xml(detail::nccl_topology_writer(g, sm).write());
}

} // namespace topo
COLLX_END_NAMESPACE
