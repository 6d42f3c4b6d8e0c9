// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Device memory that other processes map, by the driver's virtual memory: made, shown as a file descriptor or as a
// handle of the NVLink fabric, opened and mapped. The driver's functions are looked up at run time, so that programs
// start without the driver.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <collx/core/error.hpp>
#include <collx/exec/device/cuda_host.cuh>
#include <collx/transport/gpu_runtime.hpp>
#include <collx/transport/peer_file.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// A function of the driver's library; null where the driver has none. since: the version of CUDA that brought the
// function. A driver answers neither for a version before that one nor for one after its own.
template <class F>
F cuda_driver_function(const char* name, unsigned since = 12000) {
    void* f = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    if (cudaGetDriverEntryPointByVersion(name, &f, since, cudaEnableDefault, &found) != cudaSuccess) {
        cudaGetLastError();
        return nullptr;
    }
    return found == cudaDriverEntryPointSuccess ? reinterpret_cast<F>(f) : nullptr;
}

class cuda_shared {
public:
    // The version of CUDA that brought multicast objects.
    static constexpr unsigned multicast_since = 12010;

    // Bits of the kinds of handle that the driver has. Making a fabric handle depends on more (nvidia-imex).
    static unsigned offers(int device) {
        unsigned bits = bit_of(handle_kind::ipc);
        const functions& f = driver();
        if (!f.all) return bits;
        const auto has = [&](CUdevice_attribute a) {
            int x = 0;
            return f.attribute(&x, a, device) == CUDA_SUCCESS && x != 0;
        };
        if (!has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) return bits;
        if (has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) bits |= bit_of(handle_kind::file);
        if (has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)) bits |= bit_of(handle_kind::fabric);
        return bits;
    }

    // Whether a switch multicasts to this device's memory.
    static bool multicasts(int device) {
        const functions& f = driver();
        int x = 0;
        return f.all && f.multicast.all &&
               f.attribute(&x, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device) == CUDA_SUCCESS && x != 0;
    }
    // Makes a multicast object for memory of so many devices. It has no address yet.
    static gpu_mapping make_multicast(std::size_t bytes, int devices, handle_kind kind) {
        const functions& f = functions_or_throw();
        CUmulticastObjectProp p{};
        p.numDevices = static_cast<unsigned>(devices);
        p.size = bytes;
        p.handleTypes = static_cast<unsigned long long>(type_of(kind));
        std::size_t step = 1;
        require(f.multicast.granularity(&step, &p, CU_MULTICAST_GRANULARITY_MINIMUM), "asking how memory is cut");
        if (bytes % step != 0)
            fail(errc::unsupported, -1, -1, "give exchange memory another size: device_settings",
                 "a switch multicasts to multiples of %zu bytes, and exchange memory has %zu", step, bytes);
        gpu_mapping m;
        m.kind = kind;
        m.bytes = bytes;
        CUmemGenericAllocationHandle h = 0;
        require(f.multicast.create(&h, &p), "making a multicast object", needs_manager);
        m.driver = h;
        return m;
    }
    static void join_multicast(gpu_mapping& m, int device) {
        require(functions_or_throw().multicast.add(m.driver, device), "adding a device to a multicast object",
                needs_manager);
    }
    static void bind_multicast(gpu_mapping& m, const gpu_mapping& memory, int device) {
        require(functions_or_throw().multicast.bind(m.driver, 0, memory.driver, 0, m.bytes, 0),
                "binding memory to a multicast object", needs_manager);
        map(m, device);
    }

    static gpu_mapping make(std::size_t bytes, handle_kind kind, int device) {
        const functions& f = functions_or_throw();
        CUmemAllocationProp p{};
        p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        p.requestedHandleTypes = type_of(kind);
        p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        p.location.id = device;
        std::size_t step = 0;
        const beside_captures free_to_allocate;
        require(f.granularity(&step, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), "asking how memory is cut");
        gpu_mapping m;
        m.kind = kind;
        m.bytes = (bytes + step - 1) / step * step;
        CUmemGenericAllocationHandle h = 0;
        require(f.create(&h, m.bytes, &p, 0), "allocating exchange memory to be shown to other processes");
        m.driver = h;
        map(m, device);
        return m;
    }
    static memory_handle handle_of(gpu_mapping& m) {
        const functions& f = functions_or_throw();
        if (m.kind == handle_kind::file) {
            if (m.file < 0)
                require(f.show(&m.file, m.driver, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "exporting memory");
            return handle_of_file(m.file);
        }
        CUmemFabricHandle shown;
        require(f.show(&shown, m.driver, CU_MEM_HANDLE_TYPE_FABRIC, 0), "exporting memory to the fabric");
        memory_handle h;
        static_assert(sizeof shown <= sizeof h.bytes);
        std::memcpy(h.bytes, &shown, sizeof shown);
        return h;
    }
    static gpu_mapping open(const memory_handle& h, handle_kind kind, std::size_t bytes, int device) {
        gpu_mapping m = taken(h, kind, bytes);
        map(m, device);
        return m;
    }
    // Opens a handle, without an address for the memory.
    static gpu_mapping taken(const memory_handle& h, handle_kind kind, std::size_t bytes) {
        const functions& f = functions_or_throw();
        gpu_mapping m;
        m.kind = kind;
        m.bytes = bytes;
        CUmemGenericAllocationHandle opened = 0;
        if (kind == handle_kind::file) {
            const descriptor file = file_of(h);
            require(f.take(&opened, reinterpret_cast<void*>(static_cast<std::intptr_t>(file.get())),
                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                    "mapping a peer's memory");
        } else {
            CUmemFabricHandle shown;
            std::memcpy(&shown, h.bytes, sizeof shown);
            require(f.take(&opened, &shown, CU_MEM_HANDLE_TYPE_FABRIC), "mapping a peer's memory of the fabric");
        }
        m.driver = opened;
        return m;
    }
    // Lets one more device of this process load and store.
    static void grant(std::byte* p, std::size_t bytes, int device) {
        CUmemAccessDesc a{};
        a.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        a.location.id = device;
        a.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        const beside_captures free_to_map;
        require(functions_or_throw().allow(address_of(p), bytes, &a, 1), "giving a device access to exchange memory");
    }
    static void drop(gpu_mapping& m) {
        const functions& f = driver();
        if (m.file >= 0) ::close(m.file);
        if (f.all && m.at != nullptr) {
            f.unmap(address_of(m.at), m.bytes);
            f.give_back(address_of(m.at), m.bytes);
        }
        if (f.all && m.driver != 0) f.release(m.driver);
        m = {};
    }

private:
    struct functions {
        decltype(&cuDeviceGetAttribute) attribute;
        decltype(&cuMemGetAllocationGranularity) granularity;
        decltype(&cuMemCreate) create;
        decltype(&cuMemRelease) release;
        decltype(&cuMemAddressReserve) reserve;
        decltype(&cuMemAddressFree) give_back;
        decltype(&cuMemMap) map;
        decltype(&cuMemUnmap) unmap;
        decltype(&cuMemSetAccess) allow;
        decltype(&cuMemExportToShareableHandle) show;
        decltype(&cuMemImportFromShareableHandle) take;
        bool all;
        struct {
            decltype(&cuMulticastGetGranularity) granularity;
            decltype(&cuMulticastCreate) create;
            decltype(&cuMulticastAddDevice) add;
            decltype(&cuMulticastBindMem) bind;
            bool all;
        } multicast;
    };
    static const functions& driver() {
        static const functions f = [] {
            functions x{};
            const auto find_since = [](unsigned since, bool& all, auto& to, const char* name) {
                to = cuda_driver_function<std::remove_reference_t<decltype(to)>>(name, since);
                all = all && to != nullptr;
            };
            x.multicast.all = true;
            const auto find_multicast = [&](auto& to, const char* name) {
                find_since(multicast_since, x.multicast.all, to, name);
            };
            find_multicast(x.multicast.granularity, "cuMulticastGetGranularity");
            find_multicast(x.multicast.create, "cuMulticastCreate");
            find_multicast(x.multicast.add, "cuMulticastAddDevice");
            find_multicast(x.multicast.bind, "cuMulticastBindMem");
            x.all = true;
            const auto find = [&](auto& to, const char* name) { find_since(12000, x.all, to, name); };
            find(x.attribute, "cuDeviceGetAttribute");
            find(x.granularity, "cuMemGetAllocationGranularity");
            find(x.create, "cuMemCreate");
            find(x.release, "cuMemRelease");
            find(x.reserve, "cuMemAddressReserve");
            find(x.give_back, "cuMemAddressFree");
            find(x.map, "cuMemMap");
            find(x.unmap, "cuMemUnmap");
            find(x.allow, "cuMemSetAccess");
            find(x.show, "cuMemExportToShareableHandle");
            find(x.take, "cuMemImportFromShareableHandle");
            return x;
        }();
        return f;
    }
    static const functions& functions_or_throw() {
        const functions& f = driver();
        if (!f.all)
            fail(errc::unsupported, -1, -1, "install a driver for CUDA 12 or later",
                 "the NVIDIA driver has no virtual memory");
        return f;
    }
    static CUmemAllocationHandleType type_of(handle_kind k) {
        return k == handle_kind::fabric ? CU_MEM_HANDLE_TYPE_FABRIC : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    }
    static CUdeviceptr address_of(const std::byte* p) {
        return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(p));
    }
    // Gives m an address that the device may use. On an error drops m and throws.
    static void map(gpu_mapping& m, int device) {
        const functions& f = driver();
        CUdeviceptr at = 0;
        try {
            require(f.reserve(&at, m.bytes, 0, 0, 0), "reserving addresses");
            if (const CUresult e = f.map(at, m.bytes, 0, m.driver, 0); e != CUDA_SUCCESS) {
                f.give_back(at, m.bytes);
                require(e, "mapping exchange memory");
            }
            m.at = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(at));
            grant(m.at, m.bytes, device);
        } catch (...) {
            drop(m);
            throw;
        }
    }
    static constexpr const char* needs_imex =
        "handles of the fabric need nvidia-imex and a channel under /dev/nvidia-caps-imex-channels";
    static constexpr const char* needs_manager =
        "multicast objects need nvidia-fabricmanager, on all hosts of the fabric";
    static void require(CUresult e, const char* what, const char* refused_without = needs_imex) {
        if (e == CUDA_SUCCESS) return;
        const bool is_refused = e == CUDA_ERROR_NOT_SUPPORTED || e == CUDA_ERROR_NOT_PERMITTED;
        fail(is_refused                      ? errc::unsupported
             : e == CUDA_ERROR_OUT_OF_MEMORY ? errc::resource
                                             : errc::invalid_argument,
             -1, -1, is_refused ? refused_without : "see the CUDA driver's error codes", "%s: CUDA driver error %d",
             what, static_cast<int>(e));
    }
};

} // namespace device
COLLX_END_NAMESPACE
