// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The software GPU's memory shared between processes, by handles and by virtual memory; and its devices.
#include <cuda.h>

#include "runtime_program.hpp"

// ---------------------------------------------------------------------------------------------------- processes
namespace {
std::string hex(const void* p, std::size_t bytes) {
    std::string text;
    for (std::size_t i = 0; i < bytes; ++i) {
        char two[3];
        std::snprintf(two, sizeof two, "%02x", static_cast<const unsigned char*>(p)[i]);
        text += two;
    }
    return text;
}
cudaIpcMemHandle_t handle_from_environment() {
    cudaIpcMemHandle_t h{};
    const std::string text = std::getenv("HANDLE");
    for (std::size_t i = 0; i < sizeof h; ++i)
        reinterpret_cast<unsigned char*>(&h)[i] =
            static_cast<unsigned char>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
    return h;
}
} // namespace
TEST_CASE("alone: opens a handle", "[.]") {
    void *p = nullptr, *again = nullptr;
    const cudaIpcMemHandle_t h = handle_from_environment();
    OK(cudaIpcOpenMemHandle(&p, h, cudaIpcMemLazyEnablePeerAccess));
    OK(cudaIpcOpenMemHandle(&again, h, cudaIpcMemLazyEnablePeerAccess));
    CHECK(p == again);
    OK(start(add_one, p, 0, 2));
    OK(cudaDeviceSynchronize());
    cudaIpcMemHandle_t mine;
    REFUSED(cudaIpcGetMemHandle(&mine, p), cudaErrorInvalidValue); // its memory is not from cudaMalloc
    REFUSED(cudaFree(p), cudaErrorInvalidValue);
    OK(cudaIpcCloseMemHandle(again));
    OK(start(add_one, p));
    OK(cudaIpcCloseMemHandle(p));
    REFUSED(cudaIpcCloseMemHandle(p), cudaErrorInvalidValue);
    OK(cudaIpcOpenMemHandle(&again, h, cudaIpcMemLazyEnablePeerAccess)); // opened again
    OK(start(add_one, again));
    OK(cudaIpcCloseMemHandle(again));
}
TEST_CASE("alone: opens nothing", "[.]") {
    void* p = nullptr;
    REFUSED(cudaIpcOpenMemHandle(&p, handle_from_environment(), cudaIpcMemLazyEnablePeerAccess),
            cudaErrorInvalidResourceHandle);
}
TEST_CASE("another process opens memory by its handle") {
    cudaIpcMemHandle_t h;
    void* p = nullptr;
    {
        device_words d(4);
        OK(cudaMemset(d, 0, 16));
        OK(cudaIpcGetMemHandle(&h, static_cast<char*>(d.at) + 8)); // a handle of the whole allocation
        REFUSED(cudaIpcOpenMemHandle(&p, h, cudaIpcMemLazyEnablePeerAccess), cudaErrorDeviceUninitialized);
        const ended e = run_alone("alone: opens a handle", "HANDLE=" + hex(&h, sizeof h));
        INFO(e.text);
        CHECK(e.status == 0);
        CHECK(d.read() == std::vector<std::uint32_t>{3, 1, 0, 0});
        gate pinned;
        cudaIpcMemHandle_t no;
        REFUSED(cudaIpcGetMemHandle(&no, pinned.word), cudaErrorInvalidValue);
    }
    device_words d(4); // may get the descriptor of the freed memory
    const ended e = run_alone("alone: opens nothing", "HANDLE=" + hex(&h, sizeof h));
    INFO(e.text);
    CHECK(e.status == 0);
}

// ---------------------------------------------------------------------------------------------------- virtual memory
namespace {
template <class F>
F* driver(const char* name, unsigned version = 12000) {
    void* f = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    OK(cudaGetDriverEntryPointByVersion(name, &f, version, cudaEnableDefault, &found));
    REQUIRE(found == cudaDriverEntryPointSuccess);
    return reinterpret_cast<F*>(f);
}
constexpr std::size_t granule = std::size_t{2} << 20;
CUdeviceptr map_granule(CUmemGenericAllocationHandle h) {
    CUdeviceptr at = 0;
    REQUIRE(driver<decltype(cuMemAddressReserve)>("cuMemAddressReserve")(&at, granule, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(driver<decltype(cuMemMap)>("cuMemMap")(at, granule, 0, h, 0) == CUDA_SUCCESS);
    return at;
}
void allow(CUdeviceptr at, int device) {
    CUmemAccessDesc a{};
    a.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    a.location.id = device;
    a.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    REQUIRE(driver<decltype(cuMemSetAccess)>("cuMemSetAccess")(at, granule, &a, 1) == CUDA_SUCCESS);
}
CUmemGenericAllocationHandle make_granule() {
    CUmemAllocationProp p{};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle h = 0;
    const auto create = driver<decltype(cuMemCreate)>("cuMemCreate");
    CHECK(create(&h, granule - 4096, &p, 0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(create(&h, granule, &p, 0) == CUDA_SUCCESS);
    return h;
}
void* pointer(CUdeviceptr p) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(p)); }
} // namespace
TEST_CASE("alone: maps a descriptor", "[.]") {
    CUmemGenericAllocationHandle h = 0;
    const std::intptr_t file = std::stoi(std::getenv("DESCRIPTOR"));
    REQUIRE(driver<decltype(cuMemImportFromShareableHandle)>("cuMemImportFromShareableHandle")(
                &h, reinterpret_cast<void*>(file), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS);
    const CUdeviceptr at = map_granule(h);
    allow(at, 0);
    OK(start(add_one, pointer(at), 0, 3));
    OK(cudaDeviceSynchronize());
}
TEST_CASE("alone: mapped for another device", "[.]") {
    const CUdeviceptr at = map_granule(make_granule());
    allow(at, 1);
    expect_sticky(pointer(at), cudaErrorIllegalAddress);
}
TEST_CASE("virtual memory is there for the devices it was opened to, and for other processes by its descriptor") {
    const CUmemGenericAllocationHandle h = make_granule();
    const CUdeviceptr at = map_granule(h);
    CHECK(at % granule == 0);
    REFUSED(cudaMemset(pointer(at), 0, 16), cudaErrorInvalidValue); // no device has access
    allow(at, 0);
    OK(cudaMemset(pointer(at), 0, granule));
    OK(cudaDeviceSynchronize());
    int file = -1;
    const auto show = driver<decltype(cuMemExportToShareableHandle)>("cuMemExportToShareableHandle");
    CHECK(show(&file, h, CU_MEM_HANDLE_TYPE_FABRIC, 0) == CUDA_ERROR_NOT_SUPPORTED);
    REQUIRE(show(&file, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    for (const ended& e : {run_alone("alone: maps a descriptor", "DESCRIPTOR=" + std::to_string(file)),
                           run_alone("alone: mapped for another device")}) {
        INFO(e.text);
        CHECK(e.status == 0);
    }
    std::uint32_t x[4] = {};
    OK(cudaMemcpy(x, pointer(at), 16, cudaMemcpyDeviceToHost));
    CHECK(x[2] == 1);
    CHECK(x[3] == 0);
    cudaIpcMemHandle_t no;
    REFUSED(cudaIpcGetMemHandle(&no, pointer(at)), cudaErrorInvalidValue);
    close(file);
    CHECK(driver<decltype(cuMemAddressFree)>("cuMemAddressFree")(at, granule) == CUDA_ERROR_INVALID_VALUE); // mapped
    CHECK(driver<decltype(cuMemUnmap)>("cuMemUnmap")(at, granule) == CUDA_SUCCESS);
    CHECK(driver<decltype(cuMemAddressFree)>("cuMemAddressFree")(at, granule) == CUDA_SUCCESS);
    CHECK(driver<decltype(cuMemRelease)>("cuMemRelease")(h) == CUDA_SUCCESS);
}

TEST_CASE("the child of a process that has used it may not") {
    OK(cudaFree(nullptr));
    const pid_t child = fork();
    if (child == 0) {
        void* p = nullptr;
        const bool refused = cudaMalloc(&p, 4) == cudaErrorInitializationError &&
                             cudaDeviceSynchronize() == cudaErrorInitializationError;
        _exit(refused ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

TEST_CASE("devices say what they are, and errors have names") {
    int n = 0;
    OK(cudaGetDeviceCount(&n));
    CHECK(n == 2);
    cudaDeviceProp a{}, b{};
    OK(cudaGetDeviceProperties(&a, 0));
    OK(cudaGetDeviceProperties(&b, 1));
    CHECK(a.cooperativeLaunch == 1);
    CHECK(a.major == 9);
    CHECK(std::memcmp(&a.uuid, &b.uuid, sizeof a.uuid) != 0);
    REFUSED(cudaSetDevice(2), cudaErrorInvalidDevice);
    CHECK(std::string(cudaGetErrorName(cudaErrorStreamCaptureIsolation)) == "cudaErrorStreamCaptureIsolation");
    CHECK(std::string(cudaGetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
}
