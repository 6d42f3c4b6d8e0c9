// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A switch that reduces and multicasts (NVLS): rank r's buffers are memory of device r, bound to one multicast
// object, and the ranks' blocks run on device 0. Also long sums of a communicator whose ranks have a device each.
// Needs at least two devices behind a switch; exits with 77 elsewhere. Without a GPU it runs on the software GPU
// (software/README.md); it has not run on a real one.
#include <cuda.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../support/patience.hpp"
#include "support.hpp"

#include <collx/algo/multicast.hpp>
#include <collx/algo/zero_copy.hpp>
#include <collx/collx.hpp>
#include <collx/comm/run_threads.hpp>
#include <collx/exec/device/cuda_shared.cuh>
#include <collx/gpu/calls.cuh>
#include <collx/gpu/team.cuh>

using namespace collx;
using device::fused_options;
using device::require_cuda;

namespace {

// As the machine of gpu_team, but without its check of where buffers are.
class switch_machine : public device::cuda_machine {
public:
    bool has_multicast(const fused_options& o) const { return o.multicast_in != nullptr; }
    void require_memory(int, const void*, const char*) {}
};
using switch_team = fused_team<switch_machine>;

void check(CUresult e, const char* what) {
    if (e != CUDA_SUCCESS) throw std::runtime_error(std::string(what) + ": driver error " + std::to_string(e));
}
template <class F>
F driver(const char* name) {
    const bool is_multicast = std::string_view(name).starts_with("cuMulticast");
    const F f = device::cuda_driver_function<F>(name, is_multicast ? device::cuda_shared::multicast_since : 12000);
    if (f == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
    return f;
}
#define DRIVER(name) driver<decltype(&name)>(#name)

bool is_offered(int devices) {
    for (int d = 0; d < devices; ++d) {
        int has = 0;
        check(DRIVER(cuDeviceGetAttribute)(&has, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, d), "asking a device");
        if (has == 0) return false;
    }
    return devices > 1;
}

// `bytes` on each device, at one address per device and at one common address.
class bound_memory {
public:
    bound_memory(int devices, std::size_t bytes) : bytes_(bytes) {
        CUmulticastObjectProp all{};
        all.numDevices = static_cast<unsigned>(devices);
        all.size = bytes;
        all.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        std::size_t step = 0;
        check(DRIVER(cuMulticastGetGranularity)(&step, &all, CU_MULTICAST_GRANULARITY_RECOMMENDED), "asking");
        all.size = bytes_ = (bytes + step - 1) / step * step;
        check(DRIVER(cuMulticastCreate)(&object_, &all), "making a multicast object");
        for (int d = 0; d < devices; ++d) check(DRIVER(cuMulticastAddDevice)(object_, d), "adding a device");
        for (int d = 0; d < devices; ++d) {
            CUmemAllocationProp p{};
            p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
            p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            p.location.id = d;
            p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
            CUmemGenericAllocationHandle h = 0;
            check(DRIVER(cuMemCreate)(&h, bytes_, &p, 0), "allocating");
            check(DRIVER(cuMulticastBindMem)(object_, 0, h, 0, bytes_, 0), "binding memory");
            memory_.push_back(h);
            own_.push_back(mapped(h));
        }
        shared_ = mapped(object_);
    }
    ~bound_memory() {
        for (std::size_t d = 0; d < own_.size(); ++d) drop(own_[d], memory_[d]);
        drop(shared_, object_);
    }
    bound_memory(const bound_memory&) = delete;
    bound_memory& operator=(const bound_memory&) = delete;
    std::byte* of(int d) const { return own_[static_cast<std::size_t>(d)]; }
    std::byte* of_all() const { return shared_; }

private:
    std::byte* mapped(CUmemGenericAllocationHandle h) const {
        CUdeviceptr at = 0;
        check(DRIVER(cuMemAddressReserve)(&at, bytes_, 0, 0, 0), "reserving addresses");
        check(DRIVER(cuMemMap)(at, bytes_, 0, h, 0), "mapping");
        CUmemAccessDesc a{};
        // all blocks run on this device
        a.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        a.location.id = 0;
        a.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        check(DRIVER(cuMemSetAccess)(at, bytes_, &a, 1), "giving access");
        return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(at));
    }
    void drop(std::byte* p, CUmemGenericAllocationHandle h) const {
        const auto at = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(p));
        DRIVER(cuMemUnmap)(at, bytes_);
        DRIVER(cuMemAddressFree)(at, bytes_);
        DRIVER(cuMemRelease)(h);
    }
    std::size_t bytes_;
    CUmemGenericAllocationHandle object_ = 0;
    std::vector<CUmemGenericAllocationHandle> memory_;
    std::vector<std::byte*> own_;
    std::byte* shared_ = nullptr;
};

template <class T>
void collectives(int n, std::size_t size, std::size_t first, const char* type) {
    const auto ranks = static_cast<std::size_t>(n);
    const std::size_t all = size * ranks, half = (all + first) * sizeof(T) / 256 * 256 + 512;
    const bound_memory memory(n, 2 * half);
    switch_team team(n);
    const auto places = [&](std::size_t at, std::size_t count) {
        std::vector<device_view<T>> v;
        for (int r = 0; r < n; ++r) v.emplace_back(reinterpret_cast<T*>(memory.of(r) + at) + first, count);
        return v;
    };
    const auto value = [](std::size_t r, std::size_t i) { return static_cast<float>(r + i % 5); };
    const auto fill = [&](const auto& views, float (*f)(std::size_t, std::size_t)) {
        for (std::size_t r = 0; r < ranks; ++r) {
            std::vector<T> host;
            for (std::size_t i = 0; i < views[r].size(); ++i) host.push_back(static_cast<T>(f(r, i)));
            require_cuda(cudaMemcpy(views[r].data(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice),
                         "filling");
        }
    };
    const auto wrong = [&](const auto& views, auto want) {
        std::size_t count = 0;
        for (std::size_t r = 0; r < ranks; ++r) {
            std::vector<T> host(views[r].size());
            require_cuda(cudaMemcpy(host.data(), views[r].data(), host.size() * sizeof(T), cudaMemcpyDeviceToHost),
                         "reading");
            for (std::size_t i = 0; i < host.size(); ++i) count += static_cast<float>(host[i]) != want(r, i);
        }
        return count;
    };
    const auto in = places(0, all), out = places(half, all), own = places(0, size), part = places(half, size);
    const fused_options by_switch{.multicast_in = reinterpret_cast<const T*>(memory.of_all()) + first,
                                  .multicast_out = reinterpret_cast<T*>(memory.of_all() + half) + first};
    const auto whole = [&](int c) { return chunk_layout::even(all, c, 16); };
    const auto blocks = [&](int c) { return chunk_layout::blocks(size, c); };
    const auto packed = [&](int c) { return blocks(c).packed(); };
    const auto sum = [&](std::size_t, std::size_t i) {
        return static_cast<float>(ranks * (ranks - 1) / 2 + ranks * (i % 5));
    };
    const auto say = [&](const char* what, std::size_t bad) {
        expect(bad == 0, std::string(what) + " of " + type + " by a switch, ranks=" + std::to_string(n) +
                             " elements=" + std::to_string(size) + " from " + std::to_string(first) + ": " +
                             std::to_string(bad) + " wrong");
    };
    using device::multicast_protocol;
    fill(in, value);
    fill(out, [](std::size_t, std::size_t) { return -1.0f; });
    team.template run<multicast_protocol>(algo::zero_copy_all_reduce{}, in, out, plus{}, by_switch, whole, whole);
    team.synchronize();
    say("all_reduce", wrong(out, sum));
    team.template run<multicast_protocol>(algo::zero_copy_reduce_scatter{}, in, part, plus{}, by_switch, blocks,
                                          packed);
    team.synchronize();
    say("reduce_scatter", wrong(part, [&](std::size_t r, std::size_t i) { return sum(r, r * size + i); }));
    team.template run<multicast_protocol>(algo::multicast_all_gather{}, own, out, device::move_only{}, by_switch,
                                          packed, blocks);
    team.synchronize();
    say("all_gather", wrong(out, [&](std::size_t, std::size_t i) { return value(i / size, i % size); }));
}

// Long sums with ranks that are threads with a device each: out of place, in place and from a graph.
template <class T>
void sums_of_calls(communicator& w, const char* type) {
    const int ranks = w.size();
    const std::size_t n = (std::size_t{3} << 20) / sizeof(T) + 1000; // plan/choices.hpp: the switch above 3 MiB
    cudaStream_t s = nullptr;
    device::require_cuda(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "making a stream");
    std::vector<T> host(n);
    for (std::size_t i = 0; i < n; ++i)
        host[i] = static_cast<T>(static_cast<float>(w.rank()) + static_cast<float>(i % 5));
    thrust::device_vector<T> x(n), out(n);
    device::require_cuda(cudaMemcpy(x.data().get(), host.data(), n * sizeof(T), cudaMemcpyHostToDevice), "filling");
    device::require_cuda(cudaDeviceSynchronize(), "filling");
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    all_reduce(w, x, out, plus{}, {.stream = s});
    device::require_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "capturing");
    all_reduce(w, x, collx::max{}, {.stream = s}); // in place; for float not by the switch
    device::require_cuda(cudaStreamEndCapture(s, &graph), "capturing");
    device::require_cuda(cudaGraphInstantiate(&ready, graph, 0), "instantiating");
    device::require_cuda(cudaGraphLaunch(ready, s), "launching a graph");
    synchronize(w, {.stream = s});
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(s);
    std::size_t wrong = 0;
    device::require_cuda(cudaMemcpy(host.data(), out.data().get(), n * sizeof(T), cudaMemcpyDeviceToHost), "reading");
    for (std::size_t i = 0; i < n; ++i)
        wrong += static_cast<float>(host[i]) !=
                 static_cast<float>(ranks * (ranks - 1) / 2) + static_cast<float>(ranks) * static_cast<float>(i % 5);
    device::require_cuda(cudaMemcpy(host.data(), x.data().get(), n * sizeof(T), cudaMemcpyDeviceToHost), "reading");
    for (std::size_t i = 0; i < n; ++i)
        wrong += static_cast<float>(host[i]) != static_cast<float>(ranks - 1) + static_cast<float>(i % 5);
    expect(wrong == 0, std::string("calls on ") + type + ", ranks=" + std::to_string(ranks) + ": " +
                           std::to_string(wrong) + " wrong");
}
void calls(int ranks) {
    run_threads(ranks, [](communicator& w) {
        device::require_cuda(cudaSetDevice(w.rank()), "choosing a device");
        w.set_timeout(collx_test::patient(std::chrono::seconds(60)));
        use_device(w);
        if (w.rank() == 0) std::printf("%s\n", device_route(w).c_str());
        expect(device_route(w).find("long sums by the switch") != std::string::npos, "a switch joins the devices");
        sums_of_calls<float>(w, "float");
        sums_of_calls<bf16>(w, "bf16");
    });
}

} // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return skip();
    try {
        if (!is_offered(devices)) {
            std::printf("SKIPPED: no two devices whose switch multicasts\n");
            return 77;
        }
        for (int d = 1; d < devices; ++d) require_cuda(cudaDeviceEnablePeerAccess(d, 0), "enabling peer access");
        for (int n = 2; n <= devices && n <= 4; ++n)
            for (const std::size_t size : {1u, 16u, 1003u, 70'001u})
                for (const std::size_t first : {0u, 1u}) {
                    collectives<float>(n, size, first, "float");
                    collectives<bf16>(n, size, first, "bf16");
                    collectives<f16>(n, size, first, "f16");
                }
        if (devices >= 5) calls(5);
    } catch (const std::exception& e) {
        return finish(e.what());
    }
    return finish();
}
