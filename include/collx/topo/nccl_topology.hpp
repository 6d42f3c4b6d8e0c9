// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads NCCL's topology file (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE) as a machine. The file has system > cpu > pci > gpu
// and nic > net; attributes that are not needed are ignored. All NVSwitches become one site.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <collx/topo/nccl_rates.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

namespace detail {

class nccl_topology_reader {
public:
    nccl_topology_reader(const std::string& file, rate_basis basis) : file_(file), basis_(basis) {}

    graph read(const xml_element& system) {
        const attributes_of of{system, file_};
        if (system.name != "system") of.wrong("no <system>", "a topology file begins with <system version=\"1\">");
        if (of.needed("version") != "1") of.wrong("version " + of.needed("version"), "version 1 is read");
        for (const xml_element& cpu : system.children) add_cpu(cpu);
        if (g_.size() == 0) of.wrong("no <cpu>", "name the NUMA nodes, each with what hangs at it");
        link_cpus();
        for (const gpu_links& l : links_) add_links(l, *l.e);
        return std::move(g_);
    }

private:
    // NCCL compares bus ids as numbers.
    static std::string lowered(std::string bus) {
        for (char& c : bus) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
        return bus;
    }
    struct cpu_site {
        int site;
        double socket;
    };
    struct gpu_links {
        int gpu, sm, cpu;
        const xml_element* e;
    };
    static constexpr std::size_t most_cpus = 256; // of a host: each is linked to each
    static constexpr int most_sites = 4096;       // each name is compared with all before it

    // A name that no site has yet: several cpus may be of numaid -1, and a card may have any name.
    std::string name_on(int host, const std::string& name) const {
        const std::string whole = host == 0 ? name : "h" + std::to_string(host) + "." + name;
        std::string free = whole;
        for (int k = g_.size(); g_.find(free) >= 0; ++k) free = whole + "#" + std::to_string(k);
        return free;
    }
    // of_all: the name says no host.
    int add_site(const attributes_of& of, site s, bool of_all = false) {
        if (g_.size() == most_sites) of.wrong("more than 4096 sites", "give the machine of one host");
        s.name = name_on(of_all ? 0 : s.host, s.name);
        return g_.add(std::move(s));
    }
    void add_cpu(const xml_element& e) {
        const attributes_of of{e, file_};
        if (e.name != "cpu") of.wrong("<system> holds <cpu> only", "put it below a <cpu>");
        const std::string* hash = e.find("host_hash");
        const int host = hosts_.try_emplace(hash ? *hash : "", static_cast<int>(hosts_.size())).first->second;
        const int numa = of.number("numaid", -1, -1, 4095);
        (void)of.needed("numaid");
        const std::string* vendor = e.find("vendor");
        const int s = add_site(of, {numbered("CPU", numa < 0 ? 0 : numa), site_type::cpu, host, -1, 1, numa});
        if (++cpus_of_[host] > most_cpus) of.wrong("more than 256 CPUs on a host", "name its NUMA nodes");
        cpus_.push_back(
            {s, socket_rate(of.needed("arch"), vendor ? *vendor : "", of.number("modelid", 0, 0, 1 << 20))});
        for (const xml_element& child : e.children) add_below(child, s);
    }
    void add_below(const xml_element& e, int above) {
        const attributes_of of{e, file_};
        if (e.name == "nic") return add_cards(e, above, 5000); // no PCIe is known: no limit
        if (e.name == "pcilink") return of.no_content();       // its other end may come later, and it has no rate
        if (e.name != "pci") of.wrong("not known here", "below <cpu> and <pci> are <pci>, <nic>, <gpu>");
        const std::string bus = lowered(of.needed("busid"));
        const int host = g_.at(above).host;
        const auto [gpu, is_new] = buses_.try_emplace({host, bus}, -1);
        if (!is_new) of.wrong("busid " + bus + " comes twice", "each device of a host has its own");
        const std::string* speed = e.find("link_speed");
        const double rate = pcie_rate(speed ? *speed : "", of.number("link_width", 0, 0, 32), basis_);
        if (holds_gpu(e)) {
            for (const xml_element& child : e.children) {
                const int s = add_gpu(child, above, rate);
                if (gpu->second < 0) gpu->second = s; // of several GPUs of one device, the first
            }
            return;
        }
        const bool is_card = e.children.size() == 1 && e.children[0].name == "nic";
        if (is_card) return add_cards(e.children[0], above, rate);
        const int s = add_site(of, {"PCI " + bus, site_type::pcie_switch, host, -1, 1, g_.at(above).numa});
        g_.link(above, s, link_type::pcie, {rate * 1e9, link_latencies::pcie});
        for (const xml_element& child : e.children) add_below(child, s);
    }
    // Whether a <pci> is a GPU. Nothing else is in it then; NCCL would leave out what is.
    bool holds_gpu(const xml_element& pci) const {
        const xml_element *gpu = nullptr, *other = nullptr;
        for (const xml_element& child : pci.children) (child.name == "gpu" ? gpu : other) = &child;
        if (gpu != nullptr && other != nullptr)
            attributes_of{*other, file_}.wrong("not known beside <gpu>", "give it a <pci> with a busid of its own");
        return gpu != nullptr;
    }
    int add_gpu(const xml_element& e, int above, double rate) {
        const attributes_of of{e, file_};
        const int device = of.number("dev", 0, 0, 1 << 20), number = of.number("rank", device, 0, 1 << 20),
                  host = g_.at(above).host;
        const bool has_rank = e.find("rank") != nullptr;
        if (has_rank && !ranks_.insert(number).second)
            of.wrong("rank " + std::to_string(number) + " comes twice", "number the GPUs");
        const int s = add_site(of, {numbered("GPU", number), site_type::gpu, host, -1, 1, g_.at(above).numa}, has_rank);
        if (e.find("dev") != nullptr) g_.at(s).device = device;
        g_.link(above, s, link_type::pcie, {rate * 1e9, link_latencies::pcie});
        for (const xml_element& child : e.children) {
            if (child.name == "c2c") {
                const attributes_of c{child, file_};
                c.no_content();
                const double bw = c.rate("bw", 0) * c.number("count", 1, 1, 1024);
                if (!(bw > 0)) c.wrong("a rate of 0", "give bw in MB/s and a count");
                g_.link(cpus_.back().site, s, link_type::c2c,
                        {bw * 1e6, link_latencies::c2c, c.number("count", 1, 1, 1024)});
            } else if (child.name == "nvlink")
                links_.push_back({s, of.number("sm", 70, 1, 1000), cpus_.back().site, &child});
            else attributes_of{child, file_}.wrong("not known in <gpu>", "<nvlink> and <c2c> are");
        }
        return s;
    }
    void add_cards(const xml_element& nic, int above, double rate) {
        for (const xml_element& e : nic.children) {
            const attributes_of of{e, file_};
            if (e.name != "net") of.wrong("not known in <nic>", "<net> is");
            of.no_content();
            // Cards that NCCL does not use for messages.
            if (const std::string* used = e.find("net"); e.find("dev") == nullptr || (used && *used == "0")) continue;
            const std::string* given = e.find("name");
            const int number = of.number("dev", 0, 0, 1 << 20);
            double speed = of.rate("speed", 0);
            if (speed <= 0) speed = 10000; // as NCCL
            const std::string name = given && !given->empty() ? card_name(*given) : numbered("NIC", number);
            const int rail = of.number("rail", number, -1, 1 << 20);
            site s{name, site_type::nic, g_.at(above).host, rail, 1, g_.at(above).numa};
            s.port_bytes_per_s = speed * 125e3;
            s.device = number;
            g_.link(above, add_site(of, std::move(s)), link_type::pcie, {rate * 1e9, link_latencies::pcie});
        }
    }
    void link_cpus() {
        for (std::size_t a = 0; a < cpus_.size(); ++a)
            for (std::size_t b = a + 1; b < cpus_.size(); ++b)
                if (g_.at(cpus_[a].site).host == g_.at(cpus_[b].site).host)
                    g_.link(cpus_[a].site, cpus_[b].site, link_type::socket,
                            {std::min(cpus_[a].socket, cpus_[b].socket) * 1e9, link_latencies::socket});
    }
    void add_links(const gpu_links& l, const xml_element& e) {
        const attributes_of of{e, file_};
        of.no_content();
        const int gpu = l.gpu, sm = l.sm;
        const int count = of.number("count", 1, 1, 1024), kind = of.number("tclass", 0x030200, 0, 1 << 24);
        const double rate = nvlink_rate(sm, basis_) * count * 1e9;
        if (kind == 0x068000) {
            if (switches_ < 0) switches_ = add_site(of, {"NVSwitch", site_type::nvswitch, g_.at(gpu).host}, true);
            g_.at(switches_).has_multicast = sm >= first_multicast_sm;
            g_.link(gpu, switches_, link_type::nvlink, {rate, link_latencies::nvswitch, count});
            return;
        }
        const std::string target = lowered(of.needed("target"));
        int other = l.cpu; // NCCL, too, takes the CPU that the GPU is below
        if (kind != 0x068001) {
            const auto it = buses_.find({g_.at(gpu).host, target});
            if (it == buses_.end() || it->second < 0 || it->second == gpu)
                of.wrong("target " + target + " is no other GPU of this file",
                         "name the bus id of a <pci> with a <gpu>");
            other = it->second;
        }
        for (const int i : g_.arcs_of(gpu)) // the other end has listed this link already
            if (g_.arc_at(i).to == other && g_.arc_at(i).type == link_type::nvlink && listed_.count({other, gpu}) != 0)
                return;
        listed_.insert({{gpu, other}, true});
        g_.link(gpu, other, link_type::nvlink, {rate, link_latencies::nvlink, count});
    }

    const std::string& file_;
    const rate_basis basis_;
    graph g_;
    std::vector<cpu_site> cpus_;
    std::map<int, std::size_t> cpus_of_; // by host
    std::map<std::string, int> hosts_;
    std::map<std::pair<int, std::string>, int> buses_; // by host: the GPU there, -1: another device
    std::set<int> ranks_;
    std::vector<gpu_links> links_;
    std::map<std::pair<int, int>, bool> listed_;
    int switches_ = -1;
};

} // namespace detail

// Reads a machine from an NCCL topology file. file: its name in messages.
// Errors: invalid_argument as "FILE:LINE: what (remedy)".
inline graph read_nccl_topology(const std::string& text, const std::string& file = "topology",
                                rate_basis basis = rate_basis::published) {
    const xml_element root = read_xml(text, file);
    return detail::nccl_topology_reader(file, basis).read(root);
}

} // namespace topo
COLLX_END_NAMESPACE
