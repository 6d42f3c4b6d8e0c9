// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Captures and graphs of the software GPU.
#include "runtime_program.hpp"

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
    OK(cudaGraphLaunch(exec, other)); // runs after the first: both launch one executable graph
    OK(cudaGraphExecDestroy(exec));   // the launches still run
    OK(cudaStreamSynchronize(other));
    CHECK(d.read()[0] == 6);
}

TEST_CASE("launches of one executable graph follow each other, in whatever streams") {
    gate g;
    device_words d(1);
    any_stream s, other;
    OK(cudaMemset(d, 0, 4));
    OK(cudaDeviceSynchronize());
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    OK(start(add_one, d, 0, 1, s));
    OK(start(await_word, g.word, 1, 1, s));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    OK(cudaGraphLaunch(exec, s));
    OK(cudaGraphLaunch(exec, other));
    a_little();
    CHECK(d.read()[0] == 1);
    g.open();
    OK(cudaStreamSynchronize(other));
    CHECK(d.read()[0] == 2);
    OK(cudaGraphExecDestroy(exec));
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
    fork_to_side(); // but does nothing there
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaGraphDestroy(graph));
    fork_to_side(); // work after the joined event
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
    OK(cudaEventSynchronize(before));
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
    int device = 0;
    breaks(
        s, relaxed, [&] { return cudaStreamGetDevice(s, &device); }, unsupported);
    breaks(
        s, relaxed, [&] { return cudaDeviceSynchronize(); }, unsupported);
    breaks(
        s, local, [&] { return cudaEventQuery(before); }, unsupported);
    breaks(
        s, relaxed, [&] { return cudaStreamWaitEvent(s, before, 0); }, cudaErrorStreamCaptureIsolation);
    breaks(
        s, relaxed,
        [&] {
            cudaEventRecord(inside, s);
            return cudaEventQuery(inside);
        },
        cudaErrorCapturedEvent);
    breaks(
        s, local, [&] { return cudaMemcpy(&word, d, 4, cudaMemcpyDeviceToHost); }, unsupported);
    const auto implicit = cudaErrorStreamCaptureImplicit;
    breaks(
        blocking, relaxed, [&] { return start(add_one, d); }, implicit);
    breaks(
        blocking, relaxed, [&] { return cudaMemset(d, 0, 4); }, implicit);
    breaks(
        blocking, relaxed, [&] { return cudaStreamSynchronize(nullptr); }, implicit);

    // Other threads may, and so may relaxed captures.
    const auto from_other_thread = [&](auto call) {
        cudaError_t e = cudaSuccess;
        std::thread([&] {
            e = call();
            cudaGetLastError();
        }).join();
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
    OK(start(add_one, d)); // s is not a blocking stream
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CHECK(from_other_thread([&] { return cudaEventQuery(before); }) == unsupported);
    REFUSED(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
    OK(cudaDeviceSynchronize());
}
