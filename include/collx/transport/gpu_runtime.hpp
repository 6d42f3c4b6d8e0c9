// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What collx asks of a GPU runtime, as a concept: devices, memory and handles to it, streams, events. Two models exist:
// CUDA's (exec/device/cuda_runtime.cuh) and a fake on host memory and threads (testing/fake_runtime.hpp), so that all
// code above it is tested where there is no GPU. Knows no kernel and no CUDA.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// How memory of a device is shown to other processes. It is decided when the memory is made.
enum class handle_kind : unsigned char {
    ipc,   // cudaIpcMemHandle_t: any memory of cudaMalloc, one host
    file,  // a file descriptor, given from process to process: one host, whatever its IPC namespaces
    fabric // CUmemFabricHandle: wherever the NVLink fabric goes, other hosts too
};
inline constexpr int handle_kinds = 3; // how many there are
// Its name, for messages.
inline const char* name_of(handle_kind k) {
    constexpr const char* names[] = {"CUDA IPC", "file descriptors", "fabric handles"};
    return names[static_cast<int>(k)];
}
// The bit of a kind in a set of them.
constexpr unsigned bit_of(handle_kind k) { return 1u << static_cast<unsigned>(k); }

// What a runtime says of its device.
struct gpu_facts {
    char bus_id[16] = "";       // of the PCI bus, "0000:3b:00.0"
    std::uint64_t uuid[2] = {}; // the same for one device in all processes, whatever its number there
    int processors = 0;         // blocks of 512 threads that are resident together
    bool can_cooperate = false; // it launches so that all blocks are resident, or fails
    unsigned handles = 0;       // bits of the kinds that the driver offers for its memory
    bool multicasts = false;    // joined to a switch that reduces and multicasts, and to its other devices
};

// From one device to another, as the driver sees it.
struct gpu_access {
    bool can_access = false;     // loads and stores
    bool native_atomics = false; // which only NVLink has: how NVLink and PCIe are distinguished without NVML
    int performance_rank = 0;
};

// Where memory lies.
enum class memory_place : unsigned char { host, pinned, device, managed };
// What a runtime says of an address.
struct memory_facts {
    memory_place place = memory_place::host;
    int device = -1;
    bool is_foreign = false; // of another context than the runtime's
};

// What a runtime says of a stream.
struct stream_facts {
    int device = -1; // -1: not known, as while the stream is captured
    bool is_capturing = false;
    bool is_broken = false;    // the capture has been made invalid
    std::uint64_t capture = 0; // which capture this is, of all in the process; of interest while capturing
};

// What another process needs to map an allocation.
struct memory_handle {
    unsigned char bytes[64] = {};
};

// Memory that was made to be shown to other processes, or memory of another process that was opened.
struct gpu_mapping {
    std::byte* at = nullptr;
    std::size_t bytes = 0;
    handle_kind kind = handle_kind::ipc;
    std::uint64_t driver = 0; // the driver's name for it
    int file = -1;            // open while others may ask for it: the exporter closes it
};

// Streams and events are the runtime's own pointers. What it refuses it throws as collx::error, with a remedy. It also
// launches, in a stream, the blocks of exec/device/:
//   launch_fused<Protocol, Groups>(args, ranks, stream)  blocks (lanes, ranks) of a fused kernel, all resident
//   launch_array(calls, ranks, stream)                   the same for several calls, of one kernel or of several
//   launch_lanes(body, lanes, stream)                    one block per lane; body(env, lane, lanes)
//   run_lanes(body, lanes)                               the same beside all streams of the program, to its end
template <class R>
concept GpuRuntime = std::copy_constructible<R> &&
    requires(R r, int device, std::size_t bytes, void* stream, void* event, std::byte* p, const void* q,
             const memory_handle& h, std::uint64_t* word, handle_kind kind, gpu_mapping& m) {
    { r.count() } -> std::same_as<int>;   // devices
    { r.current() } -> std::same_as<int>; // of this thread
    r.use(device);
    { r.facts(device) } -> std::same_as<gpu_facts>;
    { r.access(device, device) } -> std::same_as<gpu_access>;
    r.enable_access(device); // from the current device; again is no error
    r.load_kernels();        // all of the program's on the current device, so that no launch waits for what runs there
    { r.allocate(bytes) } -> std::same_as<std::byte*>; // zeroed, on the current device
    r.free(p);
    { r.allocate_host(bytes) } -> std::same_as<std::byte*>; // zeroed, pinned and mapped
    r.free_host(p);
    { r.mapped(p) } -> std::same_as<std::byte*>; // host memory as the device sees it
    { r.memory(q) } -> std::same_as<memory_facts>;
    { r.allocate_shared(bytes, kind) } -> std::same_as<gpu_mapping>; // as allocate
    r.free_shared(m);
    { r.export_memory(m) } -> std::same_as<memory_handle>;
    // By ipc: not in the process that exported it, and to be closed before that process frees it.
    { r.open_memory(h, kind, bytes) } -> std::same_as<gpu_mapping>;
    r.close_memory(m);
    r.grant(p, bytes, device); // shared memory of this process to another of its devices; ipc needs none
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

// A runtime whose devices may be joined by a switch, which reduces loads from an address of all devices and multicasts
// stores to it. One rank makes the object of such an address, and the others open it. Each rank joins it with its
// current device, and binds it to memory when all have joined.
template <class R>
concept MulticastRuntime = GpuRuntime<R> && requires(R r, std::size_t bytes, int devices, const memory_handle& h,
                                                     handle_kind kind, gpu_mapping& object, const gpu_mapping& memory) {
    // It has no address yet. bytes: of the memory of each device. export_memory() shows it.
    { r.make_multicast(bytes, devices, kind) } -> std::same_as<gpu_mapping>;
    { r.open_multicast(h, kind, bytes) } -> std::same_as<gpu_mapping>;
    r.join_multicast(object);
    r.bind_multicast(object, memory); // and gives it its address
    r.close_multicast(object);
};

} // namespace device
COLLX_END_NAMESPACE
