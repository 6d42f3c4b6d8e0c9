// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The calls of one communicator on its device, one after the other: they share its exchange memory. In streams by an
// event, in branches of a graph that is captured by an edge. Knows no kernel and no memory.
#pragma once

#include <sched.h>

#include <cstdint>

#include <collx/core/clock.hpp>
#include <collx/transport/gpu_runtime.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

template <device::GpuRuntime Runtime>
class call_order {
public:
    explicit call_order(const Runtime& r) : runtime_(r) {}
    call_order(const call_order&) = delete;
    void make() { launched_ = runtime_.make_event(), captured_ = runtime_.make_event(); }
    void free() {
        for (void* e : {launched_, captured_})
            if (e != nullptr) runtime_.free_event(e);
        abandon();
    }
    // Leaves the events to a kernel that cannot be ended.
    void abandon() { launched_ = captured_ = nullptr; }

    // The next call waits, in its stream, for the last one: always in a graph, outside where `waits` says so. (Streams
    // are not told apart by their addresses: one may be gone and another in its place.)
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
    // Whether all calls that were launched have ended, or do so in time.
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
    void* captured_ = nullptr;      // recorded after each that is,
    std::uint64_t captured_in_ = 0; // in this capture last
};

} // namespace detail
COLLX_END_NAMESPACE
