// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads the XML that hwloc exports (lstopo --of xml; versions 2 and 3): NUMA nodes, the PCIe tree, GPUs and cards with
// their names in the system, and NVLinks if hwloc was built with NVML (distances2 "NVLinkBandwidth"). Source: hwloc 2.9
// and 3.0, "Importing and exporting topologies from/to XML files". A library would require hwloc itself wherever a file
// is read.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <collx/core/decimal.hpp>
#include <collx/topo/pci_discovery.hpp>
#include <collx/topo/xml.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

namespace detail {

class hwloc_reader {
public:
    explicit hwloc_reader(const std::string& file) : file_(file) {}

    graph read(const xml_element& root) {
        const attributes_of of{root, file_};
        if (root.name != "topology")
            of.wrong("no <topology>", "an export of hwloc begins with <topology version=\"2.0\">");
        const std::string version = of.needed("version");
        if (version.compare(0, 2, "2.") != 0 && version.compare(0, 2, "3.") != 0)
            of.wrong("version " + version, "versions 2 and 3 are read: lstopo --of xml of hwloc 2 or later");
        has_bits_ = version[0] == '3';
        for (const xml_element& e : root.children)
            if (e.name == "object") collect_nodes(e);
        if (nodes_.nodes.empty()) of.wrong("no NUMANode", "export the whole machine, with its memory");
        for (const xml_element& e : root.children)
            if (e.name == "object") walk(e, nodes_.nodes[0].number);
        std::sort(devices_.begin(), devices_.end(),
                  [](const pci_device& a, const pci_device& b) { return a.bus_id < b.bus_id; });
        if (const xml_element* e = distances_in(root, "NUMALatency")) read_latencies(*e);
        graph g = with_devices(graph_of(nodes_), devices_, &gpus_);
        if (const xml_element* e = distances_in(root, "NVLinkBandwidth")) add_nvlinks(g, *e);
        return g;
    }

private:
    static constexpr std::size_t most_nodes = 256, most_devices = 1 << 14; // each node is linked to each
    static constexpr int most_objects = 512;                               // of a matrix, which may link each to each
    struct matrix {
        std::vector<std::string> objects; // each once
        std::vector<double> values;       // row after row
        double at(std::size_t row, std::size_t column) const { return values[row * objects.size() + column]; }
    };

    // The matrix of that name; null if there is none.
    const xml_element* distances_in(const xml_element& root, const char* name) const {
        const xml_element* found = nullptr;
        for (const xml_element& e : root.children) {
            const std::string* n = e.find("name");
            if (e.name.compare(0, 10, "distances2") != 0 || n == nullptr || *n != name) continue;
            if (found != nullptr) attributes_of{e, file_}.wrong(*n + " comes twice", "keep one of them");
            found = &e;
        }
        return found;
    }
    void collect_nodes(const xml_element& e) {
        const attributes_of of{e, file_};
        if (of.needed("type") == "NUMANode") {
            const int number = of.number("os_index", -1, 0, 1 << 16);
            if (number < 0) of.wrong("a NUMANode without os_index", "export it again");
            for (const numa_node& n : nodes_.nodes)
                if (n.number == number) of.wrong("NUMANode " + std::to_string(number) + " comes twice", "number them");
            if (nodes_.nodes.size() == most_nodes) of.wrong("more than 256 NUMANodes", "give the machine of one host");
            nodes_.nodes.push_back({number, {}, 0, {}});
        }
        for (const xml_element& child : e.children)
            if (child.name == "object") collect_nodes(child);
    }
    // The lowest node in a set such as "0x00000001,0x00000002": words of 32 bits, the highest first.
    int first_node(const attributes_of& of, int if_none) const {
        const std::string* set = of.e.find("nodeset");
        if (set == nullptr) return if_none;
        std::vector<std::string> words(1);
        for (const char c : *set)
            if (c == ',') words.emplace_back();
            else words.back().push_back(c);
        for (std::size_t k = words.size(); k-- > 0;) {
            const std::string& w = words[k];
            char* end = nullptr;
            const unsigned long bits = std::strtoul(w.c_str(), &end, 16);
            if (*end != '\0' || bits > 0xffff'ffffUL) of.wrong("nodeset=\"" + *set + "\"", "words of 32 bits after 0x");
            for (int b = 0; b < 32; ++b)
                if ((bits >> b & 1) != 0) return static_cast<int>(32 * (words.size() - 1 - k)) + b;
        }
        return if_none;
    }
    void walk(const xml_element& e, int node) {
        const attributes_of of{e, file_};
        const std::string type = of.needed("type");
        node = first_node(of, node);
        const std::string* kind = e.find("bridge_type");
        const bool is_bridge = type == "Bridge" && kind != nullptr && *kind == "1-1";
        if (type == "PCIDev" || is_bridge) add_device(of, node, is_bridge);
        if (type == "Package")
            if (const std::string* index = index_of(of)) node_of_[*index] = node;
        if (is_bridge) above_.push_back(devices_.back().bus_id);
        if (type == "OSDev") add_name(of);
        const bool is_device = type == "PCIDev";
        if (is_device) inside_ = static_cast<int>(devices_.size()) - 1;
        for (const xml_element& child : e.children)
            if (child.name == "object") walk(child, node);
        if (is_device) inside_ = -1;
        if (is_bridge) above_.pop_back();
    }
    void add_device(const attributes_of& of, int node, bool is_bridge) {
        pci_device d;
        d.bus_id = of.needed("pci_busid");
        if (!is_bus_id(d.bus_id)) of.wrong("pci_busid=\"" + d.bus_id + "\"", "as hwloc writes it: 0000:3b:00.0");
        if (!seen_.insert(d.bus_id).second)
            of.wrong("pci_busid " + d.bus_id + " comes twice", "each device has its own");
        if (devices_.size() == most_devices) of.wrong("more than 16384 devices", "give the machine of one host");
        const std::string* words = of.e.find("pci_type"); // "0302 [10de:20b0] [10de:1463] a1"
        unsigned type = is_bridge ? 0x0604 : 0, vendor = 0;
        if (words != nullptr && std::sscanf(words->c_str(), "%4x [%4x:", &type, &vendor) != 2)
            of.wrong("pci_type=\"" + *words + "\"", "as hwloc writes it: 0302 [10de:20b0] ...");
        if (words == nullptr && !is_bridge) (void)of.needed("pci_type");
        d.type = type << 8;
        d.vendor = vendor;
        d.numa = node;
        d.bridges = above_;
        d.bytes_per_s = of.rate("pci_link_speed", 0) * 1e9;
        note_index(of, d.bus_id);
        devices_.push_back(std::move(d));
    }
    // osdev_type is 2 for network devices and 3 for RDMA devices in version 2; version 3 has the bits 16 and 32.
    void add_name(const attributes_of& of) {
        if (inside_ < 0) return; // of no PCI device, for example a disk of a hypervisor
        pci_device& d = devices_[static_cast<std::size_t>(inside_)];
        note_index(of, d.bus_id);
        const int kind = of.number("osdev_type", 0, 0, 1 << 16);
        const bool is_rdma = has_bits_ ? (kind & 32) != 0 : kind == 3;
        if (is_rdma || (has_bits_ ? (kind & 16) != 0 : kind == 2))
            d.names.insert(is_rdma ? d.names.begin() : d.names.end(), of.needed("name"));
    }
    void note_index(const attributes_of& of, const std::string& bus_id) {
        if (const std::string* index = index_of(of)) bus_of_[*index] = bus_id;
    }
    // The number by which matrices name an object; null if it has none.
    const std::string* index_of(const attributes_of& of) {
        const std::string* index = of.e.find("gp_index");
        if (index != nullptr && !indexes_.insert(*index).second)
            of.wrong("gp_index " + *index + " comes twice", "each object has its own");
        return index;
    }

    matrix matrix_of(const xml_element& e) const {
        const attributes_of of{e, file_};
        const int n = of.number("nbobjs", 0, 1, most_objects);
        matrix m;
        for (const xml_element& part : e.children) {
            std::vector<std::string> words;
            for (const char c : part.text + " ") {
                if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
                    if (!words.empty() && !words.back().empty()) words.emplace_back();
                } else {
                    if (words.empty()) words.emplace_back();
                    words.back().push_back(c);
                }
            }
            if (!words.empty() && words.back().empty()) words.pop_back();
            for (std::string& w : words) {
                if (part.name == "indexes") m.objects.push_back(w.substr(w.find(':') == w.npos ? 0 : w.find(':') + 1));
                if (part.name != "u64values") continue;
                m.values.push_back(0);
                const bool is_number = collx::detail::read_decimal(w, m.values.back());
                if (!is_number || !(m.values.back() >= 0) || m.values.back() > 1e12)
                    attributes_of{part, file_}.wrong("'" + w.substr(0, 40) + "'", "give numbers from 0 to 1e12");
            }
        }
        const auto size = static_cast<std::size_t>(n);
        if (m.objects.size() != size || m.values.size() != size * size)
            of.wrong(std::to_string(m.objects.size()) + " objects and " + std::to_string(m.values.size()) +
                         " values for nbobjs " + std::to_string(n),
                     "as many objects, and their square of values");
        std::set<std::string> seen;
        for (const std::string& object : m.objects)
            if (!seen.insert(object).second) of.wrong("object " + object.substr(0, 40) + " comes twice", "each once");
        return m;
    }
    void read_latencies(const xml_element& e) {
        const matrix m = matrix_of(e);
        std::vector<std::size_t> place; // of each node in the matrix
        for (const numa_node& n : nodes_.nodes) {
            const auto it = std::find(m.objects.begin(), m.objects.end(), std::to_string(n.number));
            place.push_back(static_cast<std::size_t>(it - m.objects.begin()));
        }
        for (std::size_t a = 0; a < place.size(); ++a) {
            std::vector<int>& distances = nodes_.nodes[a].distances;
            distances.clear();
            for (const std::size_t column : place) {
                const bool is_there = place[a] < m.objects.size() && column < m.objects.size();
                const double v = is_there ? m.at(place[a], column) : 0;
                distances.push_back(v < 1e6 ? static_cast<int>(v) : 0);
            }
        }
    }
    // Rates in MB/s between GPUs, between GPUs and packages of CPUs (POWER 9), and between GPUs and NVSwitches (PCI
    // devices of class 0680), which become one site.
    void add_nvlinks(graph& g, const xml_element& e) {
        const matrix m = matrix_of(e);
        const attributes_of of{e, file_};
        std::vector<int> gpus, cpus; // -1: another object
        for (const std::string& object : m.objects) {
            gpus.push_back(gpu_of(object, of));
            cpus.push_back(cpu_of(object));
        }
        int switches = -1;
        for (std::size_t a = 0; a < m.objects.size(); ++a)
            for (std::size_t b = 0; b < m.objects.size(); ++b) {
                const int from = gpus[a], to = gpus[b];
                if (a == b || from < 0 || (to >= 0 && a > b)) continue;
                if (to == from) of.wrong("a GPU comes twice", "each object once");
                if (m.at(a, b) != m.at(b, a))
                    of.wrong("the rates between " + m.objects[a].substr(0, 40) + " and " + m.objects[b].substr(0, 40) +
                                 " are " + rate_text(m.at(a, b)) + " and " + rate_text(m.at(b, a)) + " MB/s",
                             "one of them is wrong: both ways are alike");
                const double rate = m.at(a, b) * 1e6;
                if (rate <= 0) continue;
                if (cpus[b] >= 0) {
                    g.link(from, cpus[b], link_type::nvlink, {rate, link_latencies::nvlink});
                    continue;
                }
                if (to < 0 && switches < 0) switches = g.add({"NVSwitch", site_type::nvswitch});
                g.link(from, to < 0 ? switches : to, link_type::nvlink,
                       {rate, to < 0 ? link_latencies::nvswitch : link_latencies::nvlink});
            }
    }
    static std::string rate_text(double mb_per_s) { return collx::detail::decimal(mb_per_s, 6); }
    // The site of a GPU; -1: an NVSwitch or a package.
    int gpu_of(const std::string& index, const attributes_of& of) const {
        const auto bus = bus_of_.find(index);
        if (bus == bus_of_.end() && cpu_of(index) >= 0) return -1;
        if (bus == bus_of_.end()) of.wrong("object " + index.substr(0, 40) + " is not there", "indexes are gp_index");
        const auto gpu = gpus_.find(bus->second);
        if (gpu != gpus_.end()) return gpu->second;
        for (const pci_device& d : devices_)
            if (d.bus_id == bus->second && d.type >> 8 != 0x0680)
                of.wrong("object " + index.substr(0, 40) + " is no GPU, NVSwitch or package",
                         "NVLinks join only these");
        return -1;
    }
    // The site of a package's first node; -1: no package.
    int cpu_of(const std::string& index) const {
        const auto node = node_of_.find(index);
        for (std::size_t k = 0; node != node_of_.end() && k < nodes_.nodes.size(); ++k)
            if (nodes_.nodes[k].number == node->second) return static_cast<int>(k); // as graph_of() adds them
        return -1;
    }

    const std::string& file_;
    discovered nodes_;
    std::vector<pci_device> devices_;
    std::vector<std::string> above_; // the bridges above the object that is read
    std::set<std::string> seen_, indexes_;
    std::map<std::string, std::string> bus_of_; // by gp_index
    std::map<std::string, int> node_of_;        // of packages, by gp_index
    std::map<std::string, int> gpus_;
    bool has_bits_ = false; // osdev_type is a set of bits
    int inside_ = -1;       // the device whose names are read
};

} // namespace detail

// Reads the machine from an export of hwloc. file: its name in messages. Rates of PCIe links are those of the file, x16
// of PCIe 3 where it has none. Rates between NUMA nodes are guessed from distances, as in graph_of(). The rates of
// cards' ports stay unknown.
// Errors: invalid_argument as "FILE:LINE: what (remedy)".
inline graph read_hwloc_topology(const std::string& text, const std::string& file = "topology") {
    const xml_element root = read_xml(text, file, xml_form::with_text);
    return detail::hwloc_reader(file).read(root);
}

} // namespace topo
COLLX_END_NAMESPACE
