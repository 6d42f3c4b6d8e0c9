// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Persistent calls on device memory. Where kernels reach every peer, making a call checks it, chooses its algorithm and
// prepares the arguments of its kernel; a start is a launch. On other ways a start makes the whole call. Either way the
// call is done when its stream is.
#pragma once

#include <utility>

#include <collx/call/neighbor_edges.hpp>
#include <collx/call/persistent.hpp>
#include <collx/core/pointers.hpp>
#include <collx/gpu/call.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

template <class Runtime>
struct device_calls;

struct recorded_launch {
    virtual ~recorded_launch() = default;
    virtual void start() = 0;
};
template <class Runtime, class Comm, class Call>
class typed_launch final : public recorded_launch {
public:
    typed_launch(Comm& comm, const device_call_options& o, bool is_collective, const Call& call,
                 const device::fused_options& with)
        : comm_(kept_communicator(comm)), options_(o), is_collective_(is_collective), call_(call), with_(with) {}
    void start() override {
        const device_started<Runtime, Comm> started(comm_.comm, options_, is_collective_);
        started.put(call_, with_, 0, 0);
        started.end();
    }

private:
    kept_communicator_t<Comm> comm_;
    device_call_options options_;
    bool is_collective_;
    Call call_;
    device::fused_options with_;
};

// A call that keeps its prepared kernel instead of launching it.
template <class Runtime, class Comm>
struct device_recorder : device_started<Runtime, Comm> {
    device_recorder(Comm& c, const device_call_options& o, sole_ptr<recorded_launch>& to, bool counts = true)
        : device_started<Runtime, Comm>(c, o, counts), is_collective(counts), recorded(&to) {
        this->launches_nothing();
    }
    template <class Call, class In, class Out>
    void put(const Call& call, const device::fused_options& with, const In&, const Out&) const {
        *recorded = make_sole<typed_launch<Runtime, Comm, Call>>(this->comm, this->o, is_collective, call, with);
    }
    void end() const {} // no call has been made
    bool is_collective;
    sole_ptr<recorded_launch>* recorded;
};

// Takes the place of device_calls, and records the calls where kernels reach every peer.
template <class Runtime>
struct device_recording {
    sole_ptr<recorded_launch> launch; // null: a start makes the whole call
    using calls = device_calls<Runtime>;

    template <collective C, class Comm, class In, class Out, class Op, class... Rest>
    void run(Comm& comm, In in, Out out, const Op& op, const device_call_options& o, const Rest&... rest) {
        const device_recorder<Runtime, Comm> recorder(comm, o, launch);
        if (recorder.g.is_direct()) calls::template make<C>(recorder, in, out, op, rest...);
    }
    template <verb V, class Comm, class In, class Out, class Sent, class Received>
    void neighbors(Comm& comm, const collx::neighbors& g, const In& in, const Out& out, const device_call_options& o,
                   const Sent& sent, const Received& received) {
        const device_recorder<Runtime, Comm> recorder(comm, o, launch);
        if (recorder.g.is_direct()) calls::template make_neighbors<V>(recorder, g, in, out, sent, received);
    }
    template <class Comm, class Sent, class Received>
    void message(Comm& comm, const Sent& sent, int to, const Received& received, int from,
                 const device_call_options& o) {
        calls::check_message(base_of(comm), to, from);
        const device_recorder<Runtime, Comm> recorder(comm, o, launch, false);
        if (recorder.g.is_direct()) calls::make_message(recorder, sent, to, received, from);
    }
    template <class Comm>
    void barrier(Comm& comm, const device_call_options& o) {
        const device_recorder<Runtime, Comm> recorder(comm, o, launch);
        if (recorder.g.is_direct()) calls::make_barrier(recorder);
    }

    template <class F>
    static sole_ptr<ready_call> make_ready(F f);
};

template <class Runtime, class F>
class ready_launch final : public ready_call {
public:
    explicit ready_launch(F f) : make_(std::move(f)) { make_(recording_); }
    void start() override {
        if (recording_.launch != nullptr) recording_.launch->start();
        else make_(device_calls<Runtime>());
    }
    bool test() override { return true; }
    void wait() override {}
    void leave() override {}

private:
    F make_;
    device_recording<Runtime> recording_;
};
template <class Runtime>
template <class F>
sole_ptr<ready_call> device_recording<Runtime>::make_ready(F f) {
    return make_sole<ready_launch<Runtime, F>>(std::move(f));
}

} // namespace detail
COLLX_END_NAMESPACE
