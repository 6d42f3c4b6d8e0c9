// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The CUDA runtime of the software GPU: what it does, and what it refuses as the real one does.
#include <unistd.h>

#include <catch2/catch.hpp>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "runtime_program.hpp"

using Catch::Matchers::Contains;

namespace {

const int two_devices = setenv("SOFTWARE_GPUS", "2", 0);

#define OK(call) REQUIRE((call) == cudaSuccess)
// An error is returned, and is what cudaGetLastError returns next.
#define REFUSED(call, error)                  \
    do {                                      \
        CHECK((call) == (error));             \
        CHECK(cudaGetLastError() == (error)); \
    } while (false)

struct device_words {
    explicit device_words(std::size_t n) : count(n) { OK(cudaMalloc(&at, 4 * n)); }
    ~device_words() { cudaFree(at); }
    std::vector<std::uint32_t> read() const {
        std::vector<std::uint32_t> x(count);
        OK(cudaMemcpy(x.data(), at, 4 * count, cudaMemcpyDeviceToHost));
        return x;
    }
    operator void*() const { return at; }
    std::size_t count;
    void* at = nullptr;
};
// A word of the host that kernels wait for. Tells them to go on when it ends, or tests would wait for ever.
struct gate {
    gate() {
        void* p = nullptr;
        OK(cudaHostAlloc(&p, 4, cudaHostAllocMapped));
        word = static_cast<std::uint32_t*>(p);
        close();
    }
    ~gate() {
        open();
        cudaFreeHost(word);
    }
    void open() { __atomic_store_n(word, 1, __ATOMIC_RELEASE); }
    void close() { __atomic_store_n(word, 0, __ATOMIC_RELEASE); }
    std::uint32_t* word = nullptr;
};
struct any_stream {
    explicit any_stream(unsigned flags = cudaStreamNonBlocking) { OK(cudaStreamCreateWithFlags(&s, flags)); }
    ~any_stream() { cudaStreamDestroy(s); }
    operator cudaStream_t() const { return s; }
    cudaStream_t s = nullptr;
};
struct any_event {
    explicit any_event(unsigned flags = cudaEventDisableTiming) { OK(cudaEventCreateWithFlags(&e, flags)); }
    ~any_event() { cudaEventDestroy(e); }
    operator cudaEvent_t() const { return e; }
    cudaEvent_t e = nullptr;
};
void a_little() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

} // namespace

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
    OK(cudaSetDevice(1)); // which has variables of its own
    {
        device_words other(1);
        OK(start(count_launches, other));
        CHECK(other.read()[0] == 1);
    }
    OK(cudaSetDevice(0));
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
    any_stream s; // of device 0
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
    CHECK(cudaGetLastError() == cudaSuccess); // which is no error
    CHECK(d.read()[0] == 0);                  // the legacy stream does not wait for such streams
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
    OK(cudaEventQuery(begin)); // nothing was recorded
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

// ---------------------------------------------------------------------------------------------------- captures
TEST_CASE("what is captured is done when the graph is launched, each time") {
    device_words d(1);
    any_stream s, side;
    any_event forked, joined;
    OK(cudaMemset(d, 0, 4));
    OK(cudaDeviceSynchronize());
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    OK(start(add_one, d, 0, 1, s));
    OK(cudaEventRecord(forked, s));
    OK(cudaStreamWaitEvent(side, forked, 0));
    OK(start(add_one, d, 0, 1, side));
    OK(cudaEventRecord(joined, side));
    OK(cudaStreamWaitEvent(s, joined, 0));
    OK(start(add_one, d, 0, 1, s));
    cudaGraph_t graph = nullptr;
    OK(cudaStreamEndCapture(s, &graph));
    CHECK(d.read()[0] == 0);
    cudaGraphExec_t exec = nullptr;
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    any_stream other;
    OK(cudaGraphLaunch(exec, s));
    OK(cudaGraphLaunch(exec, other)); // after the first: they are launches of one executable graph
    OK(cudaGraphExecDestroy(exec));   // they still run
    OK(cudaStreamSynchronize(other));
    CHECK(d.read()[0] == 6);
}

TEST_CASE("a capture must be joined, in its own stream") {
    device_words d(1);
    any_stream s, side;
    any_event forked, joined;
    cudaGraph_t graph = nullptr;
    const auto fork_to_side = [&] {
        OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        OK(cudaEventRecord(forked, s));
        OK(cudaStreamWaitEvent(side, forked, 0));
    };
    fork_to_side();
    OK(start(add_one, d, 0, 1, side));
    REFUSED(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureUnjoined);
    CHECK(graph == nullptr);
    fork_to_side(); // but did nothing there
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaGraphDestroy(graph));
    fork_to_side(); // something after what was joined
    OK(cudaEventRecord(joined, side));
    OK(start(add_one, d, 0, 1, side));
    OK(cudaStreamWaitEvent(s, joined, 0));
    REFUSED(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureUnjoined);
    fork_to_side();
    REFUSED(cudaStreamEndCapture(side, &graph), cudaErrorStreamCaptureUnmatched);
    REFUSED(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
    REFUSED(cudaStreamEndCapture(s, &graph), cudaErrorIllegalState);
    REFUSED(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    std::thread([&] { REFUSED(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureWrongThread); }).join();
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaGraphDestroy(graph));
}

TEST_CASE("what a capture forbids breaks it") {
    device_words d(1);
    any_stream s, blocking(cudaStreamDefault), outside;
    any_event before, inside;
    cudaGraph_t graph = nullptr;
    void* p = nullptr;
    std::uint32_t word = 0;
    OK(cudaEventRecord(before, outside));
    const auto breaks = [&](cudaStream_t captured, cudaStreamCaptureMode mode, auto call, cudaError_t e) {
        OK(cudaStreamBeginCapture(captured, mode));
        REFUSED(call(), e);
        cudaStreamCaptureStatus status{};
        OK(cudaStreamIsCapturing(captured, &status));
        CHECK(status == cudaStreamCaptureStatusInvalidated);
        REFUSED(start(add_one, d, 0, 1, captured), cudaErrorStreamCaptureInvalidated);
        REFUSED(cudaStreamEndCapture(captured, &graph), cudaErrorStreamCaptureInvalidated);
    };
    const auto local = cudaStreamCaptureModeThreadLocal, relaxed = cudaStreamCaptureModeRelaxed;
    const auto unsupported = cudaErrorStreamCaptureUnsupported;
    breaks(
        s, local, [&] { return cudaMalloc(&p, 4); }, unsupported);
    breaks(
        s, relaxed, [&] { return cudaStreamSynchronize(s); }, unsupported);
    breaks(
        s, relaxed, [&] { return cudaStreamQuery(s); }, unsupported);
    breaks(
        s, relaxed, [&] { return cudaDeviceSynchronize(); }, unsupported);
    breaks(
        s, local, [&] { return cudaEventQuery(before); }, unsupported);
    breaks(
        s, relaxed, [&] { return cudaStreamWaitEvent(s, before, 0); }, cudaErrorStreamCaptureIsolation);
    breaks(
        s, relaxed, [&] { return cudaEventRecord(inside, s), cudaEventQuery(inside); }, cudaErrorCapturedEvent);
    breaks(
        s, local, [&] { return cudaMemcpy(&word, d, 4, cudaMemcpyDeviceToHost); }, unsupported);
    const auto implicit = cudaErrorStreamCaptureImplicit;
    breaks(
        blocking, relaxed, [&] { return start(add_one, d); }, implicit);
    breaks(
        blocking, relaxed, [&] { return cudaMemset(d, 0, 4); }, implicit);
    breaks(
        blocking, relaxed, [&] { return cudaStreamSynchronize(nullptr); }, implicit);

    // Other threads and relaxed captures may.
    const auto from_other_thread = [&](auto call) {
        cudaError_t e = cudaSuccess;
        std::thread([&] { e = call(), cudaGetLastError(); }).join();
        return e;
    };
    OK(cudaStreamBeginCapture(s, local));
    CHECK(from_other_thread([&] { return cudaEventQuery(before); }) == cudaSuccess);
    OK(start(add_one, d, 0, 1, outside));
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamBeginCapture(s, relaxed));
    OK(cudaMalloc(&p, 4));
    OK(cudaFree(p));
    OK(start(add_one, d)); // s does not block
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CHECK(from_other_thread([&] { return cudaEventQuery(before); }) == unsupported);
    REFUSED(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
    OK(cudaDeviceSynchronize());
}

// ---------------------------------------------------------------------------------------------------- faults
namespace {
// A fault while another kernel waits for ever: both end, and the error stays.
void expect_sticky(void* where, cudaError_t expected) {
    gate g;
    any_stream s, other;
    OK(start(await_word, g.word, 1, 1, other));
    OK(start(fill_words, where, 1, 1, s));
    CHECK(cudaStreamSynchronize(s) == expected);
    CHECK(cudaStreamSynchronize(other) == expected);
    CHECK(cudaGetLastError() == expected);
    CHECK(cudaGetLastError() == expected);
    void* p = nullptr;
    CHECK(cudaMalloc(&p, 4) == expected);
}
} // namespace
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
    device_words d(1); // of device 0
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
    REFUSED(cudaIpcGetMemHandle(&mine, p), cudaErrorInvalidValue); // not from cudaMalloc
    REFUSED(cudaFree(p), cudaErrorInvalidValue);
    OK(cudaIpcCloseMemHandle(again));
    OK(start(add_one, p));
    OK(cudaIpcCloseMemHandle(p));
    REFUSED(cudaIpcCloseMemHandle(p), cudaErrorInvalidValue);
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
        OK(cudaIpcGetMemHandle(&h, static_cast<char*>(d.at) + 8)); // of all of it
        REFUSED(cudaIpcOpenMemHandle(&p, h, cudaIpcMemLazyEnablePeerAccess), cudaErrorDeviceUninitialized);
        const ended e = run_alone("alone: opens a handle", "HANDLE=" + hex(&h, sizeof h));
        INFO(e.text);
        CHECK(e.status == 0);
        CHECK(d.read() == std::vector<std::uint32_t>{2, 1, 0, 0});
        gate pinned;
        cudaIpcMemHandle_t no;
        REFUSED(cudaIpcGetMemHandle(&no, pinned.word), cudaErrorInvalidValue);
    }
    device_words d(4); // may have the descriptor of what was freed
    const ended e = run_alone("alone: opens nothing", "HANDLE=" + hex(&h, sizeof h));
    INFO(e.text);
    CHECK(e.status == 0);
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
