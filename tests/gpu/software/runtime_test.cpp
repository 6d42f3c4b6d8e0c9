// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The CUDA runtime of the software GPU: what it does, and what it refuses like the real one.
#include "runtime_program.hpp"

#include <collx/exec/device/cuda_shared.cuh>

using Catch::Matchers::Contains;

// ---------------------------------------------------------------------------------------------------- memory
TEST_CASE("memory of a device is full of rubbish, ends where it ends and is gone when freed") {
    void* p = nullptr;
    OK(cudaMalloc(&p, 100));
    std::vector<std::uint8_t> x(100);
    OK(cudaMemcpy(x.data(), p, 100, cudaMemcpyDeviceToHost));
    CHECK(x[0] == 0xcd);
    CHECK(x[99] == 0xcd);
    REFUSED(cudaMemcpy(x.data(), p, 101, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    REFUSED(cudaMemset(static_cast<char*>(p) + 50, 0, 51), cudaErrorInvalidValue);
    REFUSED(cudaFree(static_cast<char*>(p) + 4), cudaErrorInvalidValue);
    REFUSED(cudaFreeHost(p), cudaErrorInvalidValue);
    cudaPointerAttributes a{};
    OK(cudaPointerGetAttributes(&a, static_cast<char*>(p) + 99));
    CHECK(a.type == cudaMemoryTypeDevice);
    CHECK(a.device == 0);
    OK(cudaFree(p));
    OK(cudaPointerGetAttributes(&a, p));
    CHECK(a.type == cudaMemoryTypeUnregistered);
    REFUSED(cudaFree(p), cudaErrorInvalidValue);
    OK(cudaFree(nullptr));
    REFUSED(cudaMalloc(&p, std::size_t{1} << 40), cudaErrorMemoryAllocation);
}

TEST_CASE("copies go where their kind says") {
    device_words d(4);
    std::uint32_t h[4] = {1, 2, 3, 4}, back[4] = {};
    REFUSED(cudaMemcpy(h, d, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    REFUSED(cudaMemcpy(d, h, 16, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    REFUSED(cudaMemcpy(back, h, 16, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
    OK(cudaMemcpy(d, h, 16, cudaMemcpyDefault));
    OK(cudaMemcpy(back, d, 16, cudaMemcpyDefault));
    CHECK(back[3] == 4);
    gate pinned;
    cudaPointerAttributes a{};
    OK(cudaPointerGetAttributes(&a, pinned.word));
    CHECK(a.type == cudaMemoryTypeHost);
    OK(cudaMemcpy(d, pinned.word, 4, cudaMemcpyHostToDevice));
    CHECK(d.read()[0] == 0);
}

// ---------------------------------------------------------------------------------------------------- launches
TEST_CASE("a kernel is given its arguments as they were, and its variables last") {
    device_words d(8);
    OK(start(fill_words, d, 5, 8));
    CHECK(d.read() == std::vector<std::uint32_t>(8, 5));
    OK(start(count_launches, d));
    OK(start(count_launches, d));
    CHECK(d.read()[0] == 2);
    OK(cudaSetDevice(1)); // it has its own variables
    {
        device_words other(1);
        OK(start(count_launches, other));
        CHECK(other.read()[0] == 1);
    }
    OK(cudaSetDevice(0));
}

TEST_CASE("collx asks every kernel what it was compiled for, before a switch is used") {
    using collx::device::known_kernel;
    cudaFuncAttributes a{};
    OK(cudaFuncGetAttributes(&a, &fill_words));
    CHECK(a.ptxVersion == 90);
    OK(cudaFuncGetAttributes(&a, &for_sm_80));
    CHECK(a.ptxVersion == 80);
    static const known_kernel late(&fill_words);
    CHECK(known_kernel::are_all_compiled_for(90));
    CHECK_FALSE(known_kernel::are_all_compiled_for(91));
    static const known_kernel early(&for_sm_80);
    CHECK(known_kernel::are_all_compiled_for(80));
    CHECK_FALSE(known_kernel::are_all_compiled_for(90));
}

TEST_CASE("the driver has a function from the version on that brought it, and collx asks for that version") {
    void* f = nullptr;
    auto found = cudaDriverEntryPointSuccess;
    OK(cudaGetDriverEntryPointByVersion("cuMulticastCreate", &f, 12000, cudaEnableDefault, &found));
    CHECK(found == cudaDriverEntryPointVersionNotSufficent);
    CHECK(f == nullptr);
    OK(cudaGetDriverEntryPointByVersion("cuMulticastCreate", &f, 12010, cudaEnableDefault, &found));
    CHECK(found == cudaDriverEntryPointSuccess);
    CHECK(f != nullptr);
    CHECK(collx::device::cuda_shared::multicasts(0));
}

TEST_CASE("launches that cannot be are refused") {
    device_words d(1);
    REFUSED(start(fill_words, d, 0, 1025), cudaErrorInvalidConfiguration);
    REFUSED(start(fill_words, d, 0, 0), cudaErrorInvalidConfiguration);
    REFUSED(start(at_most_64, d, 0, 65), cudaErrorLaunchOutOfResources);
    OK(start(at_most_64, d, 0, 64));
    REFUSED(start(at_most_64, d, 0, 1, nullptr, 49 * 1024), cudaErrorInvalidValue);
    OK(cudaFuncSetAttribute(&at_most_64, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024));
    OK(start(at_most_64, d, 0, 1, nullptr, 49 * 1024));
    char unknown = 0;
    REFUSED(start(unknown, d), cudaErrorInvalidDeviceFunction);
    int each = 0;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, &at_most_64, 64, 0));
    int processors = 0;
    OK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    void* p = d;
    std::uint64_t x = 0;
    void* arguments[] = {&p, &x};
    const auto fit = static_cast<unsigned>(each * processors);
    OK(cudaLaunchCooperativeKernel(&at_most_64, dim3(fit), dim3(64), arguments, 0, nullptr));
    REFUSED(cudaLaunchCooperativeKernel(&at_most_64, dim3(fit + 1), dim3(64), arguments, 0, nullptr),
            cudaErrorCooperativeLaunchTooLarge);
    OK(cudaDeviceSynchronize());
    any_stream s; // on device 0
    OK(cudaSetDevice(1));
    REFUSED(start(at_most_64, d, 0, 1, s), cudaErrorInvalidResourceHandle);
    OK(cudaSetDevice(0));
}

// ---------------------------------------------------------------------------------------------------- streams
TEST_CASE("a stream does one thing after the other, beside the others and beside the host") {
    gate g;
    device_words d(1), e(1);
    OK(cudaMemset(d, 0, 4));
    OK(cudaDeviceSynchronize());
    any_stream slow, quick;
    OK(start(await_word, g.word, 1, 1, slow));
    OK(start(fill_words, d, 7, 1, slow));
    OK(start(fill_words, e, 8, 1, quick));
    OK(cudaStreamSynchronize(quick));
    a_little();
    CHECK(cudaStreamQuery(slow) == cudaErrorNotReady);
    CHECK(cudaGetLastError() == cudaSuccess); // not ready is not an error
    CHECK(d.read()[0] == 0);                  // the legacy stream does not wait for non-blocking streams
    CHECK(e.read()[0] == 8);
    g.open();
    OK(cudaStreamSynchronize(slow));
    OK(cudaStreamQuery(slow));
    CHECK(d.read()[0] == 7);
}

TEST_CASE("the legacy stream comes after what blocking streams were given, and before what they will be") {
    gate g;
    device_words d(1);
    any_stream a(cudaStreamDefault), b(cudaStreamDefault);
    OK(start(await_word, g.word, 1, 1, a));
    OK(cudaMemsetAsync(d, 0, 4, nullptr));
    OK(start(add_one, d, 0, 1, b));
    a_little();
    CHECK(cudaStreamQuery(nullptr) == cudaErrorNotReady);
    CHECK(cudaStreamQuery(b) == cudaErrorNotReady);
    g.open();
    OK(cudaStreamSynchronize(b));
    CHECK(d.read()[0] == 1);
}

TEST_CASE("events order streams and tell the time") {
    gate g;
    device_words d(1);
    any_stream a, b;
    any_event begin(cudaEventDefault), end(cudaEventDefault), silent;
    OK(cudaEventQuery(begin)); // nothing was recorded yet
    OK(cudaEventRecord(begin, a));
    OK(start(await_word, g.word, 1, 1, a));
    OK(cudaMemsetAsync(d, 0, 4, a));
    OK(cudaEventRecord(end, a));
    OK(cudaStreamWaitEvent(b, end, 0));
    OK(start(add_one, d, 0, 1, b));
    CHECK(cudaEventQuery(end) == cudaErrorNotReady);
    float ms = -1;
    CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaErrorNotReady);
    a_little();
    g.open();
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&ms, begin, end));
    CHECK(ms > 20.f);
    CHECK(ms < 20000.f);
    OK(cudaStreamSynchronize(b));
    CHECK(d.read()[0] == 1);
    OK(cudaEventRecord(silent, a));
    REFUSED(cudaEventElapsedTime(&ms, begin, silent), cudaErrorInvalidResourceHandle);
    OK(cudaSetDevice(1));
    any_event other;
    REFUSED(cudaEventRecord(other, a), cudaErrorInvalidResourceHandle);
    OK(cudaSetDevice(0));
}

// ---------------------------------------------------------------------------------------------------- faults
TEST_CASE("alone: pageable memory", "[.]") {
    OK(cudaSetDevice(0));
    std::uint32_t mine = 0;
    expect_sticky(&mine, cudaErrorIllegalAddress);
}
TEST_CASE("alone: past the end", "[.]") {
    device_words d(64);
    expect_sticky(static_cast<char*>(d.at) + 256, cudaErrorIllegalAddress);
}
TEST_CASE("alone: the last address", "[.]") {
    device_words d(64);
    expect_sticky(reinterpret_cast<void*>(~std::uintptr_t{3}), cudaErrorIllegalAddress);
}
TEST_CASE("alone: freed memory", "[.]") {
    void* p = nullptr;
    OK(cudaMalloc(&p, 4));
    OK(cudaFree(p));
    expect_sticky(p, cudaErrorIllegalAddress);
}
TEST_CASE("alone: misaligned", "[.]") {
    device_words d(64);
    expect_sticky(static_cast<char*>(d.at) + 2, cudaErrorMisalignedAddress);
}
TEST_CASE("alone: a peer without leave", "[.]") {
    device_words d(1); // on device 0
    OK(cudaSetDevice(1));
    expect_sticky(d, cudaErrorIllegalAddress);
}
TEST_CASE("alone: a peer with leave", "[.]") {
    device_words d(1);
    OK(cudaSetDevice(1));
    OK(cudaDeviceEnablePeerAccess(0, 0));
    REFUSED(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
    OK(start(fill_words, d, 3));
    OK(cudaDeviceSynchronize());
    CHECK(d.read()[0] == 3);
}
TEST_CASE("alone: ends while a kernel runs", "[.]") {
    static gate g; // not opened before the process ends
    OK(start(await_word, g.word, 1));
}
TEST_CASE("alone: no device", "[.]") {
    int n = -1;
    CHECK(cudaGetDeviceCount(&n) == cudaErrorNoDevice);
    CHECK(n == 0);
    void* p = nullptr;
    CHECK(cudaMalloc(&p, 4) == cudaErrorNoDevice);
}
TEST_CASE("faults of kernels end the process's use of the device") {
    const char* const illegal[] = {"alone: pageable memory", "alone: past the end", "alone: the last address",
                                   "alone: freed memory", "alone: a peer without leave"};
    for (const char* name : illegal) {
        const ended e = run_alone(name);
        INFO(name << '\n' << e.text);
        CHECK(e.status == 0);
        CHECK_THAT(e.text, Contains("fill_words"));
    }
    for (const char* name : {"alone: misaligned", "alone: a peer with leave", "alone: ends while a kernel runs"}) {
        const ended e = run_alone(name);
        INFO(name << '\n' << e.text);
        CHECK(e.status == 0);
    }
    const ended e = run_alone("alone: no device", "SOFTWARE_GPUS=0");
    INFO(e.text);
    CHECK(e.status == 0);
}
