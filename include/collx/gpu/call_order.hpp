// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Orders the calls of one communicator on its device, which share its exchange memory: one after the other. Streams
// are ordered by an event, branches of a captured graph by an edge. Knows no kernel and no memory.
#pragma once

#include <sched.h>

#include <cstdint>
#include <initializer_list>

#include <collx/core/clock.hpp>
#include <collx/transport/gpu_runtime.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

template <device::GpuRuntime Runtime>
class call_order {
public:
    explicit call_order(const Runtime& r) : runtime_(r) {}
    call_order(const call_order&) = delete;
    void make() {
        launched_ = runtime_.make_event();
        captured_ = runtime_.make_event();
    }
    void free() {
        for (void* e : {launched_, captured_})
            if (e != nullptr) runtime_.free_event(e);
        abandon();
    }
    // Does not free the events, because a kernel that cannot be ended may still use them.
    void abandon() { launched_ = captured_ = nullptr; }

    // Makes the next call wait in its stream for the last one: always inside one captured graph, outside only if
    // `waits`. (Addresses do not distinguish streams: a new stream may have the address of one that is gone.)
    void before(void* stream, const device::stream_facts& f, bool waits) {
        if (f.is_capturing) {
            if (f.capture == captured_in_) runtime_.wait(stream, captured_);
        } else if (waits && has_launched_) {
            runtime_.wait(stream, launched_);
        }
    }
    void after(void* stream, const device::stream_facts& f) {
        runtime_.record(f.is_capturing ? captured_ : launched_, stream);
        if (f.is_capturing) captured_in_ = f.capture;
        else has_launched_ = true;
    }
    bool has_captured() const { return captured_in_ != 0; }
    // Waits until all launched calls have ended. False: they have not within limit_ns. Not seen: captured calls.
    bool has_ended(std::int64_t limit_ns) const {
        const deadline until = deadline::in_ns(limit_ns);
        while (has_launched_ && !runtime_.has_happened(launched_)) {
            if (until.passed()) return false;
            sched_yield();
        }
        return true;
    }

private:
    Runtime runtime_;
    void* launched_ = nullptr; // recorded after each call that is not captured
    bool has_launched_ = false;
    void* captured_ = nullptr;      // recorded after each captured call
    std::uint64_t captured_in_ = 0; // the capture of the last captured call
};

} // namespace detail
COLLX_END_NAMESPACE
