// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds NVLinks, which /sys does not show, by the driver's library (NVML): which GPU or switch is at the other end of
// each link. The library is opened on use and may be absent. Its functions are a table of pointers, which a test or a
// program may replace. Source of names and layouts: NVIDIA's NVML API reference; its header is not needed.
#pragma once

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>

#include <collx/topo/pci_discovery.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo {

// nvmlPciInfo_t, as nvmlDeviceGetPciInfo_v3 fills it.
struct nvml_pci_info {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32]; // "00000000:3B:00.0"
};

// The functions of NVML that are called, by name; they return 0 on success. All null: there is no NVML.
struct nvml_functions {
    using device = void*;
    int (*init)() = nullptr;                                       // nvmlInit_v2
    int (*shutdown)() = nullptr;                                   // nvmlShutdown
    int (*count)(unsigned*) = nullptr;                             // nvmlDeviceGetCount_v2
    int (*by_index)(unsigned, device*) = nullptr;                  // nvmlDeviceGetHandleByIndex_v2
    int (*pci_info)(device, nvml_pci_info*) = nullptr;             // nvmlDeviceGetPciInfo_v3
    int (*capability)(device, int*, int*) = nullptr;               // nvmlDeviceGetCudaComputeCapability
    int (*link_state)(device, unsigned, unsigned*) = nullptr;      // nvmlDeviceGetNvLinkState
    int (*remote_pci)(device, unsigned, nvml_pci_info*) = nullptr; // nvmlDeviceGetNvLinkRemotePciInfo_v2
    int (*remote_type)(device, unsigned, unsigned*) = nullptr;     // nvmlDeviceGetNvLinkRemoteDeviceType
    bool is_there() const {
        return init != nullptr && shutdown != nullptr && count != nullptr && by_index != nullptr &&
               pci_info != nullptr && capability != nullptr && link_state != nullptr && remote_pci != nullptr &&
               remote_type != nullptr;
    }
};

// Loads the functions of the driver's library; all null if it or one of them is missing. The library stays open until
// the process ends, because NVML's threads may outlive a shutdown.
inline nvml_functions load_nvml(const char* library = "libnvidia-ml.so.1") {
    void* const handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
    nvml_functions f;
    if (handle == nullptr) return f;
    const auto find = [&](auto& to, const char* name) {
        to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(::dlsym(handle, name));
    };
    find(f.init, "nvmlInit_v2");
    find(f.shutdown, "nvmlShutdown");
    find(f.count, "nvmlDeviceGetCount_v2");
    find(f.by_index, "nvmlDeviceGetHandleByIndex_v2");
    find(f.pci_info, "nvmlDeviceGetPciInfo_v3");
    find(f.capability, "nvmlDeviceGetCudaComputeCapability");
    find(f.link_state, "nvmlDeviceGetNvLinkState");
    find(f.remote_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    find(f.remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType");
    if (f.is_there()) return f;
    ::dlclose(handle);
    return {};
}

// A GPU and the other ends of its links that are up.
struct nvml_gpu {
    std::string bus_id; // as /sys writes it: "0000:3b:00.0"
    int sm = 70;        // compute capability, 90 for 9.0
    int switch_links = 0;
    std::map<std::string, int> gpu_links; // by the other GPU's bus id
};
// What NVML reports; problem: empty, or the query that failed.
struct nvml_view {
    std::vector<nvml_gpu> gpus;
    std::string problem;
};

namespace detail {

// Converts NVML's bus id, with eight digits and capitals, to that of /sys, with four digits and small letters.
inline std::string sysfs_bus_id(std::string id) {
    if (id.size() == 16 && id.compare(0, 4, "0000") == 0) id.erase(0, 4);
    for (char& c : id) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return id;
}
inline std::string bus_id_of(const nvml_pci_info& info) {
    const std::string id(info.bus_id, std::find(info.bus_id, info.bus_id + sizeof info.bus_id, '\0'));
    return sysfs_bus_id(id);
}

inline nvml_gpu links_of(const nvml_functions& f, nvml_functions::device device, const std::string& bus_id) {
    constexpr unsigned most_links = 64, to_gpu = 0, to_switch = 2;
    nvml_gpu g;
    g.bus_id = bus_id;
    int major = 0, minor = 0;
    if (f.capability(device, &major, &minor) == 0 && major > 0) g.sm = 10 * major + minor;
    for (unsigned k = 0; k < most_links; ++k) {
        unsigned is_up = 0, kind = 255;
        nvml_pci_info other{};
        if (f.link_state(device, k, &is_up) != 0 || is_up == 0 || f.remote_type(device, k, &kind) != 0) continue;
        if (kind == to_switch) ++g.switch_links;
        if (kind == to_gpu && f.remote_pci(device, k, &other) == 0) ++g.gpu_links[bus_id_of(other)];
    }
    return g;
}

} // namespace detail

// Finds the GPUs that NVML shows, with their links. A GPU that cannot be queried is left out, and `problem` names it.
inline nvml_view discover_nvlinks(const nvml_functions& f) {
    constexpr unsigned most_gpus = 1024;
    nvml_view view;
    if (!f.is_there()) {
        view.problem = "NVML is not there";
        return view;
    }
    if (const int code = f.init(); code != 0) {
        view.problem = "nvmlInit_v2 failed with " + std::to_string(code);
        return view;
    }
    unsigned count = 0;
    if (const int code = f.count(&count); code != 0)
        view.problem = "nvmlDeviceGetCount_v2 failed with " + std::to_string(code);
    for (unsigned i = 0; i < std::min(count, most_gpus); ++i) {
        nvml_functions::device device = nullptr;
        nvml_pci_info info{};
        if (f.by_index(i, &device) == 0 && f.pci_info(device, &info) == 0)
            view.gpus.push_back(detail::links_of(f, device, detail::bus_id_of(info)));
        else view.problem = "GPU " + std::to_string(i) + " of NVML cannot be asked";
    }
    f.shutdown();
    return view;
}

// Adds NVLinks to the GPUs of a machine, at the rate of their generation. of_gpu: sites by bus id, from with_devices().
// A GPU that is missing there, for example one of another container, is left out; of a GPU that the view has twice the
// first counts. A link that only one end reports
// counts; if the ends report different counts, the larger one holds.
inline void add_nvlinks(graph& g, const std::map<std::string, int>& of_gpu, const nvml_view& view,
                        rate_basis basis = rate_basis::published) {
    std::map<std::pair<int, int>, std::pair<int, double>> between; // lanes, and GB/s of one
    std::set<int> seen;
    int switches = -1;
    for (const nvml_gpu& one : view.gpus) {
        const auto here = of_gpu.find(one.bus_id);
        if (here == of_gpu.end() || !seen.insert(here->second).second) continue;
        const double rate = detail::nvlink_rate(one.sm, basis);
        if (one.switch_links > 0) {
            if (switches < 0) switches = g.add({"NVSwitch", site_type::nvswitch});
            g.at(switches).has_multicast = one.sm >= detail::first_multicast_sm;
            g.link(here->second, switches, link_type::nvlink,
                   {rate * one.switch_links * 1e9, link_latencies::nvswitch, one.switch_links});
        }
        for (const auto& [bus_id, lanes] : one.gpu_links) {
            const auto there = of_gpu.find(bus_id);
            if (there == of_gpu.end() || there->second == here->second) continue;
            auto& pair = between[std::minmax(here->second, there->second)];
            if (lanes > pair.first) pair = {lanes, rate};
        }
    }
    for (const auto& [ends, link] : between)
        g.link(ends.first, ends.second, link_type::nvlink,
               {link.second * link.first * 1e9, link_latencies::nvlink, link.first});
}

// The machine of this host, or a recorded one, with NVLinks. problem: if not null, gets the query of NVML that failed.
inline graph discover_graph(const std::string& root, const nvml_functions& nvml, std::string* problem = nullptr) {
    std::map<std::string, int> of_gpu;
    graph g = discover_graph(root, &of_gpu);
    if (of_gpu.empty()) return g; // no need to ask NVML
    const nvml_view view = discover_nvlinks(nvml);
    if (problem != nullptr) *problem = view.problem;
    add_nvlinks(g, of_gpu, view);
    return g;
}

} // namespace topo
COLLX_END_NAMESPACE
