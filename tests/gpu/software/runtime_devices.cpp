// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Results of calls, and devices.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime.hpp"

namespace software_gpu {
namespace {

std::atomic<int> sticky{cudaSuccess};
thread_local cudaError_t last = cudaSuccess;
thread_local int device_now = 0;
std::atomic<bool> used{false}, is_forked_child{false};

int number_from(const char* name, int otherwise) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::atoi(text) : otherwise;
}

} // namespace

std::atomic<bool> stopped{false}, cancelled{false};

cudaError_t returned(cudaError_t e) {
    if (e == cudaSuccess) e = sticky_error();
    if (e != cudaSuccess) last = e;
    return e;
}
cudaError_t sticky_error() { return static_cast<cudaError_t>(sticky.load()); }
void set_sticky(cudaError_t e) {
    int none = cudaSuccess;
    sticky.compare_exchange_strong(none, e);
    cancelled = true; // a fault ends the context, and with it kernels that wait for the failed one
}
cudaError_t ready() {
    if (is_forked_child) return cudaErrorInitializationError;
    if (stopped) return cudaErrorCudartUnloading;
    if (device_count() == 0) return cudaErrorNoDevice;
    if (!used.exchange(true)) pthread_atfork(nullptr, nullptr, [] { is_forked_child = true; });
    return sticky_error();
}

bool is_in_forked_child() { return is_forked_child; }

int device_count() {
    static const int n = number_from("SOFTWARE_GPUS", 1);
    return n;
}
int processors() {
    static const int n = number_from("SOFTWARE_GPU_SMS", 8);
    return n;
}
int& current_device() { return device_now; }

namespace {
std::mutex access_mutex;
std::set<std::pair<int, int>>& accesses() {
    static auto* const all = new std::set<std::pair<int, int>>;
    return *all;
}
} // namespace
bool may_access(int from, int to) {
    const std::lock_guard lock(access_mutex);
    return from == to || accesses().contains({from, to});
}
void let_access(int from, int to) {
    const std::lock_guard lock(access_mutex);
    accesses().insert({from, to});
}

void residents::enter(unsigned blocks, const std::atomic<bool>& stop) {
    std::unique_lock lock(mutex_);
    const std::uint64_t mine = next_++;
    while (!stop && (served_ != mine || free_ < blocks)) left_.wait_for(lock, std::chrono::milliseconds(20));
    ++served_;
    free_ -= std::min(free_, blocks);
    left_.notify_all();
}
void residents::leave(unsigned blocks) {
    const std::lock_guard lock(mutex_);
    free_ += blocks;
    left_.notify_all();
}
residents& residents_of(int device) {
    static auto* const all = new std::deque<residents>(static_cast<std::size_t>(device_count()));
    return (*all)[static_cast<std::size_t>(device)];
}

} // namespace software_gpu

using namespace software_gpu;

namespace {
bool is_device(int d) { return d >= 0 && d < device_count(); }
} // namespace

extern "C" {

cudaError_t cudaGetLastError() {
    const cudaError_t e = cudaPeekAtLastError();
    last = cudaSuccess;
    return e;
}
cudaError_t cudaPeekAtLastError() { return sticky_error() != cudaSuccess ? sticky_error() : last; }

cudaError_t cudaGetDeviceCount(int* n) {
    *n = 0;
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    *n = device_count();
    return returned(cudaSuccess);
}
cudaError_t cudaGetDevice(int* d) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    *d = current_device();
    return returned(cudaSuccess);
}
cudaError_t cudaSetDevice(int d) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    if (!is_device(d)) return returned(cudaErrorInvalidDevice);
    current_device() = d;
    return returned(cudaSuccess);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr a, int d) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    if (!is_device(d)) return returned(cudaErrorInvalidDevice);
    switch (a) {
        case cudaDevAttrMultiProcessorCount: *value = processors(); break;
        case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
        case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
        case cudaDevAttrCooperativeLaunch: *value = 1; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 * 1024; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 * 1024; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 228 * 1024; break;
        case cudaDevAttrMaxGridDimX: *value = 0x7fffffff; break;
        case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrMemoryPoolsSupported: *value = 0; break;
        default:
            std::fprintf(stderr, "software GPU: attribute %d of a device is not known\n", static_cast<int>(a));
            return returned(cudaErrorInvalidValue);
    }
    return returned(cudaSuccess);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int d) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    if (!is_device(d)) return returned(cudaErrorInvalidDevice);
    std::memset(static_cast<void*>(p), 0, sizeof *p);
    std::snprintf(p->name, sizeof p->name, "a GPU in software");
    std::memcpy(&p->uuid, "software GPU 000", 16);
    p->uuid.bytes[15] = static_cast<char>('0' + d);
    p->major = 9;
    p->minor = 0;
    p->multiProcessorCount = processors();
    p->cooperativeLaunch = 1;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->sharedMemPerBlock = 48 * 1024;
    p->sharedMemPerBlockOptin = 227 * 1024;
    p->sharedMemPerMultiprocessor = 228 * 1024;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->totalConstMem = 65536;
    p->l2CacheSize = 1 << 20;
    p->totalGlobalMem = device_bytes;
    p->unifiedAddressing = p->canMapHostMemory = p->concurrentKernels = p->hostNativeAtomicSupported = 1;
    p->asyncEngineCount = 1;
    p->pciBusID = d + 1;
    return returned(cudaSuccess);
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int d) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    if (!is_device(d)) return returned(cudaErrorInvalidDevice);
    std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", d + 1);
    return returned(cudaSuccess);
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int from, int to) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    if (!is_device(from) || !is_device(to)) return returned(cudaErrorInvalidDevice);
    *can = from != to;
    return returned(cudaSuccess);
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    if (!is_device(peer) || peer == current_device()) return returned(cudaErrorInvalidDevice);
    if (may_access(current_device(), peer)) return returned(cudaErrorPeerAccessAlreadyEnabled);
    let_access(current_device(), peer);
    return returned(cudaSuccess);
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr a, int from, int to) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    if (!is_device(from) || !is_device(to) || from == to) return returned(cudaErrorInvalidDevice);
    *value = a == cudaDevP2PAttrPerformanceRank ? 0 : 1;
    return returned(cudaSuccess);
}

} // extern "C"
