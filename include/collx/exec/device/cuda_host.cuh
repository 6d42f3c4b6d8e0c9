// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The host's use of the CUDA runtime while kernels wait for each other, or while the program captures a stream: errors
// with a remedy, memory that is cleared without waiting for anything else on the device, and kernels that are loaded
// before one of them runs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include <collx/core/error.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// After these errors the process cannot use CUDA any more.
inline const char* remedy_for_ended_kernel(cudaError_t e) {
    return e == cudaErrorLaunchTimeout
               ? "the system ends long kernels of a device that drives a display, also one that waits for a late peer: "
                 "use another device, or a time limit of the communicator below the system's"
               : "some kernel of this process failed: run it under compute-sanitizer";
}

// The remedy for an error of the runtime; also sets the code to throw.
inline const char* remedy_for_cuda(cudaError_t e, errc& code) {
    code = errc::invalid_argument;
    switch (e) {
        case cudaErrorInsufficientDriver:
        case cudaErrorNoDevice:
            code = errc::unsupported;
            return "run it on a machine with an NVIDIA GPU and its driver";
        case cudaErrorMemoryAllocation: code = errc::resource; return "free memory of the device";
        case cudaErrorCooperativeLaunchTooLarge:
            code = errc::resource;
            return "the kernel's blocks must be resident together: use fewer lanes (device_settings), or leave room "
                   "beside other kernels";
        case cudaErrorPeerAccessUnsupported:
        case cudaErrorTooManyPeers:
            code = errc::unsupported;
            return "the calls go by way of the host with device_settings::staged";
        case cudaErrorStreamCaptureUnsupported:
        case cudaErrorStreamCaptureInvalidated:
        case cudaErrorStreamCaptureMerge:
        case cudaErrorStreamCaptureUnmatched:
        case cudaErrorStreamCaptureUnjoined:
        case cudaErrorStreamCaptureIsolation:
        case cudaErrorStreamCaptureImplicit:
        case cudaErrorCapturedEvent:
        case cudaErrorStreamCaptureWrongThread:
            return "while a stream is captured use that stream, and nothing that waits; begin the capture anew";
        case cudaErrorMapBufferObjectFailed:
        case cudaErrorInvalidResourceHandle:
            return "the handle, stream or event is of another device, or no longer there";
        case cudaErrorNoKernelImageForDevice:
        case cudaErrorInvalidDeviceFunction:
        case cudaErrorUnsupportedPtxVersion:
            code = errc::unsupported;
            return "compile for this device, -arch=native, with a CUDA that its driver knows";
        case cudaErrorInitializationError:
            return "a process whose parent used CUDA before fork() cannot: start ranks before that, or with exec";
        case cudaErrorLaunchTimeout:
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchFailure: code = errc::aborted; return remedy_for_ended_kernel(e);
        default: return "see the CUDA runtime's error codes";
    }
}

// Throws what the runtime refuses.
inline void require_cuda(cudaError_t e, const char* what) {
    if (e == cudaSuccess) return;
    cudaGetLastError(); // it is thrown here, so the program's next cudaGetLastError() need not report it
    errc code;
    const char* remedy = remedy_for_cuda(e, code);
    fail(code, -1, -1, remedy, "%s: %s (CUDA error %d)", what, cudaGetErrorString(e), static_cast<int>(e));
}

// While it lives, this thread may do what CUDA forbids while any thread captures in the default mode (allocate, free,
// query an event): what is done here belongs to no capture.
class beside_captures {
public:
    beside_captures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    beside_captures(const beside_captures&) = delete;
    ~beside_captures() { cudaThreadExchangeStreamCaptureMode(&mode_); }

private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// The memory is zero when it returns. Uses its own stream: the default stream and cudaDeviceSynchronize wait for all
// that runs on the device, including kernels that wait for a peer, and the latter breaks captures of other threads.
inline cudaError_t clear_memory(void* p, std::size_t bytes) {
    const beside_captures free_to_wait;
    cudaStream_t own = nullptr;
    cudaError_t e = cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    if (e != cudaSuccess) return e;
    e = cudaMemsetAsync(p, 0, bytes, own);
    if (e == cudaSuccess) e = cudaStreamSynchronize(own);
    cudaStreamDestroy(own);
    return e;
}
inline cudaError_t allocate_cleared(void** p, std::size_t bytes) {
    const beside_captures free_to_allocate;
    cudaError_t e = cudaMalloc(p, bytes);
    if (e != cudaSuccess) return e;
    e = clear_memory(*p, bytes);
    if (e != cudaSuccess) cudaFree(*p);
    return e;
}

// Memory of the current device and mapped memory of the host, without regard to captures.
class cuda_memory {
public:
    std::byte* allocate(std::size_t bytes) const {
        void* p = nullptr;
        require_cuda(allocate_cleared(&p, bytes), "allocating and clearing exchange memory");
        return static_cast<std::byte*>(p);
    }
    void free(std::byte* p) const {
        const beside_captures free_to_free;
        cudaFree(p);
    }
    std::byte* allocate_host(std::size_t bytes) const {
        const beside_captures free_to_allocate;
        void* p = nullptr;
        require_cuda(cudaHostAlloc(&p, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "allocating pinned memory");
        __builtin_memset(p, 0, bytes);
        return static_cast<std::byte*>(p);
    }
    void free_host(std::byte* p) const {
        const beside_captures free_to_free;
        cudaFreeHost(p);
    }
    // The device's address of host memory.
    std::byte* mapped(std::byte* p) const {
        void* d = nullptr;
        require_cuda(cudaHostGetDevicePointer(&d, p, 0), "mapping host memory");
        return static_cast<std::byte*>(d);
    }
    std::uint64_t load_host(const std::uint64_t* p) const { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    void store_host(std::uint64_t* p, std::uint64_t x) const { __atomic_store_n(p, x, __ATOMIC_RELEASE); }
};

// A kernel that this program may launch. All are registered when main() begins.
class known_kernel {
public:
    explicit known_kernel(const void* kernel) : kernel_(kernel), next_(first_) {
        // A library may be loaded while another thread reads the list.
        __atomic_store_n(&first_, this, __ATOMIC_RELEASE);
    }
    known_kernel(const known_kernel&) = delete;

    static std::size_t count() {
        std::size_t n = 0;
        for (const known_kernel* k = first(); k != nullptr; k = k->next_) ++n;
        return n;
    }
    // Loads all of them on the current device. By default CUDA loads a kernel at its first launch. It may then wait for
    // all that runs on the device, with a lock held that other threads' launches need: for ever, where what runs waits
    // for the kernel that is to be loaded.
    static void load_all() {
        const beside_captures free_to_load;
        for (const known_kernel* k = first(); k != nullptr; k = k->next_) {
            cudaFuncAttributes a;
            // A kernel that was not compiled for this device reports that when it is launched.
            if (cudaFuncGetAttributes(&a, k->kernel_) != cudaSuccess) cudaGetLastError();
        }
    }

    // Whether what runs of all of them on the current device was compiled for this virtual architecture or a later one.
    static bool are_all_compiled_for(int arch) {
        const beside_captures free_to_load;
        for (const known_kernel* k = first(); k != nullptr; k = k->next_) {
            cudaFuncAttributes a;
            if (cudaFuncGetAttributes(&a, k->kernel_) != cudaSuccess) {
                cudaGetLastError();
                return false;
            }
            if (a.ptxVersion < arch) return false;
        }
        return true;
    }

private:
    const void* kernel_;
    const known_kernel* next_;
    static const known_kernel* first() { return __atomic_load_n(&first_, __ATOMIC_ACQUIRE); }
    static inline const known_kernel* first_ = nullptr;
};

// Of: a type whose kernel() is the address. A launch instantiates this, which registers the kernel before main().
template <class Of>
inline const known_kernel known_kernel_v{Of::kernel()};
// The kernel of Of, registered.
template <class Of>
const void* make_known() {
    static_cast<void>(&known_kernel_v<Of>);
    return Of::kernel();
}

} // namespace device
COLLX_END_NAMESPACE
