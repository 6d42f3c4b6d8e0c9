// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Programs: the PTX that nvcc embedded in them, their kernels' names, and launches.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime.hpp"

namespace software_gpu {
namespace {

// The structure that nvcc emits, in the order of its fields (crt/host_runtime.h and fatbinary.h of the toolkit).
struct wrapper {
    unsigned magic, version;
    const std::byte* data;
    void* unused;
};
template <class T>
T read(const std::byte* p) {
    T x;
    std::memcpy(&x, p, sizeof x);
    return x;
}
// Loads the first PTX of a fat binary, whose entries have a header and a text each.
std::unique_ptr<module> load(const wrapper& w) {
    constexpr unsigned binary_magic = 0xba55ed50;
    if (read<std::uint32_t>(w.data) != binary_magic) throw fault(fault::kind::unsupported, "no fat binary");
    const std::byte* at = w.data + read<std::uint16_t>(w.data + 6);
    const std::byte* const end = at + read<std::uint64_t>(w.data + 8);
    while (at < end) {
        const auto header = read<std::uint32_t>(at + 4);
        const auto bytes = read<std::uint64_t>(at + 8);
        if (read<std::uint16_t>(at) == 1) {
            const char* const text = reinterpret_cast<const char*>(at + header);
            if (std::memchr(text, '.', std::min<std::uint64_t>(bytes, 4096)) == nullptr ||
                std::string_view(text, std::min<std::uint64_t>(bytes, 4096)).find(".version") == std::string_view::npos)
                throw fault(fault::kind::unsupported, "the PTX is compressed; compile with -Xfatbin -compress=false");
            return std::make_unique<module>(std::string_view(text, strnlen(text, bytes)));
        }
        at += header + bytes;
    }
    throw fault(fault::kind::unsupported, "no PTX; compile with -gencode arch=compute_90,code=compute_90");
}

struct program {
    const wrapper* from;
    std::map<int, std::unique_ptr<module>> code; // one per device, with its variables; read when first needed
    std::mutex mutex;
    const module& loaded(int device) {
        const std::lock_guard lock(mutex);
        std::unique_ptr<module>& m = code[device];
        if (!m) m = load(*from);
        return *m;
    }
};
struct named {
    program* home;
    std::string name;
};
std::map<const void*, named>& kernels() {
    static auto* const all = new std::map<const void*, named>;
    return *all;
}
const function* kernel_of(const void* stub) {
    const auto found = kernels().find(stub);
    if (found == kernels().end()) return nullptr;
    try {
        return found->second.home->loaded(current_device()).kernel(found->second.name);
    } catch (const fault& f) {
        std::fprintf(stderr, "software GPU: %s\n", f.what());
        return nullptr;
    }
}

class memory_of_device : public memory {
public:
    explicit memory_of_device(int device) : device_(device) {}
    bool holds(address at, std::size_t bytes) const override { return memories().holds(device_, at, bytes); }
    std::vector<address> copies_of(address at, std::size_t bytes) const override {
        return memories().copies(device_, at, bytes);
    }

private:
    int device_;
};

cudaError_t error_of(fault::kind k) {
    switch (k) {
        case fault::kind::illegal_address: return cudaErrorIllegalAddress;
        case fault::kind::misaligned_address: return cudaErrorMisalignedAddress;
        case fault::kind::illegal_instruction:
        case fault::kind::unsupported: return cudaErrorIllegalInstruction;
        default: return cudaErrorLaunchFailure;
    }
}

// More than 48 KiB must have been requested (cudaFuncSetAttribute).
std::mutex allowed_mutex;
std::map<const void*, std::size_t>& allowed_shared() {
    static auto* const all = new std::map<const void*, std::size_t>;
    return *all;
}
std::size_t dynamic_shared_allowed(const void* stub) {
    const std::lock_guard lock(allowed_mutex);
    const auto found = allowed_shared().find(stub);
    return found == allowed_shared().end() ? 0 : found->second;
}

// Blocks per multiprocessor: 512 threads fill it, because kernels of collx have up to 128 registers.
unsigned per_processor(unsigned threads) { return std::max(1u, 512 / threads); }

cudaError_t launch_kernel(const void* stub, extent grid, extent block, void** arguments, std::size_t shared,
                          cudaStream_t s, bool cooperative) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return e;
    const function* const f = kernel_of(stub);
    if (f == nullptr) return cudaErrorInvalidDeviceFunction;
    const kernel_facts& facts = facts_of(*f);
    const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
    const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
    if (blocks == 0 || threads == 0 || threads > 1024 || block.z > 64 || grid.x > 0x7fffffff || grid.y > 65535 ||
        grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (shared > 48 * 1024 && shared > dynamic_shared_allowed(stub)) return cudaErrorInvalidValue;
    if (threads > facts.max_threads || facts.shared_bytes + shared > 227 * 1024) return cudaErrorLaunchOutOfResources;
    const unsigned fit = static_cast<unsigned>(processors()) * per_processor(static_cast<unsigned>(threads));
    if (cooperative && blocks > fit) return cudaErrorCooperativeLaunchTooLarge;
    launch l;
    l.kernel = f;
    l.grid = grid;
    l.block = block;
    l.dynamic_shared_bytes = shared;
    l.cooperative = cooperative;
    l.resident = fit;
    static std::atomic<std::uint64_t> count{
        std::getenv("SOFTWARE_GPU_SEED") != nullptr ? std::strtoull(std::getenv("SOFTWARE_GPU_SEED"), nullptr, 10) : 0};
    l.seed = count++;
    l.parameters.resize(facts.parameter_bytes + 16);
    for (std::size_t i = 0; i < facts.parameter_offsets.size(); ++i)
        std::memcpy(l.parameters.data() + facts.parameter_offsets[i], arguments[i], facts.parameter_sizes[i]);
    int device = current_device();
    {
        const std::lock_guard lock(streams_mutex());
        const stream* const on = stream_of(s);
        if (on == nullptr) return cudaErrorInvalidResourceHandle;
        device = on->device;
        if (s != nullptr && device != current_device()) return cudaErrorInvalidResourceHandle;
    }
    // Takes whole multiprocessors, as many as it needs at once.
    const unsigned each = per_processor(static_cast<unsigned>(threads));
    const auto taken = static_cast<unsigned>(
        std::min<std::uint64_t>((blocks + each - 1) / each, static_cast<std::uint64_t>(processors())));
    return enqueue(s, [l = std::move(l), device, taken] {
        residents& room = residents_of(device);
        room.enter(taken, cancelled);
        try {
            run(l, memory_of_device(device), cancelled);
        } catch (const fault& why) {
            std::fprintf(stderr, "software GPU: %s\n", why.what());
            set_sticky(error_of(why.why));
        }
        room.leave(taken);
    });
}
extent of(dim3 d) { return {d.x, d.y, d.z}; }

struct configuration {
    dim3 grid, block;
    std::size_t shared;
    cudaStream_t s;
};
thread_local std::vector<configuration> pushed;

} // namespace
} // namespace software_gpu

using namespace software_gpu;

extern "C" {

void** __cudaRegisterFatBinary(void* w) {
    auto* const p = new program;
    p->from = static_cast<const wrapper*>(w);
    return reinterpret_cast<void**>(p);
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void** home, const char* stub, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
    kernels()[stub] = {reinterpret_cast<program*>(home), name};
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
cudaError_t __cudaGetKernel(cudaKernel_t* k, const void* stub) {
    *k = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
    return cudaSuccess;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t s) {
    pushed.push_back({grid, block, shared, s});
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* s) {
    if (pushed.empty()) return returned(cudaErrorMissingConfiguration);
    const configuration c = pushed.back();
    pushed.pop_back();
    *grid = c.grid;
    *block = c.block;
    *shared = c.shared;
    *static_cast<cudaStream_t*>(s) = c.s;
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                               cudaStream_t s) {
    return returned(launch_kernel(k, of(grid), of(block), arguments, shared, s, false));
}
cudaError_t cudaLaunchKernel(const void* k, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                             cudaStream_t s) {
    return returned(launch_kernel(k, of(grid), of(block), arguments, shared, s, false));
}
cudaError_t cudaLaunchCooperativeKernel(const void* k, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                                        cudaStream_t s) {
    return returned(launch_kernel(k, of(grid), of(block), arguments, shared, s, true));
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* k, void** arguments) {
    bool cooperative = false;
    for (unsigned i = 0; i < c->numAttrs; ++i)
        cooperative =
            cooperative || (c->attrs[i].id == cudaLaunchAttributeCooperative && c->attrs[i].val.cooperative != 0);
    return returned(
        launch_kernel(k, of(c->gridDim), of(c->blockDim), arguments, c->dynamicSmemBytes, c->stream, cooperative));
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* k) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    const function* const f = kernel_of(k);
    if (f == nullptr) return returned(cudaErrorInvalidDeviceFunction);
    std::memset(static_cast<void*>(a), 0, sizeof *a);
    a->ptxVersion = facts_of(*f).arch;
    a->binaryVersion = 90;
    a->maxThreadsPerBlock = static_cast<int>(facts_of(*f).max_threads);
    a->sharedSizeBytes = facts_of(*f).shared_bytes;
    a->localSizeBytes = facts_of(*f).local_bytes;
    a->maxDynamicSharedSizeBytes = 48 * 1024;
    a->numRegs = 32;
    return returned(cudaSuccess);
}
cudaError_t cudaFuncSetAttribute(const void* k, cudaFuncAttribute a, int value) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    if (kernel_of(k) == nullptr) return returned(cudaErrorInvalidDeviceFunction);
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize) return returned(cudaSuccess);
    if (value < 0 || value > 227 * 1024) return returned(cudaErrorInvalidValue);
    const std::lock_guard lock(allowed_mutex);
    allowed_shared()[k] = static_cast<std::size_t>(value);
    return returned(cudaSuccess);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void* k, int threads, std::size_t,
                                                                   unsigned) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    if (kernel_of(k) == nullptr) return returned(cudaErrorInvalidDeviceFunction);
    if (threads < 1) return returned(cudaErrorInvalidValue);
    *n = static_cast<int>(per_processor(static_cast<unsigned>(threads)));
    return returned(cudaSuccess);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void* k, int threads, std::size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, k, threads, shared, 0);
}

} // extern "C"
