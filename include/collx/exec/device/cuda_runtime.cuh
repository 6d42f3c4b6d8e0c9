// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The CUDA runtime as a GpuRuntime (transport/gpu_runtime.hpp). Needs nvcc, and nothing of the driver's library at link
// time. The code above it is also tested on fake_runtime.hpp.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <collx/exec/device/call_mix.hpp>
#include <collx/exec/device/callable.cuh>
#include <collx/exec/device/cuda_host.cuh>
#include <collx/exec/device/cuda_shared.cuh>
#include <collx/exec/device/multicast.cuh>
#include <collx/exec/device/staging.hpp>
#include <collx/exec/fused.cuh>
#include <collx/transport/gpu_runtime.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// One block per lane.
template <class Body>
__global__ void __launch_bounds__(block_threads) lanes_kernel(const __grid_constant__ Body body) {
    if (false) require_device_code_of_lanes(body);
    cuda_env<1> env;
    body(env, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
}

// The same for the calls of a group.
template <class Call>
__device__ void require_device_code_of(const call_array<Call>& calls) {
    require_device_code_of(calls[0]);
}
template <class... Calls>
__device__ void require_device_code_of(const call_mix<Calls...>& calls) {
    (require_device_code_of(calls.template at<Calls>(0)), ...);
}

// Several calls in one launch: of one kernel (exec/device/group.hpp), or of several (exec/device/call_mix.hpp).
template <class Calls>
__global__ void __launch_bounds__(block_threads, 1) fused_array_kernel(const __grid_constant__ Calls calls) {
    if (false) require_device_code_of(calls);
    __shared__ block_state shared;
    cuda_env<1> env;
    run_calls(env, calls, shared, calls.first_rank + static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x));
}

class cuda_runtime : public cuda_memory {
    // What make_known() needs for each kernel that is launched here.
    template <class Protocol, int Groups, class Algorithm, class Types>
    struct fused_one {
        using args = fused_args<Algorithm, Types>;
        static const void* kernel() {
            return reinterpret_cast<const void*>(&fused_kernel<Protocol, Groups, Algorithm, Types>);
        }
    };
    template <class Calls>
    struct fused_array {
        using args = Calls;
        static const void* kernel() { return reinterpret_cast<const void*>(&fused_array_kernel<Calls>); }
    };
    template <class Body>
    struct lanes_of {
        static const void* kernel() { return reinterpret_cast<const void*>(&lanes_kernel<Body>); }
    };

public:
    void load_kernels() const { known_kernel::load_all(); }
    int count() const {
        int n = 0;
        require_cuda(cudaGetDeviceCount(&n), "counting CUDA devices");
        return n;
    }
    int current() const {
        int d = 0;
        require_cuda(cudaGetDevice(&d), "looking for a CUDA device");
        return d;
    }
    void use(int device) const { require_cuda(cudaSetDevice(device), "choosing a device"); }
    gpu_facts facts(int device) const {
        gpu_facts f;
        cudaDeviceProp p;
        require_cuda(cudaGetDeviceProperties(&p, device), "asking a device");
        require_cuda(cudaDeviceGetPCIBusId(f.bus_id, sizeof f.bus_id, device), "asking a device");
        std::memcpy(f.uuid, &p.uuid, sizeof f.uuid);
        f.processors = p.multiProcessorCount;
        f.can_cooperate = p.cooperativeLaunch != 0;
        f.handles = cuda_shared::offers(device);
        f.multicasts = cuda_shared::multicasts(device) && known_kernel::are_all_compiled_for(ptx::multimem_arch);
        return f;
    }
    gpu_access access(int from, int to) const {
        gpu_access a;
        int can = 0, atomics = 0;
        require_cuda(cudaDeviceCanAccessPeer(&can, from, to), "asking about peer access");
        a.can_access = can != 0;
        if (can == 0) return a;
        require_cuda(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to), "asking");
        require_cuda(cudaDeviceGetP2PAttribute(&a.performance_rank, cudaDevP2PAttrPerformanceRank, from, to), "asking");
        a.native_atomics = atomics != 0;
        return a;
    }
    void enable_access(int peer) const {
        const beside_captures free_to_map;
        const cudaError_t e = cudaDeviceEnablePeerAccess(peer, 0);
        if (e == cudaErrorPeerAccessAlreadyEnabled) return void(cudaGetLastError());
        require_cuda(e, "enabling peer access");
    }

    memory_facts memory(const void* p) const {
        const beside_captures free_to_ask;
        cudaPointerAttributes a{};
        require_cuda(cudaPointerGetAttributes(&a, p), "asking where a buffer lies");
        memory_facts f;
        f.device = a.device;
        f.place = a.type == cudaMemoryTypeDevice    ? memory_place::device
                  : a.type == cudaMemoryTypeManaged ? memory_place::managed
                  : a.type == cudaMemoryTypeHost    ? memory_place::pinned
                                                    : memory_place::host;
        if (f.place == memory_place::device) f.is_foreign = is_of_another_context(p);
        return f;
    }
    gpu_mapping allocate_shared(std::size_t bytes, handle_kind kind) const {
        if (kind == handle_kind::ipc) {
            // Less memory may be part of a block, and a handle would show the rest of the block, too.
            constexpr std::size_t block = std::size_t{2} << 20;
            bytes = (bytes + block - 1) / block * block;
            return {allocate(bytes), bytes, kind};
        }
        gpu_mapping m = cuda_shared::make(bytes, kind, current());
        const cudaError_t e = clear_memory(m.at, bytes);
        if (e != cudaSuccess) cuda_shared::drop(m);
        require_cuda(e, "clearing exchange memory");
        return m;
    }
    void free_shared(gpu_mapping& m) const {
        const beside_captures free_to_free;
        if (m.kind == handle_kind::ipc) {
            free(m.at);
            m = {};
        } else cuda_shared::drop(m);
    }
    memory_handle export_memory(gpu_mapping& m) const {
        const beside_captures free_to_show;
        if (m.kind != handle_kind::ipc) return cuda_shared::handle_of(m);
        cudaIpcMemHandle_t h;
        require_cuda(cudaIpcGetMemHandle(&h, m.at), "exporting exchange memory");
        static_assert(sizeof h <= sizeof(memory_handle::bytes));
        memory_handle made;
        std::memcpy(made.bytes, &h, sizeof h);
        return made;
    }
    gpu_mapping open_memory(const memory_handle& m, handle_kind kind, std::size_t bytes) const {
        const beside_captures free_to_map;
        if (kind != handle_kind::ipc) return cuda_shared::open(m, kind, bytes, current());
        cudaIpcMemHandle_t h;
        std::memcpy(&h, m.bytes, sizeof h);
        void* p = nullptr;
        require_cuda(cudaIpcOpenMemHandle(&p, h, cudaIpcMemLazyEnablePeerAccess), "mapping a peer's memory");
        return {static_cast<std::byte*>(p), bytes, kind};
    }
    void close_memory(gpu_mapping& m) const {
        const beside_captures free_to_unmap;
        if (m.kind == handle_kind::ipc) cudaIpcCloseMemHandle(m.at);
        else cuda_shared::drop(m);
    }
    gpu_mapping make_multicast(std::size_t bytes, int devices, handle_kind kind) const {
        const beside_captures free_to_allocate;
        return cuda_shared::make_multicast(bytes, devices, kind);
    }
    gpu_mapping open_multicast(const memory_handle& h, handle_kind kind, std::size_t bytes) const {
        const beside_captures free_to_map;
        return cuda_shared::taken(h, kind, bytes);
    }
    void join_multicast(gpu_mapping& m) const {
        const beside_captures free_to_map;
        cuda_shared::join_multicast(m, current());
    }
    void bind_multicast(gpu_mapping& m, const gpu_mapping& memory) const {
        const beside_captures free_to_map;
        cuda_shared::bind_multicast(m, memory, current());
    }
    void close_multicast(gpu_mapping& m) const {
        const beside_captures free_to_unmap;
        cuda_shared::drop(m);
    }
    void grant(std::byte* p, std::size_t bytes, int device) const { cuda_shared::grant(p, bytes, device); }

    stream_facts stream(void* s) const {
        stream_facts f;
        const auto stream = static_cast<cudaStream_t>(s);
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        unsigned long long capture = 0;
        require_cuda(cudaStreamIsCapturing(stream, &status), "asking a stream");
        if (status == cudaStreamCaptureStatusActive)
            require_cuda(cudaStreamGetCaptureInfo(stream, &status, &capture), "asking a stream");
        // A captured stream must not be asked for its device: the query is refused and ends the capture.
        if (s == nullptr) f.device = current();
        else if (status == cudaStreamCaptureStatusNone) f.device = device_of(stream);
        f.is_capturing = status != cudaStreamCaptureStatusNone;
        f.is_broken = status == cudaStreamCaptureStatusInvalidated;
        f.capture = capture;
        return f;
    }
    void synchronize(void* s) const {
        require_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(s)), "waiting for a stream");
    }
    void* make_event() const {
        cudaEvent_t e = nullptr;
        require_cuda(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "making an event");
        return e;
    }
    void free_event(void* e) const { cudaEventDestroy(static_cast<cudaEvent_t>(e)); }
    void record(void* e, void* s) const {
        require_cuda(cudaEventRecord(static_cast<cudaEvent_t>(e), static_cast<cudaStream_t>(s)), "recording an event");
    }
    void wait(void* s, void* e) const {
        require_cuda(cudaStreamWaitEvent(static_cast<cudaStream_t>(s), static_cast<cudaEvent_t>(e), 0),
                     "ordering two streams");
    }
    bool has_happened(void* e) const {
        const beside_captures free_to_ask;
        const cudaError_t answer = cudaEventQuery(static_cast<cudaEvent_t>(e));
        if (answer != cudaSuccess) cudaGetLastError(); // "not ready" counts as an error, too
        return answer != cudaErrorNotReady;            // after a failure of the device nothing runs any more
    }

    template <class Protocol, int Groups, class Algorithm, class Types>
    void launch_fused(const fused_args<Algorithm, Types>& a, int ranks, void* stream) const {
        launch_resident<fused_one<Protocol, Groups, Algorithm, Types>>(a, a.lanes, ranks, stream);
    }
    template <class Calls>
    void launch_array(const Calls& calls, int ranks, void* stream) const {
        launch_resident<fused_array<Calls>>(calls, calls.lanes, ranks, stream);
    }
    template <class Body>
    void launch_lanes(const Body& body, int lanes, void* stream) const {
        void* parameters[] = {const_cast<Body*>(&body)};
        require_cuda(cudaLaunchKernel(make_known<lanes_of<Body>>(), dim3(static_cast<unsigned>(lanes)),
                                      dim3(block_threads), parameters, 0, static_cast<cudaStream_t>(stream)),
                     "launching a kernel of set-up or staging");
    }
    // In its own stream: the default stream waits for all that runs on the device.
    template <class Body>
    void run_lanes(const Body& body, int lanes) const {
        const beside_captures free_to_wait;
        cudaStream_t own = nullptr;
        require_cuda(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), "making a stream");
        try {
            launch_lanes(body, lanes, own);
            synchronize(own);
        } catch (...) {
            cudaStreamDestroy(own);
            throw;
        }
        cudaStreamDestroy(own);
    }

private:
    template <class Of, class Args = typename Of::args>
    static void launch_resident(const Args& a, int lanes, int ranks, void* stream) {
        static_assert(sizeof(a) <= 32764, "collx: views and operators must fit a kernel's parameters");
        void* parameters[] = {const_cast<Args*>(&a)};
        const dim3 grid(static_cast<unsigned>(lanes), static_cast<unsigned>(ranks));
        require_cuda(cudaLaunchCooperativeKernel(make_known<Of>(), grid, dim3(block_threads), parameters, 0,
                                                 static_cast<cudaStream_t>(stream)),
                     "launching a fused kernel");
    }
    // -1 where the driver cannot tell: only since CUDA 12.8.
    static int device_of(cudaStream_t stream) {
        int device = -1;
        const cudaError_t e = cudaStreamGetDevice(stream, &device);
        if (e == cudaErrorNotSupported || e == cudaErrorCallRequiresNewerDriver) {
            cudaGetLastError();
            return -1;
        }
        require_cuda(e, "asking a stream");
        return device;
    }
    // Only the driver knows contexts.
    static bool is_of_another_context(const void* p) {
        using get_attribute = CUresult (*)(void*, CUpointer_attribute, CUdeviceptr);
        using get_current = CUresult (*)(CUcontext*);
        static const auto attribute_of = cuda_driver_function<get_attribute>("cuPointerGetAttribute");
        static const auto context_now = cuda_driver_function<get_current>("cuCtxGetCurrent");
        CUcontext of_memory = nullptr, now = nullptr;
        if (attribute_of == nullptr || context_now == nullptr) return false;
        const auto address = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(p));
        if (attribute_of(&of_memory, CU_POINTER_ATTRIBUTE_CONTEXT, address) != CUDA_SUCCESS) return false;
        if (context_now(&now) != CUDA_SUCCESS) return false;
        return of_memory != nullptr && now != nullptr && of_memory != now; // memory of pools has no context
    }
};
static_assert(MulticastRuntime<cuda_runtime>);

} // namespace device
COLLX_END_NAMESPACE
