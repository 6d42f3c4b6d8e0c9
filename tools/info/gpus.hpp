// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Queries the NVIDIA driver: which devices there are, and how each pair of them reaches each other's memory, by the
// rules of collx's transports. The driver's library is loaded at run time, so collx_info needs no CUDA. Its few
// functions are in a table, which a test may fill with its own.
#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

#include <collx/transport/gpu_links.hpp>

#include "facts.hpp"

namespace collx::tools::info {

struct gpu_driver {
    // From cuda.h; 0 is success everywhere.
    int (*init)(unsigned flags) = nullptr;
    int (*version)(int* version) = nullptr;
    int (*count)(int* devices) = nullptr;
    int (*get)(int* device, int ordinal) = nullptr;
    int (*name)(char* text, int bytes, int device) = nullptr;
    int (*bus_id)(char* text, int bytes, int device) = nullptr;
    int (*can_access)(int* answer, int device, int peer) = nullptr;
    int (*p2p)(int* answer, int attribute, int device, int peer) = nullptr;
    int (*attribute)(int* answer, int attribute, int device) = nullptr;
    std::string why_not = {}; // the driver cannot be queried
};

inline gpu_driver find_gpu_driver() {
    gpu_driver d;
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        d.why_not = "there is no NVIDIA driver here (libcuda.so.1 was not found)";
        return d;
    }
    const auto find = [&](auto& f, const char* symbol) {
        f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(::dlsym(library, symbol));
        if (f == nullptr) d.why_not = std::string("the NVIDIA driver has no ") + symbol;
    };
    find(d.init, "cuInit");
    find(d.version, "cuDriverGetVersion");
    find(d.count, "cuDeviceGetCount");
    find(d.get, "cuDeviceGet");
    find(d.name, "cuDeviceGetName");
    find(d.bus_id, "cuDeviceGetPCIBusId");
    find(d.can_access, "cuDeviceCanAccessPeer");
    find(d.p2p, "cuDeviceGetP2PAttribute");
    find(d.attribute, "cuDeviceGetAttribute");
    return d;
}

struct gpus_found {
    std::string why_none; // empty: there are some
    int driver_version = 0;
    struct one {
        std::string name, bus_id;
        int handle = 0;
        unsigned handles = 0; // bits of collx::device::handle_kind
        bool multicasts = false;
    };
    std::vector<one> devices = {};
    std::vector<std::vector<collx::device::gpu_access>> access = {}; // [from][to]
};

inline gpus_found ask_for_gpus(const gpu_driver& d) {
    gpus_found g;
    g.why_none = d.why_not;
    if (!g.why_none.empty()) return g;
    int count = 0;
    if (const int e = d.init(0); e != 0) {
        g.why_none = "the NVIDIA driver does not start (CUDA error " + std::to_string(e) + ")";
        return g;
    }
    if (d.version(&g.driver_version) != 0 || d.count(&count) != 0 || count == 0) {
        g.why_none = "the NVIDIA driver sees no device (is CUDA_VISIBLE_DEVICES empty?)";
        return g;
    }
    for (int i = 0; i < count; ++i) {
        gpus_found::one x;
        char name[100] = "?", bus[20] = "?";
        if (d.get(&x.handle, i) == 0) {
            (void)d.name(name, sizeof name, x.handle);
            (void)d.bus_id(bus, sizeof bus, x.handle);
        }
        x.name = name;
        x.bus_id = bus;
        using collx::device::handle_kind, collx::device::bit_of;
        const auto has = [&](int attribute) { // CUdevice_attribute
            int answer = 0;
            return d.attribute != nullptr && d.attribute(&answer, attribute, x.handle) == 0 && answer != 0;
        };
        constexpr int virtual_memory = 102, files = 103, fabric = 128, multicast = 132;
        x.multicasts = has(virtual_memory) && has(multicast);
        x.handles = bit_of(handle_kind::ipc);
        if (has(virtual_memory) && has(files)) x.handles |= bit_of(handle_kind::file);
        if (has(virtual_memory) && has(fabric)) x.handles |= bit_of(handle_kind::fabric);
        g.devices.push_back(x);
    }
    constexpr int performance_rank = 1, native_atomics = 3; // CUdevice_P2PAttribute
    for (const auto& from : g.devices) {
        g.access.emplace_back();
        for (const auto& to : g.devices) {
            collx::device::gpu_access a;
            int can = 0, atomics = 0;
            if (&from != &to && d.can_access(&can, from.handle, to.handle) == 0 && can != 0) {
                a.can_access = true;
                (void)d.p2p(&atomics, native_atomics, from.handle, to.handle);
                (void)d.p2p(&a.performance_rank, performance_rank, from.handle, to.handle);
                a.native_atomics = atomics != 0;
            }
            g.access.back().push_back(a);
        }
    }
    return g;
}

// Says how processes can map the memory of a device. The first kind that all ranks have and can map is used.
inline std::string handles_of(const gpus_found::one& x) {
    using collx::device::handle_kind, collx::device::bit_of;
    std::string text;
    for (int k = collx::device::handle_kinds - 1; k >= 0; --k)
        if (const auto kind = static_cast<handle_kind>(k); (x.handles & bit_of(kind)) != 0)
            text += (text.empty() ? "" : ", ") + std::string(collx::device::name_of(kind));
    if ((x.handles & bit_of(handle_kind::fabric)) == 0)
        text += "; no fabric handles: the driver offers none (they need an NVLink fabric and nvidia-imex)";
    return text;
}

// "device 0 and 1: nvlink", or by way of the host where neither transport carries.
inline section gpus_section(const gpus_found& g) {
    section s{"gpus", "GPUs"};
    if (!g.why_none.empty()) {
        s.add("devices", "devices", "none: " + g.why_none, 0);
        return s;
    }
    s.add("driver", "driver is for CUDA",
          std::to_string(g.driver_version / 1000) + "." + std::to_string(g.driver_version % 1000 / 10));
    for (std::size_t i = 0; i < g.devices.size(); ++i) {
        const std::string k = std::to_string(i);
        s.add("device_" + k, "device " + k, g.devices[i].name + ", " + g.devices[i].bus_id);
        s.add("handles_" + k, "device " + k + " handles", "mapped by " + handles_of(g.devices[i]));
        s.add(
            "switch_" + k, "device " + k + " switch",
            g.devices[i].multicasts
                ? "reduces and multicasts: long sums of five ranks and more go by it (not tried)"
                : "none that reduces and multicasts: it takes NVSwitch of HGX H100 or later, and nvidia-fabricmanager");
    }
    for (std::size_t a = 0; a < g.devices.size(); ++a)
        for (std::size_t b = a + 1; b < g.devices.size(); ++b) {
            const auto& to = g.access[a][b];
            const auto& back = g.access[b][a];
            const bool both = to.can_access && back.can_access;
            const std::string way = !both ? std::string("by way of the host: ") +
                                                collx::device::name_of(collx::device::gpu_obstacle::no_access)
                                    : collx::device::nvlink::carries(to) ? collx::device::nvlink::name
                                                                         : collx::device::pcie::name;
            const std::string pair = std::to_string(a) + "_" + std::to_string(b);
            s.add("pair_" + pair, "device " + std::to_string(a) + " and " + std::to_string(b), way);
        }
    return s;
}

// Adds the transports that connect devices, and whether some pair has them.
inline void add_gpu_transports(section& s, const gpus_found& g) {
    const auto row = [&](const char* name, const char* what, auto&& carries) {
        std::size_t pairs = 0;
        for (const auto& from : g.access)
            for (const auto& a : from) pairs += carries(a);
        std::string why = g.why_none;
        if (why.empty() && pairs == 0)
            why = g.devices.size() < 2 ? "there is one device" : "no pair of devices has it (see GPUs)";
        s.add(name, name,
              why.empty() ? std::string("yes: ") + what + "; " + std::to_string(pairs / 2) + " pairs, not tried"
                          : "no: " + why + " (" + what + ")",
              {{"usable", why.empty()},
               {"why_not", why.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(why)}});
    };
    row(collx::device::nvlink::name, "GPUs joined by NVLink", &collx::device::nvlink::carries);
    row(collx::device::pcie::name, "GPUs joined by PCI Express", &collx::device::pcie::carries);
}

} // namespace collx::tools::info
