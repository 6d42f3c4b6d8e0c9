// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory: of devices (memory files, so that other processes can map them), pinned, opened from other processes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "runtime.hpp"

namespace software_gpu {

allocations& memories() {
    static auto* const all = new allocations;
    return *all;
}

void allocations::add(const allocation& a) {
    const std::unique_lock lock(mutex_);
    all_[a.begin] = a;
}
bool allocations::take(address begin, allocation& taken) {
    const std::unique_lock lock(mutex_);
    const auto found = all_.find(begin);
    if (found == all_.end()) return false;
    taken = found->second;
    all_.erase(found);
    return true;
}
const allocation* allocations::locate(address at, std::size_t bytes) const {
    const auto next = all_.upper_bound(at);
    if (next == all_.begin()) return nullptr;
    const allocation& a = std::prev(next)->second;
    return a.covers(at, bytes) ? &a : nullptr;
}
bool allocations::find(address at, std::size_t bytes, allocation& out) const {
    const std::shared_lock lock(mutex_);
    const allocation* const a = locate(at, bytes);
    if (a != nullptr) out = *a;
    return a != nullptr;
}
std::size_t allocations::total(allocation::origin from, int device) const {
    const std::shared_lock lock(mutex_);
    std::size_t n = 0;
    for (const auto& [at, a] : all_)
        if (a.from == from && a.device == device) n += a.bytes;
    return n;
}
bool allocations::change(address begin, const std::function<void(allocation&)>& f) {
    const std::unique_lock lock(mutex_);
    const auto found = all_.find(begin);
    if (found == all_.end()) return false;
    f(found->second);
    return true;
}
bool allocations::holds(int device, address at, std::size_t bytes) const {
    const std::shared_lock lock(mutex_);
    const allocation* const a = locate(at, bytes);
    if (a == nullptr) return false;
    switch (a->from) {
        case allocation::origin::device: return may_access(device, a->device);
        case allocation::origin::mapped: return a->allowed.contains(device);
        default: return true;
    }
}
void allocations::add(address begin, const multicast_range& m) {
    const std::unique_lock lock(mutex_);
    multicasts_[begin] = m;
}
void allocations::bind(multicast_range& m, const std::pair<std::size_t, std::pair<address, std::size_t>>& memory) {
    const std::unique_lock lock(mutex_);
    m.bound->push_back(memory);
}
bool allocations::allow_multicast(address begin, int device) {
    const std::unique_lock lock(mutex_);
    const auto found = multicasts_.find(begin);
    if (found == multicasts_.end()) return false;
    found->second.allowed.insert(device);
    return true;
}
bool allocations::remove_multicast(address begin) {
    const std::unique_lock lock(mutex_);
    return multicasts_.erase(begin) != 0;
}
std::vector<address> allocations::copies(int device, address at, std::size_t bytes) const {
    const std::shared_lock lock(mutex_);
    std::vector<address> all;
    auto next = multicasts_.upper_bound(at);
    if (next == multicasts_.begin()) return all;
    const auto& [begin, m] = *--next;
    if (at - begin > m.bytes || bytes > m.bytes - (at - begin) || !m.allowed.contains(device)) return all;
    for (const auto& [offset, memory] : *m.bound)
        if (at - begin >= offset && at - begin + bytes <= offset + memory.second)
            all.push_back(memory.first + (at - begin - offset));
    return all;
}

// The device is part of the file's name, which an importing process can read.
int new_file(std::size_t bytes, int device) {
    const int file = memfd_create(("software-gpu-" + std::to_string(device)).c_str(), MFD_CLOEXEC);
    if (file < 0) return -1;
    if (ftruncate(file, static_cast<off_t>(bytes)) == 0) return file;
    close(file);
    return -1;
}
// No address is used twice, so that a use of freed memory never reaches another allocation.
void* map_file(int file, std::size_t bytes, void* at) {
    static std::atomic<std::uintptr_t> next{std::uintptr_t{1} << 45};
    constexpr std::uintptr_t gap = 1 << 16; // unused, so that an overrun does not reach the next allocation
    void* const wanted =
        at != nullptr ? at : reinterpret_cast<void*>(next.fetch_add((bytes + 2 * gap - 1) / gap * gap));
    void* const p = mmap(wanted, bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | (at != nullptr ? MAP_FIXED : MAP_FIXED_NOREPLACE), file, 0);
    return p == MAP_FAILED ? nullptr : p;
}
// For whole pages of zeros it punches holes in the file, which costs nothing.
void fill(void* at, int value, std::size_t bytes) {
    constexpr std::size_t page = 4096;
    auto* const p = static_cast<std::byte*>(at);
    const std::size_t before = (page - reinterpret_cast<std::uintptr_t>(at) % page) % page;
    if (value == 0 && bytes > before + 64 * page) {
        const std::size_t whole = (bytes - before) / page * page;
        if (madvise(p + before, whole, MADV_REMOVE) == 0) {
            std::memset(p, 0, before);
            std::memset(p + before + whole, 0, bytes - before - whole);
            return;
        }
    }
    std::memset(at, value, bytes);
}

} // namespace software_gpu

using namespace software_gpu;

namespace {
address address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }
constexpr std::size_t page = 4096;
std::size_t paged(std::size_t bytes) { return (std::max<std::size_t>(bytes, 1) + page - 1) / page * page; }

cudaError_t allocate(void** p, std::size_t bytes, allocation::origin from) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    if (p == nullptr) return returned(cudaErrorInvalidValue);
    *p = nullptr;
    if (const cudaError_t e = refuse_while_capturing(); e != cudaSuccess) return returned(e);
    if (bytes == 0) return returned(cudaSuccess);
    if (bytes > device_bytes - std::min(device_bytes, memories().total(from, current_device())))
        return returned(cudaErrorMemoryAllocation);
    allocation a;
    a.from = from;
    a.bytes = bytes;
    a.device = current_device();
    a.file = new_file(paged(bytes), a.device);
    if (a.file < 0) return returned(cudaErrorMemoryAllocation);
    void* const at = map_file(a.file, paged(bytes));
    if (at == nullptr) {
        close(a.file);
        return returned(cudaErrorMemoryAllocation);
    }
    std::memset(at, 0xcd, std::min<std::size_t>(bytes, 16 << 20)); // new memory has arbitrary contents
    a.begin = address_of(at);
    memories().add(a);
    *p = at;
    return returned(cudaSuccess);
}
cudaError_t free_memory(void* p, allocation::origin from) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    if (p == nullptr) return returned(cudaSuccess);
    if (const cudaError_t e = refuse_while_capturing(); e != cudaSuccess) return returned(e);
    allocation a;
    if (!memories().find(address_of(p), 1, a) || a.begin != address_of(p) || a.from != from)
        return returned(cudaErrorInvalidValue);
    const cudaError_t e = wait_for_device(a.device); // as the real runtime does
    memories().take(a.begin, a);
    munmap(p, paged(a.bytes));
    if (a.file >= 0) close(a.file);
    return returned(e);
}

// The kind of memory of one side of a copy. Outside: beyond its allocation, or no device has access to it.
enum class side { pageable, pinned, device, outside };
side side_of(const void* p, std::size_t bytes) {
    allocation a;
    if (!memories().find(address_of(p), 1, a)) return side::pageable;
    if (!a.covers(address_of(p), bytes)) return side::outside;
    if (a.from == allocation::origin::mapped && a.allowed.empty()) return side::outside;
    return a.from == allocation::origin::pinned ? side::pinned : side::device;
}
bool is_of_kind(cudaMemcpyKind k, side from, side to) {
    const bool from_host = from != side::device, to_host = to != side::device;
    switch (k) {
        case cudaMemcpyHostToHost: return from_host && to_host;
        case cudaMemcpyHostToDevice: return from_host && to != side::pageable;
        case cudaMemcpyDeviceToHost: return from != side::pageable && to_host;
        case cudaMemcpyDeviceToDevice: return from != side::pageable && to != side::pageable;
        default: return k == cudaMemcpyDefault;
    }
}

// The content of a handle: whose file, and how large.
struct shown {
    pid_t process;
    int file, device;
    std::size_t bytes;
    ino_t number; // of the file: the descriptor may have been reused
};
static_assert(sizeof(shown) <= sizeof(cudaIpcMemHandle_t));
// Opening a handle twice returns the same address.
std::map<std::string, address>& opened() {
    static auto* const all = new std::map<std::string, address>;
    return *all;
}
std::mutex& opened_mutex() {
    static auto* const m = new std::mutex;
    return *m;
}
} // namespace

extern "C" {

cudaError_t cudaMalloc(void** p, std::size_t bytes) { return allocate(p, bytes, allocation::origin::device); }
cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned) {
    return allocate(p, bytes, allocation::origin::pinned);
}
cudaError_t cudaMallocHost(void** p, std::size_t bytes) { return allocate(p, bytes, allocation::origin::pinned); }
cudaError_t cudaFree(void* p) { return free_memory(p, allocation::origin::device); }
cudaError_t cudaFreeHost(void* p) { return free_memory(p, allocation::origin::pinned); }
cudaError_t cudaHostGetDevicePointer(void** d, void* p, unsigned) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    allocation a;
    if (!memories().find(address_of(p), 1, a) || a.from != allocation::origin::pinned)
        return returned(cudaErrorInvalidValue);
    *d = p;
    return returned(cudaSuccess);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* p) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    std::memset(static_cast<void*>(out), 0, sizeof *out);
    allocation a;
    if (!memories().find(address_of(p), 1, a)) {
        out->type = cudaMemoryTypeUnregistered;
        out->device = cudaInvalidDeviceId;
        return returned(cudaSuccess);
    }
    out->type = a.from == allocation::origin::pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    out->device = a.device;
    out->devicePointer = const_cast<void*>(p);
    if (a.from == allocation::origin::pinned) out->hostPointer = const_cast<void*>(p);
    return returned(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind k, cudaStream_t s) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    if (bytes == 0) return returned(cudaSuccess);
    allocation a;
    const side target = side_of(to, bytes), source = side_of(from, bytes);
    if (target == side::outside || source == side::outside || !is_of_kind(k, source, target))
        return returned(cudaErrorInvalidValue);
    // Pageable memory is read before the call returns.
    if (source == side::pageable) {
        const auto* const b = static_cast<const std::byte*>(from);
        auto kept = std::make_shared<std::vector<std::byte>>(b, b + bytes);
        return returned(enqueue(s, [=] { std::memcpy(to, kept->data(), bytes); }));
    }
    if (const cudaError_t e = enqueue(s, [=] { std::memcpy(to, from, bytes); }); e != cudaSuccess) return returned(e);
    // ... and written before it returns, unless a graph will do that.
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (target == side::pageable) cudaStreamIsCapturing(s, &status);
    if (target != side::pageable || status != cudaStreamCaptureStatusNone) return returned(cudaSuccess);
    return cudaStreamSynchronize(s);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind k) {
    if (const cudaError_t e = refuse_while_capturing(); e != cudaSuccess) return returned(e);
    if (const cudaError_t e = cudaMemcpyAsync(to, from, bytes, k, nullptr); e != cudaSuccess || bytes == 0) return e;
    // The host does not wait for copies between devices.
    if (side_of(to, bytes) == side::device && side_of(from, bytes) == side::device) return returned(cudaSuccess);
    return cudaStreamSynchronize(nullptr);
}
cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t s) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    allocation a;
    if (bytes == 0) return returned(cudaSuccess);
    if (!memories().find(address_of(at), bytes, a) || side_of(at, bytes) == side::outside)
        return returned(cudaErrorInvalidValue);
    return returned(enqueue(s, [=] { fill(at, value, bytes); }));
}
cudaError_t cudaMemset(void* at, int value, std::size_t bytes) { return cudaMemsetAsync(at, value, bytes, nullptr); }

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* h, void* p) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    allocation a;
    if (!memories().find(address_of(p), 1, a) || a.from != allocation::origin::device)
        return returned(cudaErrorInvalidValue);
    struct stat known {};
    if (fstat(a.file, &known) != 0) return returned(cudaErrorInvalidValue);
    const shown s{getpid(), a.file, a.device, a.bytes, known.st_ino}; // of the whole allocation, wherever p is in it
    std::memset(h, 0, sizeof *h);
    std::memcpy(h, &s, sizeof s);
    return returned(cudaSuccess);
}
cudaError_t cudaIpcOpenMemHandle(void** p, cudaIpcMemHandle_t h, unsigned) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    if (const cudaError_t e = refuse_while_capturing(); e != cudaSuccess) return returned(e);
    shown s;
    std::memcpy(&s, &h, sizeof s);
    if (s.process == getpid()) return returned(cudaErrorDeviceUninitialized); // not in the process that made it
    const std::string name(reinterpret_cast<const char*>(&h), sizeof h);
    const std::lock_guard lock(opened_mutex());
    if (const auto found = opened().find(name); found != opened().end()) {
        memories().change(found->second, [&](allocation& a) { ++a.users; });
        *p = reinterpret_cast<void*>(found->second);
        return returned(cudaSuccess);
    }
    const std::string path = "/proc/" + std::to_string(s.process) + "/fd/" + std::to_string(s.file);
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct stat known {};
    if (file < 0 || fstat(file, &known) != 0 || known.st_ino != s.number) {
        if (file >= 0) close(file);
        return returned(cudaErrorInvalidResourceHandle);
    }
    allocation a;
    a.from = allocation::origin::opened;
    a.bytes = s.bytes;
    a.device = s.device;
    a.file = file;
    a.handle = name;
    void* const at = map_file(file, paged(s.bytes));
    if (at == nullptr) {
        close(file);
        return returned(cudaErrorMapBufferObjectFailed);
    }
    a.begin = address_of(at);
    memories().add(a);
    opened()[name] = a.begin;
    *p = at;
    return returned(cudaSuccess);
}
cudaError_t cudaIpcCloseMemHandle(void* p) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    const std::lock_guard lock(opened_mutex());
    allocation a;
    if (!memories().find(address_of(p), 1, a) || a.begin != address_of(p) || a.from != allocation::origin::opened)
        return returned(cudaErrorInvalidValue);
    if (a.users > 1) {
        memories().change(a.begin, [](allocation& x) { --x.users; });
        return returned(cudaSuccess);
    }
    const cudaError_t e = wait_for_device(current_device());
    memories().take(a.begin, a);
    opened().erase(a.handle);
    munmap(p, paged(a.bytes));
    close(a.file);
    return returned(e);
}

} // extern "C"
