// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// device_group: several calls on device memory at once, like group for the host's. All messages of a group are under
// way together, so rings and exchanges of groups do not lock; its collectives follow, in order, those of one kind in
// one kernel.
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

#include <collx/comm/gpu/group_calls.hpp>

COLLX_BEGIN_NAMESPACE

// Of a communicator, or of one with policies bound. Buffers must stay in place until the stream is done.
// Every rank adds the same collectives in the same order; the messages between two ranks are added by both, to one
// group each, in the same order.
// Cost: one kernel for all first messages of a group to each peer, one for all second ones, and so on. Collectives that
// follow one another and differ only in buffers, counts and roots are one kernel, up to 16; a call that uses memory
// which one before it writes begins another one.
// Errors: as of the calls by themselves, with the call's number in the group. Calls before it are made.
template <class Comm>
class device_group {
public:
    explicit device_group(Comm& c) requires std::is_same_v<Comm, communicator> : comm_(&c) {}
    template <class... P>
    explicit device_group(const bound_communicator<P...>& c) : comm_(c) {}

    template <DeviceBuffer X, class Op = plus>
    void all_reduce(X&& x, Op op = {}) {
        add<collective::all_reduce>(x, x, op, true);
    }
    template <DeviceBuffer X, class Op = plus>
    void reduce(X&& x, int root, Op op = {}) {
        add<collective::reduce>(x, x, op, true, root);
    }
    template <DeviceBuffer X>
    void broadcast(X&& x, int root) {
        add<collective::broadcast>(x, x, no_op{}, true, root);
    }
    template <DeviceBuffer In, DeviceBuffer Out>
    void all_gather(In&& in, Out&& out) {
        add<collective::all_gather>(in, out, no_op{}, false);
    }
    template <DeviceBuffer In, DeviceBuffer Out, class Op = plus>
    void reduce_scatter(In&& in, Out&& out, Op op = {}) {
        add<collective::reduce_scatter>(in, out, op, false);
    }
    template <DeviceBuffer In, DeviceBuffer Out>
    void all_to_all(In&& in, Out&& out) {
        add<collective::all_to_all>(in, out, no_op{}, false);
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
        detail::with_device_calls<detail::blocking>(c, [&]<class Runtime>(detail::device_calls<Runtime>) {
            detail::device_group_calls<Runtime>::messages(c, messages, o);
        });
        detail::kernel_batch batch;
        unsigned number = 0;
        try {
            for (const auto& call : calls) batch.begin_call(++number), call(c, o, batch);
        } catch (const error& e) {
            batch.end(e);
        }
        batch.flush();
    }

private:
    static constexpr bool is_bound = !std::is_same_v<Comm, communicator>;
    Comm& comm() {
        if constexpr (is_bound) return comm_;
        else return *comm_;
    }
    template <collective C, class In, class Out, class Op>
    void add(In& in, Out& out, const Op& op, bool is_in_place, int root = 0) {
        require_output<Out>();
        calls_.push_back([a = buffer(in), b = buffer(out), op, is_in_place, root](Comm& c, device_call_options o,
                                                                                  detail::kernel_batch& batch) {
            if constexpr (C == collective::reduce || C == collective::broadcast) o.root = root;
            detail::with_device_calls<detail::blocking>(c, [&]<class Runtime>(detail::device_calls<Runtime>) {
                detail::device_group_calls<Runtime>::template collective_of<C>(c, a, b, op, o, is_in_place, batch);
            });
        });
    }
    template <class View>
    static detail::device_message message(const View& v, int peer, bool outgoing) {
        static_assert(View::is_contiguous, "collx: the messages of a device_group are contiguous. Use send and recv.");
        using T = detail::element_of<View>;
        return {peer, outgoing, reinterpret_cast<std::uintptr_t>(v.data()), v.size() * sizeof(T)};
    }

    std::conditional_t<is_bound, Comm, communicator*> comm_;
    std::vector<std::function<void(Comm&, const device_call_options&, detail::kernel_batch&)>> calls_;
    std::vector<detail::device_message> messages_;
};
device_group(communicator&)->device_group<communicator>;
template <class... P>
device_group(const bound_communicator<P...>&) -> device_group<bound_communicator<P...>>;

COLLX_END_NAMESPACE
