// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Recording instead of execution: captures, calls that are not allowed meanwhile, and the resulting graphs.
#include <algorithm>

#include "runtime.hpp"

namespace software_gpu {

namespace {
thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;
cudaError_t break_those(const std::function<bool(const stream&)>& which, cudaError_t e) {
    const std::lock_guard lock(streams_mutex());
    bool any = false;
    for (stream* s : streams())
        if (s->capturing && which(*s)) {
            any = true;
            s->capturing->broken = true;
        }
    return any ? e : cudaSuccess;
}
} // namespace
// As described for cudaThreadExchangeStreamCaptureMode.
cudaError_t refuse_while_capturing() {
    if (mode_of_thread == cudaStreamCaptureModeRelaxed) return cudaSuccess;
    return break_those(
        [](const stream& s) {
            const capture& c = *s.capturing;
            if (c.thread == std::this_thread::get_id()) return c.mode != cudaStreamCaptureModeRelaxed;
            return c.mode == cudaStreamCaptureModeGlobal && mode_of_thread == cudaStreamCaptureModeGlobal;
        },
        cudaErrorStreamCaptureUnsupported);
}
cudaError_t refuse_of_captured_device(int device) {
    return break_those([=](const stream& s) { return s.device == device; }, cudaErrorStreamCaptureUnsupported);
}
cudaError_t refuse_of_captured_blocking(int device) {
    return break_those([=](const stream& s) { return s.device == device && s.is_blocking; },
                       cudaErrorStreamCaptureImplicit);
}

namespace {

// Runs a whole graph in one stream; side streams run in their own threads.
void run_graph(const graph& g) {
    std::vector<finished_ptr> marks(static_cast<std::size_t>(g.marks));
    for (auto& m : marks) m = std::make_shared<finished>();
    const auto run = [&](const std::vector<captured_step>& steps) {
        for (const captured_step& s : steps) {
            if (s.waits_for >= 0) marks[static_cast<std::size_t>(s.waits_for)]->wait();
            if (s.run && !cancelled) s.run(); // after a fault only the marks are set: others wait for them
            if (s.marks >= 0) marks[static_cast<std::size_t>(s.marks)]->set();
        }
    };
    std::vector<std::thread> beside;
    for (std::size_t k = 1; k < g.streams.size(); ++k) beside.emplace_back([&, k] { run(g.streams[k]); });
    run(g.streams[0]);
    for (std::thread& t : beside) t.join();
}

} // namespace
} // namespace software_gpu

using namespace software_gpu;

namespace {
// Whether everything captured comes before the end of the first stream: follows the marks back from there.
bool is_joined(const graph& g) {
    std::vector<std::size_t> reached(g.streams.size());
    reached[0] = g.streams[0].size();
    std::vector<std::pair<std::size_t, std::size_t>> marks(static_cast<std::size_t>(g.marks)); // stream, steps so far
    for (std::size_t k = 0; k < g.streams.size(); ++k)
        for (std::size_t i = 0; i < g.streams[k].size(); ++i)
            if (const int m = g.streams[k][i].marks; m >= 0) marks[static_cast<std::size_t>(m)] = {k, i + 1};
    for (bool again = true; again;) {
        again = false;
        for (std::size_t k = 0; k < g.streams.size(); ++k)
            for (std::size_t i = 0; i < reached[k]; ++i)
                if (const int m = g.streams[k][i].waits_for; m >= 0) {
                    const auto [from, steps] = marks[static_cast<std::size_t>(m)];
                    if (reached[from] < steps) {
                        reached[from] = steps;
                        again = true;
                    }
                }
    }
    for (std::size_t k = 0; k < g.streams.size(); ++k)
        for (std::size_t i = reached[k]; i < g.streams[k].size(); ++i)
            if (g.streams[k][i].run) return false;
    return true;
}
struct executable {
    std::shared_ptr<graph> of;
    finished_ptr last; // the last launch; null before the first
};
} // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t on, cudaStreamCaptureMode mode) {
    cudaError_t e = ready();
    if (e != cudaSuccess) return returned(e);
    const std::lock_guard lock(streams_mutex());
    stream* const s = usable(on, e);
    if (s == nullptr) return returned(e);
    if (s->is_legacy) return returned(cudaErrorStreamCaptureUnsupported);
    if (s->capturing) return returned(cudaErrorIllegalState);
    static std::uint64_t captures = 0; // guarded by streams_mutex()
    auto c = std::make_shared<capture>();
    c->number = ++captures;
    c->mode = mode;
    c->thread = std::this_thread::get_id();
    c->streams = {s};
    c->made.streams.resize(1);
    s->capturing = c;
    s->place = 0;
    return returned(cudaSuccess);
}
cudaError_t cudaStreamEndCapture(cudaStream_t on, cudaGraph_t* out) {
    const std::lock_guard lock(streams_mutex());
    *out = nullptr;
    cudaError_t e;
    stream* const s = usable(on, e);
    if (s == nullptr) return returned(e);
    if (!s->capturing) return returned(cudaErrorIllegalState);
    if (s->place != 0) {
        s->capturing->broken = true;
        return returned(cudaErrorStreamCaptureUnmatched);
    }
    const std::shared_ptr<capture> c = s->capturing;
    if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
        return returned(cudaErrorStreamCaptureWrongThread);
    for (stream* x : c->streams) x->capturing.reset();
    if (c->broken) return returned(cudaErrorStreamCaptureInvalidated);
    if (!is_joined(c->made)) return returned(cudaErrorStreamCaptureUnjoined);
    *out = reinterpret_cast<cudaGraph_t>(new std::shared_ptr<graph>(std::make_shared<graph>(std::move(c->made))));
    return returned(cudaSuccess);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t on, cudaStreamCaptureStatus* status) {
    cudaError_t e = ready();
    if (e != cudaSuccess) return returned(e);
    const std::lock_guard lock(streams_mutex());
    stream* const s = usable(on, e);
    if (s == nullptr) return returned(e);
    if (s->is_legacy)
        for (stream* other : streams())
            if (other->capturing && other->is_blocking && other->device == s->device)
                return returned(cudaErrorStreamCaptureImplicit);
    *status = !s->capturing          ? cudaStreamCaptureStatusNone
              : s->capturing->broken ? cudaStreamCaptureStatusInvalidated
                                     : cudaStreamCaptureStatusActive;
    return returned(cudaSuccess);
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t on, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* count) {
    if (graph != nullptr || nodes != nullptr || edges != nullptr || count != nullptr)
        return returned(cudaErrorNotSupported);
    const cudaError_t e = cudaStreamIsCapturing(on, status);
    if (e != cudaSuccess || *status != cudaStreamCaptureStatusActive || id == nullptr) return returned(e);
    const std::lock_guard lock(streams_mutex());
    cudaError_t found;
    if (stream* const s = usable(on, found); s != nullptr && s->capturing) *id = s->capturing->number;
    return returned(cudaSuccess);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    std::swap(*mode, mode_of_thread);
    return returned(cudaSuccess);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t g, unsigned long long) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    if (g == nullptr) return returned(cudaErrorInvalidValue);
    *out = reinterpret_cast<cudaGraphExec_t>(new executable{*reinterpret_cast<std::shared_ptr<graph>*>(g), {}});
    return returned(cudaSuccess);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    if (x == nullptr) return returned(cudaErrorInvalidValue);
    const std::lock_guard lock(streams_mutex());
    auto& e = *reinterpret_cast<executable*>(x);
    auto done = std::make_shared<finished>(); // launches of one executable graph run one after the other
    const stream* const on = stream_of(s);
    const bool is_captured = on != nullptr && on->capturing; // then it is part of another graph
    const cudaError_t result = enqueue(s, [g = e.of, before = e.last, done] {
        if (before) before->wait();
        run_graph(*g);
        done->set();
    });
    if (result == cudaSuccess && !is_captured) e.last = done;
    return returned(result);
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
    delete reinterpret_cast<std::shared_ptr<graph>*>(g);
    return returned(cudaSuccess);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) {
    delete reinterpret_cast<executable*>(x); // running launches keep their graph
    return returned(cudaSuccess);
}

} // extern "C"
