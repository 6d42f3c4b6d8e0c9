// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// device_group: several calls on device memory at once, like group for the host's. All messages of a group are under
// way together, so rings and exchanges of groups do not lock; its collectives follow, one after the other.
//
//   collx::device_group g(world);
//   g.send(mine, next), g.recv(theirs, last);
//   g.launch({.stream = stream});
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include <collx/comm/gpu/calls.hpp>

COLLX_BEGIN_NAMESPACE

// Of a communicator, or of one with policies bound. Buffers must stay in place until the stream is done.
// Every rank adds the same collectives in the same order; the messages between two ranks are added by both, to one
// group each, in the same order.
// Cost: one kernel for all first messages of a group to each peer, one for all second ones, and so on; one call for
// each collective. Errors: as of the calls by themselves.
template <class Comm>
class device_group {
public:
    explicit device_group(Comm& c) requires std::is_same_v<Comm, communicator> : comm_(&c) {}
    template <class... P>
    explicit device_group(const bound_communicator<P...>& c) : comm_(c) {}

    template <DeviceBuffer X, class Op = plus>
    void all_reduce(X&& x, Op op = {}) {
        add(x, [op](Comm& c, auto v, const device_call_options& o) { collx::all_reduce(c, v, op, o); });
    }
    template <DeviceBuffer X, class Op = plus>
    void reduce(X&& x, int root, Op op = {}) {
        add(x, [op, root](Comm& c, auto v, device_call_options o) { o.root = root, collx::reduce(c, v, op, o); });
    }
    template <DeviceBuffer X>
    void broadcast(X&& x, int root) {
        add(x, [root](Comm& c, auto v, device_call_options o) { o.root = root, collx::broadcast(c, v, o); });
    }
    template <DeviceBuffer In, DeviceBuffer Out>
    void all_gather(In&& in, Out&& out) {
        add(out, [a = buffer(in)](Comm& c, auto v, const device_call_options& o) { collx::all_gather(c, a, v, o); });
    }
    template <DeviceBuffer X>
    void send(X&& x, int peer) {
        messages_.push_back(message(buffer(x), peer, true));
    }
    template <DeviceBuffer X>
    void recv(X&& x, int peer) {
        require_output<X>();
        messages_.push_back(message(buffer(x), peer, false));
    }
    std::size_t size() const { return calls_.size() + messages_.size(); }

    // The group is empty afterwards.
    void launch(const device_call_options& o = {}) {
        const auto calls = std::exchange(calls_, {});
        const auto messages = std::exchange(messages_, {});
        Comm& c = comm();
        detail::with_device_calls<detail::blocking>(c, [&](auto on_device) { on_device.messages(c, messages, o); });
        for (const auto& call : calls) call(c, o);
    }

private:
    static constexpr bool is_bound = !std::is_same_v<Comm, communicator>;
    Comm& comm() {
        if constexpr (is_bound) return comm_;
        else return *comm_;
    }
    template <class X, class F>
    void add(X& x, F f) {
        require_output<X>();
        calls_.push_back([v = buffer(x), f](Comm& c, const device_call_options& o) { f(c, v, o); });
    }
    template <class View>
    static detail::device_message message(const View& v, int peer, bool outgoing) {
        static_assert(View::is_contiguous, "collx: the messages of a device_group are contiguous. Use send and recv.");
        using T = detail::element_of<View>;
        return {peer, outgoing, reinterpret_cast<std::uintptr_t>(v.data()), v.size() * sizeof(T)};
    }

    std::conditional_t<is_bound, Comm, communicator*> comm_;
    std::vector<std::function<void(Comm&, const device_call_options&)>> calls_;
    std::vector<detail::device_message> messages_;
};
device_group(communicator&)->device_group<communicator>;
template <class... P>
device_group(const bound_communicator<P...>&) -> device_group<bound_communicator<P...>>;

COLLX_END_NAMESPACE
