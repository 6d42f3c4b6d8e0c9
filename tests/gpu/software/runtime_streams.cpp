// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Streams, events, captures and graphs. Each stream is a thread that does one thing after the other.
#include <algorithm>
#include <cstdlib>

#include "runtime.hpp"

namespace software_gpu {

void finished::set() {
    const std::lock_guard lock(mutex_);
    at_ns_ = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    done_ = true;
    changed_.notify_all();
}
void finished::wait() const {
    std::unique_lock lock(mutex_);
    while (!done_ && !stopped) changed_.wait_for(lock, std::chrono::milliseconds(50));
}
bool finished::is_set() const {
    const std::lock_guard lock(mutex_);
    return done_;
}

std::int64_t finished::at_ns() const {
    const std::lock_guard lock(mutex_);
    return at_ns_;
}

std::recursive_mutex& streams_mutex() {
    static auto* const m = new std::recursive_mutex;
    return *m;
}

namespace {

std::set<stream*>& streams() {
    static auto* const all = new std::set<stream*>;
    return *all;
}
std::set<event*>& events() {
    static auto* const all = new std::set<event*>;
    return *all;
}
std::set<std::shared_ptr<capture>>& captures() {
    static auto* const all = new std::set<std::shared_ptr<capture>>;
    return *all;
}

stream* new_stream(int device, bool is_blocking, bool is_legacy) {
    auto* const s = new stream;
    s->device = device, s->is_blocking = is_blocking, s->is_legacy = is_legacy;
    streams().insert(s);
    std::thread([s] { s->serve(); }).detach();
    static const int at_exit = std::atexit([] {
        if (is_in_forked_child()) return; // it has none of the threads, and perhaps a lock of theirs
        stopped = cancelled = true;
        // What runs looks at `stopped` between its turns.
        for (int i = 0; i < 200; ++i) {
            bool idle = true;
            const std::lock_guard lock(streams_mutex());
            for (stream* x : streams()) {
                const std::lock_guard inner(x->mutex);
                idle = idle && x->queue.empty();
            }
            if (idle) return;
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
    });
    static_cast<void>(at_exit);
    return s;
}
stream& legacy_stream(int device) {
    static auto* const all = new std::map<int, stream*>;
    stream*& s = (*all)[device];
    if (s == nullptr) s = new_stream(device, true, true);
    return *s;
}
void break_capture(capture& c) { c.broken = true; }

} // namespace

void stream::serve() {
    std::unique_lock lock(mutex);
    while (!stopped) {
        if (queue.empty()) {
            if (ends) return;
            added.wait_for(lock, std::chrono::milliseconds(100));
            continue;
        }
        const auto& [first, task] = queue.front();
        lock.unlock();
        for (const finished_ptr& f : first) f->wait();
        if (!cancelled && task.first) task.first();
        task.second->set();
        lock.lock();
        queue.pop_front();
    }
    queue.clear();
}

stream* stream_of(cudaStream_t s) {
    if (s == nullptr || s == cudaStreamLegacy) return &legacy_stream(current_device());
    auto* const found = reinterpret_cast<stream*>(s);
    return streams().contains(found) ? found : nullptr;
}

finished_ptr enqueue_now(stream& s, work w, std::vector<finished_ptr> first) {
    // What the legacy stream does comes behind all that blocking streams were given, and before all that they will be.
    for (stream* other : streams())
        if (other != &s && other->device == s.device && other->is_blocking && s.is_blocking &&
            (s.is_legacy || other->is_legacy))
            first.push_back(other->last);
    auto done = std::make_shared<finished>();
    const std::lock_guard lock(s.mutex);
    s.queue.push_back({std::move(first), {std::move(w), done}});
    s.last = done;
    s.added.notify_one();
    return done;
}

cudaError_t enqueue(cudaStream_t given, work w) {
    const std::lock_guard lock(streams_mutex());
    stream* const s = stream_of(given);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (s->capturing) {
        if (s->capturing->broken) return cudaErrorStreamCaptureInvalidated;
        s->capturing->made.streams[s->place].push_back({std::move(w), -1, -1});
        return cudaSuccess;
    }
    if (s->is_legacy)
        if (const cudaError_t e = refuse_of_captured_blocking(s->device); e != cudaSuccess) return e;
    enqueue_now(*s, std::move(w));
    return cudaSuccess;
}

namespace {
thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;
cudaError_t break_those(const std::function<bool(const stream&)>& which, cudaError_t e) {
    const std::lock_guard lock(streams_mutex());
    bool any = false;
    for (stream* s : streams())
        if (s->capturing && which(*s)) any = true, break_capture(*s->capturing);
    return any ? e : cudaSuccess;
}
} // namespace
// As cudaThreadExchangeStreamCaptureMode's description has it.
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

cudaError_t wait_for_device(int device) {
    std::vector<finished_ptr> all;
    {
        const std::lock_guard lock(streams_mutex());
        for (stream* s : streams())
            if (s->device == device) all.push_back(s->last);
    }
    for (const finished_ptr& f : all) f->wait();
    return sticky_error();
}

namespace {

// All of a graph in one stream: side streams run beside it.
void run_graph(const graph& g) {
    std::vector<finished_ptr> marks(static_cast<std::size_t>(g.marks));
    for (auto& m : marks) m = std::make_shared<finished>();
    const auto run = [&](const std::vector<captured_step>& steps) {
        for (const captured_step& s : steps) {
            if (s.waits_for >= 0) marks[static_cast<std::size_t>(s.waits_for)]->wait();
            if (s.run && !cancelled) s.run(); // after a fault there are only marks: others wait for them
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
stream* usable(cudaStream_t s, cudaError_t& e) {
    e = ready();
    if (e != cudaSuccess) return nullptr;
    stream* const found = stream_of(s);
    if (found == nullptr) e = cudaErrorInvalidResourceHandle;
    return found;
}
// Calls that wait must not be made of a stream that is captured.
cudaError_t synchronize(cudaStream_t given) {
    finished_ptr last;
    cudaError_t e = ready();
    if (e != cudaSuccess) return e;
    {
        const std::lock_guard lock(streams_mutex());
        stream* const s = usable(given, e);
        if (s == nullptr) return e;
        if (s->capturing) {
            s->capturing->broken = true;
            return cudaErrorStreamCaptureUnsupported;
        }
        if (s->is_legacy) {
            if (const cudaError_t refused = refuse_of_captured_blocking(s->device); refused != cudaSuccess)
                return refused;
            last = enqueue_now(*s, {});
        } else {
            last = s->last;
        }
    }
    last->wait();
    return sticky_error();
}
cudaError_t captured(event& x) {
    if (const std::shared_ptr<capture> c = x.in.lock()) c->broken = true;
    return cudaErrorCapturedEvent;
}
// Whether all that was captured comes before the end of the first stream: marks are followed back from there.
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
                    if (reached[from] < steps) reached[from] = steps, again = true;
                }
    }
    for (std::size_t k = 0; k < g.streams.size(); ++k)
        for (std::size_t i = reached[k]; i < g.streams[k].size(); ++i)
            if (g.streams[k][i].run) return false;
    return true;
}
struct executable {
    std::shared_ptr<graph> of;
    finished_ptr last; // launch; null before the first
};
} // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    const std::lock_guard lock(streams_mutex());
    *out = reinterpret_cast<cudaStream_t>(new_stream(current_device(), (flags & cudaStreamNonBlocking) == 0, false));
    return returned(cudaSuccess);
}
cudaError_t cudaStreamCreate(cudaStream_t* out) { return cudaStreamCreateWithFlags(out, cudaStreamDefault); }
cudaError_t cudaStreamDestroy(cudaStream_t given) {
    cudaError_t e = ready();
    if (e != cudaSuccess) return returned(e);
    const std::lock_guard lock(streams_mutex());
    stream* const s = usable(given, e);
    if (s == nullptr) return returned(e);
    if (s->is_legacy) return returned(cudaErrorInvalidResourceHandle);
    if (s->capturing) s->capturing->broken = true;
    streams().erase(s); // its thread does what it was given, and its memory is kept
    const std::lock_guard inner(s->mutex);
    s->ends = true;
    s->added.notify_one();
    return returned(cudaSuccess);
}
cudaError_t cudaStreamGetDevice(cudaStream_t given, int* d) {
    cudaError_t e = ready();
    if (e != cudaSuccess) return returned(e);
    const std::lock_guard lock(streams_mutex());
    stream* const s = usable(given, e);
    if (s == nullptr) return returned(e);
    *d = s->device;
    return returned(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return returned(synchronize(s)); }
cudaError_t cudaStreamQuery(cudaStream_t given) {
    cudaError_t e = ready();
    if (e != cudaSuccess) return returned(e);
    const std::lock_guard lock(streams_mutex());
    stream* const s = usable(given, e);
    if (s == nullptr) return returned(e);
    if (s->capturing) {
        s->capturing->broken = true;
        return returned(cudaErrorStreamCaptureUnsupported);
    }
    return s->last->is_set() ? returned(cudaSuccess) : cudaErrorNotReady;
}
cudaError_t cudaDeviceSynchronize() {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    if (const cudaError_t e = refuse_of_captured_device(current_device()); e != cudaSuccess) return returned(e);
    return returned(wait_for_device(current_device()));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    const std::lock_guard lock(streams_mutex());
    auto* const made = new event;
    made->device = current_device(), made->has_time = (flags & cudaEventDisableTiming) == 0;
    events().insert(made);
    *out = reinterpret_cast<cudaEvent_t>(made);
    return returned(cudaSuccess);
}
cudaError_t cudaEventCreate(cudaEvent_t* out) { return cudaEventCreateWithFlags(out, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t given) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    const std::lock_guard lock(streams_mutex());
    auto* const x = reinterpret_cast<event*>(given);
    if (events().erase(x) == 0) return returned(cudaErrorInvalidResourceHandle);
    delete x;
    return returned(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t given, cudaStream_t on) {
    cudaError_t e = ready();
    if (e != cudaSuccess) return returned(e);
    const std::lock_guard lock(streams_mutex());
    auto* const x = reinterpret_cast<event*>(given);
    stream* const s = usable(on, e);
    if (s == nullptr || !events().contains(x) || x->device != s->device)
        return returned(cudaErrorInvalidResourceHandle);
    if (!s->capturing) {
        if (s->is_legacy)
            if (e = refuse_of_captured_blocking(s->device); e != cudaSuccess) return returned(e);
        x->in.reset(), x->mark = -1;
        x->recorded = enqueue_now(*s, {});
        return returned(cudaSuccess);
    }
    capture& c = *s->capturing;
    if (c.broken) return returned(cudaErrorStreamCaptureInvalidated);
    x->in = s->capturing, x->mark = c.made.marks++;
    c.made.streams[s->place].push_back({{}, x->mark, -1});
    x->steps = c.made.streams[s->place].size();
    return returned(cudaSuccess);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t on, cudaEvent_t given, unsigned) {
    cudaError_t e = ready();
    if (e != cudaSuccess) return returned(e);
    const std::lock_guard lock(streams_mutex());
    auto* const x = reinterpret_cast<event*>(given);
    stream* const s = usable(on, e);
    if (s == nullptr || !events().contains(x)) return returned(cudaErrorInvalidResourceHandle);
    if (x->mark >= 0) {
        const std::shared_ptr<capture> c = x->in.lock();
        if (!c || c->broken) return returned(cudaErrorStreamCaptureInvalidated);
        if (s->is_legacy) return returned(cudaErrorStreamCaptureImplicit);
        if (s->capturing && s->capturing != c) return returned(cudaErrorStreamCaptureMerge);
        if (!s->capturing) { // joins it
            s->capturing = c, s->place = c->streams.size();
            c->streams.push_back(s);
            c->made.streams.emplace_back();
        }
        c->made.streams[s->place].push_back({{}, -1, x->mark});
        return returned(cudaSuccess);
    }
    if (s->capturing) { // of something outside
        s->capturing->broken = true;
        return returned(cudaErrorStreamCaptureIsolation);
    }
    if (s->is_legacy)
        if (e = refuse_of_captured_blocking(s->device); e != cudaSuccess) return returned(e);
    if (x->recorded) enqueue_now(*s, {}, {x->recorded});
    return returned(cudaSuccess);
}
// Even of an event that was recorded before: PyTorch's pull request 104487 is about that.
cudaError_t cudaEventQuery(cudaEvent_t given) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    const std::lock_guard lock(streams_mutex());
    auto* const x = reinterpret_cast<event*>(given);
    if (!events().contains(x)) return returned(cudaErrorInvalidResourceHandle);
    if (x->mark >= 0) return returned(captured(*x));
    if (const cudaError_t e = refuse_while_capturing(); e != cudaSuccess) return returned(e);
    if (x->recorded && !x->recorded->is_set()) return cudaErrorNotReady;
    return returned(cudaSuccess);
}
cudaError_t cudaEventSynchronize(cudaEvent_t given) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    finished_ptr f;
    {
        const std::lock_guard lock(streams_mutex());
        auto* const x = reinterpret_cast<event*>(given);
        if (!events().contains(x)) return returned(cudaErrorInvalidResourceHandle);
        if (x->mark >= 0) return returned(captured(*x));
        if (const cudaError_t e = refuse_while_capturing(); e != cudaSuccess) return returned(e);
        f = x->recorded;
    }
    if (f) f->wait();
    return returned(cudaSuccess);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
    if (const cudaError_t e = ready(); e != cudaSuccess) return returned(e);
    const std::lock_guard lock(streams_mutex());
    auto *const a = reinterpret_cast<event*>(begin), *const b = reinterpret_cast<event*>(end);
    for (event* x : {a, b})
        if (!events().contains(x) || !x->recorded || !x->has_time || x->mark >= 0 || x->device != a->device)
            return returned(cudaErrorInvalidResourceHandle);
    if (!a->recorded->is_set() || !b->recorded->is_set()) return cudaErrorNotReady;
    *ms = static_cast<float>(b->recorded->at_ns() - a->recorded->at_ns()) * 1e-6f;
    return returned(cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t on, cudaStreamCaptureMode mode) {
    cudaError_t e = ready();
    if (e != cudaSuccess) return returned(e);
    const std::lock_guard lock(streams_mutex());
    stream* const s = usable(on, e);
    if (s == nullptr) return returned(e);
    if (s->is_legacy) return returned(cudaErrorStreamCaptureUnsupported);
    if (s->capturing) return returned(cudaErrorIllegalState);
    auto c = std::make_shared<capture>();
    c->mode = mode, c->thread = std::this_thread::get_id();
    c->streams = {s}, c->made.streams.resize(1);
    s->capturing = c, s->place = 0;
    captures().insert(c);
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
    captures().erase(c);
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
    auto done = std::make_shared<finished>(); // launches of one executable graph follow each other
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
    delete reinterpret_cast<executable*>(x); // launches that run keep what they run
    return returned(cudaSuccess);
}

} // extern "C"
