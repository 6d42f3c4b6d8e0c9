// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Streams and events. Each stream is a thread that runs its work in order.
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

std::set<stream*>& streams() {
    static auto* const all = new std::set<stream*>;
    return *all;
}

namespace {

std::set<event*>& events() {
    static auto* const all = new std::set<event*>;
    return *all;
}

stream* new_stream(int device, bool is_blocking, bool is_legacy) {
    auto* const s = new stream;
    s->device = device;
    s->is_blocking = is_blocking;
    s->is_legacy = is_legacy;
    streams().insert(s);
    std::thread([s] { s->serve(); }).detach();
    static const int at_exit = std::atexit([] {
        if (is_in_forked_child()) return; // it has none of the threads, and a lock may be held by one of them
        stopped = cancelled = true;
        // Running work checks `stopped` between its turns.
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

stream* usable(cudaStream_t s, cudaError_t& e) {
    e = ready();
    if (e != cudaSuccess) return nullptr;
    stream* const found = stream_of(s);
    if (found == nullptr) e = cudaErrorInvalidResourceHandle;
    return found;
}

finished_ptr enqueue_now(stream& s, work w, std::vector<finished_ptr> first) {
    // Work of the legacy stream runs after all earlier work of blocking streams, and before all later work.
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

} // namespace software_gpu

using namespace software_gpu;

namespace {
// Waits for a stream. Not allowed for a stream that is being captured.
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
    streams().erase(s); // its thread completes its work, and its memory is kept
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
    if (s->capturing) { // as with driver 580 on an H100
        s->capturing->broken = true;
        return returned(cudaErrorStreamCaptureUnsupported);
    }
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
    made->device = current_device();
    made->has_time = (flags & cudaEventDisableTiming) == 0;
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
        x->in.reset();
        x->mark = -1;
        x->recorded = enqueue_now(*s, {});
        return returned(cudaSuccess);
    }
    capture& c = *s->capturing;
    if (c.broken) return returned(cudaErrorStreamCaptureInvalidated);
    x->in = s->capturing;
    x->mark = c.made.marks++;
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
        if (!s->capturing) { // joins the capture
            s->capturing = c;
            s->place = c->streams.size();
            c->streams.push_back(s);
            c->made.streams.emplace_back();
        }
        c->made.streams[s->place].push_back({{}, -1, x->mark});
        return returned(cudaSuccess);
    }
    if (s->capturing) { // waits for an event outside the capture
        s->capturing->broken = true;
        return returned(cudaErrorStreamCaptureIsolation);
    }
    if (s->is_legacy)
        if (e = refuse_of_captured_blocking(s->device); e != cudaSuccess) return returned(e);
    if (x->recorded) enqueue_now(*s, {}, {x->recorded});
    return returned(cudaSuccess);
}
// Fails even for an event that was recorded before a capture: see PyTorch's pull request 104487.
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

} // extern "C"
