// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What collx asks of a GPU runtime, as a concept: devices, memory and handles to it, streams, events. Two models exist:
// CUDA's (exec/device/cuda_runtime.cuh) and a fake on host memory and threads (exec/device/fake_runtime.hpp), so that
// everything above this line is tested where there is no GPU. Knows no kernel and no CUDA.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

struct gpu_facts {
    char bus_id[16] = "";       // of the PCI bus, "0000:3b:00.0"
    std::uint64_t uuid[2] = {}; // the same for one device in all processes, whatever its number there
    int processors = 0;         // blocks of 512 threads that are resident together
    bool can_cooperate = false; // a launch whose blocks are all resident, or that fails
};

// From one device to another, as the driver sees it.
struct gpu_access {
    bool can_access = false;     // loads and stores
    bool native_atomics = false; // which only NVLink has: how the two are told apart without NVML
    int performance_rank = 0;
};

enum class memory_place : unsigned char { host, pinned, device, managed };
struct memory_facts {
    memory_place place = memory_place::host;
    int device = -1;
    bool is_foreign = false; // of another context than the runtime's
};

struct stream_facts {
    int device = -1;
    bool is_capturing = false;
    bool is_broken = false; // the capture has been made invalid
};

// What another process of this host needs to map an allocation.
struct memory_handle {
    unsigned char bytes[64] = {};
};

// Streams and events are pointers of the runtime's own. What it refuses it throws as collx::error, with a remedy.
// Beside this it launches, in a stream, what exec/device/ has for blocks:
//   launch_fused<Protocol, Groups>(args, ranks, stream)  blocks (lanes, ranks) of a fused kernel, all resident
//   launch_lanes(body, lanes, stream)                    one block per lane; body(env, lane)
template <class R>
concept GpuRuntime = std::copy_constructible<R> &&
    requires(R r, int device, std::size_t bytes, void* stream, void* event, std::byte* p, const void* q,
             const memory_handle& h, std::uint64_t* word) {
    { r.count() } -> std::same_as<int>;   // devices
    { r.current() } -> std::same_as<int>; // of this thread
    r.use(device);
    { r.facts(device) } -> std::same_as<gpu_facts>;
    { r.access(device, device) } -> std::same_as<gpu_access>;
    r.enable_access(device);                           // from the current device; again is no error
    { r.allocate(bytes) } -> std::same_as<std::byte*>; // zeroed, on the current device
    r.free(p);
    { r.allocate_host(bytes) } -> std::same_as<std::byte*>; // zeroed, pinned and mapped
    r.free_host(p);
    { r.mapped(p) } -> std::same_as<std::byte*>; // host memory as the device sees it
    { r.memory(q) } -> std::same_as<memory_facts>;
    { r.export_memory(p) } -> std::same_as<memory_handle>;
    { r.open_memory(h) } -> std::same_as<std::byte*>; // not in the process that exported it
    r.close_memory(p);
    { r.stream(stream) } -> std::same_as<stream_facts>;
    r.synchronize(stream);
    { r.make_event() } -> std::same_as<void*>;
    r.free_event(event);
    r.record(event, stream);
    r.wait(stream, event); // the stream waits, not the caller
    { r.has_happened(event) } -> std::same_as<bool>;
    { r.load_host(word) } -> std::same_as<std::uint64_t>; // acquire
    r.store_host(word, std::uint64_t{});                  // release
};

} // namespace device
COLLX_END_NAMESPACE
