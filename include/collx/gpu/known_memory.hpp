// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where the buffers of calls lie, as the driver says, and whether calls may use them. The query costs as much as a
// launch, so the last answers are kept. An answer may be outdated if the memory was freed and its address is in use
// again: pinned memory works, and memory that kernels cannot reach ends them with a CUDA error.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/error.hpp>
#include <collx/transport/gpu_runtime.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

class known_memory {
public:
    // Errors: invalid_argument if p is not in memory that kernels on `device` may use.
    template <device::GpuRuntime Runtime>
    void require_device(const Runtime& runtime, int device, const void* p, const char* which, int rank) {
        const void*& known = of_device_[slot_of(p)];
        if (p == known && p != nullptr) return;
        if (p == nullptr)
            fail(errc::invalid_argument, rank, -1, "pass memory, or a size of 0", "the %s buffer is null", which);
        const device::memory_facts f = runtime.memory(p);
        if (f.place != device::memory_place::device && f.place != device::memory_place::managed)
            fail(errc::invalid_argument, rank, -1, "allocate it with cudaMalloc, or pass a thrust::device_vector",
                 "the %s buffer lies in %s memory", which,
                 f.place == device::memory_place::pinned ? "pinned host" : "the host's");
        if (f.place == device::memory_place::device && f.device != device)
            fail(errc::invalid_argument, rank, -1, "allocate it while the communicator's device is current",
                 "the %s buffer lies on device %d, and this communicator's memory on device %d", which, f.device,
                 device);
        if (f.is_foreign)
            fail(errc::invalid_argument, rank, -1, "allocate it in the context that is current, the primary one",
                 "the %s buffer is of another context of device %d", which, f.device);
        known = p;
    }
    // Errors: invalid_argument if p, which is passed as host memory, lies in a device's.
    template <device::GpuRuntime Runtime>
    void require_host(const Runtime& runtime, const void* p, const char* which, int rank) {
        const void*& known = of_host_[slot_of(p)];
        if (p == known) return;
        if (runtime.memory(p).place == device::memory_place::device)
            fail(errc::invalid_argument, rank, -1, "pass a device_view, a thrust::device_vector or collx::on_device(x)",
                 "the %s buffer lies in device memory, and its type says nothing of it", which);
        known = p;
    }

private:
    static constexpr std::size_t slots = 64;
    static std::size_t slot_of(const void* p) { return (reinterpret_cast<std::uintptr_t>(p) >> 8) % slots; }
    const void *of_device_[slots] = {}, *of_host_[slots] = {};
};

} // namespace detail
COLLX_END_NAMESPACE
