// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The driver library's functions that collx asks the runtime for: virtual memory, multicast objects, contexts.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "runtime.hpp"

using namespace software_gpu;

namespace {

constexpr std::size_t granularity = 2 * 1024 * 1024;

struct physical { // the object of a handle; kept until the process ends
    int file = -1, device = 0;
    std::size_t bytes = 0;
    bool is_multicast = false;
    multicast_range copies;
};
physical* of(CUmemGenericAllocationHandle h) { return reinterpret_cast<physical*>(static_cast<std::uintptr_t>(h)); }
CUmemGenericAllocationHandle handle(physical* p) { return reinterpret_cast<std::uintptr_t>(p); }
void* pointer(CUdeviceptr p) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(p)); }

CUresult device_attribute(int* value, CUdevice_attribute a, CUdevice) {
    const char* const text = std::getenv("SOFTWARE_GPU_VIRTUAL_MEMORY"); // 0: as if the driver had no virtual memory
    if (text != nullptr && std::strcmp(text, "0") == 0) {
        *value = 0;
        return CUDA_SUCCESS;
    }
    switch (a) {
        case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: *value = 1; return CUDA_SUCCESS;
        case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED: *value = 0; return CUDA_SUCCESS;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}
CUresult allocation_granularity(std::size_t* bytes, const CUmemAllocationProp* p, CUmemAllocationGranularity_flags) {
    if (p->type != CU_MEM_ALLOCATION_TYPE_PINNED || p->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = granularity;
    return CUDA_SUCCESS;
}
CUresult create(CUmemGenericAllocationHandle* h, std::size_t bytes, const CUmemAllocationProp* p, unsigned long long) {
    if (bytes == 0 || bytes % granularity != 0 || p->location.id < 0 || p->location.id >= device_count())
        return CUDA_ERROR_INVALID_VALUE;
    if ((p->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    auto* const made = new physical;
    made->device = p->location.id;
    made->bytes = bytes;
    made->file = new_file(bytes, made->device);
    if (made->file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *h = handle(made);
    return CUDA_SUCCESS;
}
// Files that stand for multicast objects, by inode; other processes cannot open these objects.
std::mutex objects_mutex;
std::map<ino_t, physical*> objects;
ino_t inode_of(int file) {
    struct stat s {};
    return fstat(file, &s) == 0 ? s.st_ino : 0;
}
CUresult release(CUmemGenericAllocationHandle h) {
    physical& p = *of(h);
    if (p.is_multicast && p.file >= 0) {
        const std::lock_guard lock(objects_mutex);
        objects.erase(inode_of(p.file)); // another file may get the inode number
    }
    if (p.file >= 0) close(p.file);
    p.file = -1; // mappings stay
    return CUDA_SUCCESS;
}
CUresult reserve(CUdeviceptr* at, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
    if (bytes == 0 || bytes % granularity != 0) return CUDA_ERROR_INVALID_VALUE;
    // Begins at a multiple of the granularity, as in the driver.
    void* const p = mmap(nullptr, bytes + granularity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto all = reinterpret_cast<std::uintptr_t>(p), begin = (all + granularity - 1) / granularity * granularity;
    if (begin != all) munmap(p, begin - all);
    if (begin - all != granularity) munmap(pointer(begin + bytes), granularity - (begin - all));
    *at = begin;
    return CUDA_SUCCESS;
}
CUresult give_back(CUdeviceptr at, std::size_t bytes) {
    allocation a;
    if (memories().find(at, 1, a)) return CUDA_ERROR_INVALID_VALUE; // still mapped
    munmap(pointer(at), bytes);
    return CUDA_SUCCESS;
}
CUresult map(CUdeviceptr at, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle h,
             unsigned long long) {
    const physical& p = *of(h);
    if (offset != 0 || bytes > p.bytes) return CUDA_ERROR_INVALID_VALUE;
    if (p.is_multicast) { // its addresses have no memory behind them
        memories().add(at, p.copies);
        return CUDA_SUCCESS;
    }
    if (map_file(p.file, bytes, pointer(at)) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    allocation a;
    a.from = allocation::origin::mapped;
    a.begin = at;
    a.bytes = bytes;
    a.device = p.device;
    memories().add(a);
    return CUDA_SUCCESS;
}
CUresult unmap(CUdeviceptr at, std::size_t bytes) {
    if (memories().remove_multicast(at)) return CUDA_SUCCESS;
    allocation a;
    if (!memories().find(at, bytes, a) || a.begin != at || a.from != allocation::origin::mapped)
        return CUDA_ERROR_INVALID_VALUE;
    wait_for_device(a.device);
    memories().take(at, a);
    mmap(pointer(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    return CUDA_SUCCESS;
}
CUresult allow(CUdeviceptr at, std::size_t, const CUmemAccessDesc* list, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        const int device = list[i].location.id;
        if (list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_NOT_SUPPORTED;
        if (!memories().change(at, [&](allocation& a) { a.allowed.insert(device); }) &&
            !memories().allow_multicast(at, device))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}
CUresult show(void* out, CUmemGenericAllocationHandle h, CUmemAllocationHandleType t, unsigned long long) {
    if (t != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    const int file = dup(of(h)->file);
    if (file < 0) return CUDA_ERROR_INVALID_VALUE;
    *static_cast<int*>(out) = file;
    return CUDA_SUCCESS;
}
CUresult take(CUmemGenericAllocationHandle* h, void* given, CUmemAllocationHandleType t) {
    if (t != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    const int file = dup(static_cast<int>(reinterpret_cast<std::intptr_t>(given)));
    struct stat known {};
    char name[64] = {};
    if (file < 0 || fstat(file, &known) != 0) return CUDA_ERROR_INVALID_VALUE;
    {
        const std::lock_guard lock(objects_mutex);
        if (const auto object = objects.find(known.st_ino); object != objects.end()) {
            close(file);
            auto* const same = new physical(*object->second);
            same->file = -1;
            *h = handle(same);
            return CUDA_SUCCESS;
        }
    }
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    auto* const made = new physical;
    made->file = file;
    made->bytes = static_cast<std::size_t>(known.st_size);
    if (readlink(link.c_str(), name, sizeof name - 1) < 0 ||
        std::sscanf(name, "/memfd:software-gpu-%d", &made->device) != 1) {
        close(file);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *h = handle(made);
    return CUDA_SUCCESS;
}

CUresult multicast_granularity(std::size_t* bytes, const CUmulticastObjectProp*, CUmulticastGranularity_flags) {
    *bytes = granularity;
    return CUDA_SUCCESS;
}
CUresult multicast_create(CUmemGenericAllocationHandle* h, const CUmulticastObjectProp* p) {
    if (p->numDevices < 1 || p->size % granularity != 0) return CUDA_ERROR_INVALID_VALUE;
    auto* const made = new physical;
    made->is_multicast = true;
    made->bytes = p->size;
    made->copies.bytes = p->size;
    made->copies.bound = std::make_shared<std::vector<std::pair<std::size_t, std::pair<address, std::size_t>>>>();
    made->file = memfd_create("software-gpu-multicast", MFD_CLOEXEC);
    if (made->file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    const std::lock_guard lock(objects_mutex);
    objects[inode_of(made->file)] = made;
    *h = handle(made);
    return CUDA_SUCCESS;
}
CUresult multicast_add(CUmemGenericAllocationHandle h, CUdevice d) {
    return of(h)->is_multicast && d >= 0 && d < device_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult multicast_bind(CUmemGenericAllocationHandle h, std::size_t at, CUmemGenericAllocationHandle memory,
                        std::size_t offset, std::size_t bytes, unsigned long long) {
    physical &m = *of(h), &p = *of(memory);
    if (!m.is_multicast || p.is_multicast || at + bytes > m.bytes || offset != 0 || bytes > p.bytes)
        return CUDA_ERROR_INVALID_VALUE;
    void* const mapped = map_file(p.file, bytes);
    if (mapped == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    allocation a;
    a.from = allocation::origin::bound;
    a.begin = reinterpret_cast<std::uintptr_t>(mapped);
    a.bytes = bytes;
    a.device = p.device;
    memories().add(a);
    memories().bind(m.copies, {at, {a.begin, bytes}});
    return CUDA_SUCCESS;
}

// One context per device: its primary one.
CUcontext context_of(int device) {
    static char contexts[64];
    return reinterpret_cast<CUcontext>(&contexts[device]);
}
CUresult pointer_attribute(void* out, CUpointer_attribute a, CUdeviceptr p) {
    allocation found;
    if (!memories().find(p, 1, found)) return CUDA_ERROR_INVALID_VALUE;
    if (a != CU_POINTER_ATTRIBUTE_CONTEXT) return CUDA_ERROR_NOT_SUPPORTED;
    *static_cast<CUcontext*>(out) = found.from == allocation::origin::mapped ? nullptr : context_of(found.device);
    return CUDA_SUCCESS;
}
CUresult current_context(CUcontext* c) {
    *c = context_of(current_device());
    return CUDA_SUCCESS;
}

template <class F>
void* as_function(F* f) {
    return reinterpret_cast<void*>(f);
}
void* driver_function(std::string_view name) {
    static const std::pair<std::string_view, void*> all[] = {
        {"cuDeviceGetAttribute", as_function<decltype(cuDeviceGetAttribute)>(device_attribute)},
        {"cuMemGetAllocationGranularity", as_function<decltype(cuMemGetAllocationGranularity)>(allocation_granularity)},
        {"cuMemCreate", as_function<decltype(cuMemCreate)>(create)},
        {"cuMemRelease", as_function<decltype(cuMemRelease)>(release)},
        {"cuMemAddressReserve", as_function<decltype(cuMemAddressReserve)>(reserve)},
        {"cuMemAddressFree", as_function<decltype(cuMemAddressFree)>(give_back)},
        {"cuMemMap", as_function<decltype(cuMemMap)>(map)},
        {"cuMemUnmap", as_function<decltype(cuMemUnmap)>(unmap)},
        {"cuMemSetAccess", as_function<decltype(cuMemSetAccess)>(allow)},
        {"cuMemExportToShareableHandle", as_function<decltype(cuMemExportToShareableHandle)>(show)},
        {"cuMemImportFromShareableHandle", as_function<decltype(cuMemImportFromShareableHandle)>(take)},
        {"cuMulticastGetGranularity", as_function<decltype(cuMulticastGetGranularity)>(multicast_granularity)},
        {"cuMulticastCreate", as_function<decltype(cuMulticastCreate)>(multicast_create)},
        {"cuMulticastAddDevice", as_function<decltype(cuMulticastAddDevice)>(multicast_add)},
        {"cuMulticastBindMem", as_function<decltype(cuMulticastBindMem)>(multicast_bind)},
        {"cuPointerGetAttribute", as_function<decltype(cuPointerGetAttribute)>(pointer_attribute)},
        {"cuCtxGetCurrent", as_function<decltype(cuCtxGetCurrent)>(current_context)},
    };
    for (const auto& [known, f] : all)
        if (known == name) return f;
    return nullptr;
}
// The version of CUDA that brought a function: a driver does not answer for an earlier one. 12000 for all that are
// older than the library looks for.
unsigned version_of(std::string_view name) { return name.starts_with("cuMulticast") ? 12010 : 12000; }

} // namespace

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** f, unsigned version,
                                                        unsigned long long, cudaDriverEntryPointQueryResult* found) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    *f = driver_function(name);
    cudaDriverEntryPointQueryResult how = cudaDriverEntryPointSuccess;
    if (*f == nullptr) how = cudaDriverEntryPointSymbolNotFound;
    else if (version < version_of(name)) {
        *f = nullptr;
        how = cudaDriverEntryPointVersionNotSufficent;
    }
    if (found != nullptr) *found = how;
    return returned(cudaSuccess);
}
