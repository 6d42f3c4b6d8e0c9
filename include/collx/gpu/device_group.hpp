// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// device_group: several calls on device memory at once, like group for the host's. All messages of a group are under
// way together, so rings and exchanges of groups do not lock; its collectives follow, in order. Those of one kind share
// a kernel; and all calls of a group that is written as one chain do, whatever their kinds, for then its type says
// them.
//
//   collx::device_group g(world);
//   for (auto& x : gradients) g.all_reduce(x);
//   g.launch({.stream = stream});
//
//   collx::device_group(world).send(mine, next).recv(theirs, last).all_reduce(norm).broadcast(seed, 0)
//       .launch({.stream = stream}); // one kernel
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include <collx/comm/group_refusals.hpp>
#include <collx/comm/unmade_calls.hpp>
#include <collx/gpu/group_calls.hpp>

COLLX_BEGIN_NAMESPACE

// Of a communicator, or of one with policies bound. Buffers must stay in place until the stream is done.
// Every rank adds the same collectives in the same order; the messages between two ranks are added by both, to one
// group each, in the same order.
// Kinds: of calls that share one kernel: (verb, views, operator), and messages. Each call in a chain adds its own, and
// gives the group with it back; a group that is kept (auto g = device_group(w).all_reduce(x)) takes more of the same.
// Cost: calls of its Kinds are one kernel, up to 32 and 16 KiB of arguments. Other messages: one kernel for all first
//     ones to each peer, one for all second ones, and so on. Other collectives that follow one another and differ only
//     in buffers, counts and roots: one kernel, up to 16. A call that uses memory which one before it writes begins
//     another one.
// Errors: as of the calls by themselves, with the call's number in the group. Calls before it are made. A group that is
//     destroyed with calls that were not launched says so on stderr; if the communicator is checked, it ends.
template <class Comm, class... Kinds>
class device_group : detail::group_refusals<Comm, true> {
    using refusals = detail::group_refusals<Comm, true>;

public:
    using refusals::all_gather, refusals::all_reduce, refusals::all_to_all, refusals::broadcast;
    using refusals::recv, refusals::reduce, refusals::reduce_scatter, refusals::send;

    explicit device_group(Comm& c) requires std::is_same_v<Comm, communicator> : comm_(&c) {}
    template <class... P>
    explicit device_group(const bound_communicator<P...>& c) : comm_(c) {}

    template <DeviceBuffer X, detail::OpArgument Op = plus>
    void all_reduce(X&& x, Op op = {}) & {
        add<collective::all_reduce>(x, x, op, true);
    }
    template <DeviceBuffer X>
    void broadcast(X&& x, int root) & {
        add<collective::broadcast>(x, x, no_op{}, true, root);
    }
    template <DeviceBuffer X, detail::OpArgument Op = plus>
    void reduce(X&& x, int root, Op op = {}) & {
        add<collective::reduce>(x, x, op, true, root);
    }
    template <DeviceBuffer In, DeviceBuffer Out>
    void all_gather(In&& in, Out&& out) & {
        add<collective::all_gather>(in, out, no_op{}, false);
    }
    template <DeviceBuffer In, DeviceBuffer Out, detail::OpArgument Op = plus>
    void reduce_scatter(In&& in, Out&& out, Op op = {}) & {
        add<collective::reduce_scatter>(in, out, op, false);
    }
    template <DeviceBuffer In, DeviceBuffer Out>
    void all_to_all(In&& in, Out&& out) & {
        add<collective::all_to_all>(in, out, no_op{}, false);
    }
    template <DeviceBuffer X>
    void send(X&& x, int peer) & {
        require_kind<X>();
        messages_.push_back(message(buffer(x), peer, true));
        note("send");
    }
    template <DeviceBuffer X>
    void recv(X&& x, int peer) & {
        require_output<X>();
        require_kind<X>();
        messages_.push_back(message(buffer(x), peer, false));
        note("recv");
    }

    // The same in a chain.
    template <DeviceBuffer X, detail::OpArgument Op = plus>
    [[nodiscard]] auto all_reduce(X&& x, Op op = {}) && {
        return chained<call_kind<collective::all_reduce, X, X, Op>>([&](auto& g) { g.all_reduce(x, op); });
    }
    template <DeviceBuffer X>
    [[nodiscard]] auto broadcast(X&& x, int root) && {
        return chained<call_kind<collective::broadcast, X, X, no_op>>([&](auto& g) { g.broadcast(x, root); });
    }
    template <DeviceBuffer X, detail::OpArgument Op = plus>
    [[nodiscard]] auto reduce(X&& x, int root, Op op = {}) && {
        return chained<call_kind<collective::reduce, X, X, Op>>([&](auto& g) { g.reduce(x, root, op); });
    }
    template <DeviceBuffer In, DeviceBuffer Out>
    [[nodiscard]] auto all_gather(In&& in, Out&& out) && {
        return chained<call_kind<collective::all_gather, In, Out, no_op>>([&](auto& g) { g.all_gather(in, out); });
    }
    template <DeviceBuffer In, DeviceBuffer Out, detail::OpArgument Op = plus>
    [[nodiscard]] auto reduce_scatter(In&& in, Out&& out, Op op = {}) && {
        return chained<call_kind<collective::reduce_scatter, In, Out, Op>>(
            [&](auto& g) { g.reduce_scatter(in, out, op); });
    }
    template <DeviceBuffer In, DeviceBuffer Out>
    [[nodiscard]] auto all_to_all(In&& in, Out&& out) && {
        return chained<call_kind<collective::all_to_all, In, Out, no_op>>([&](auto& g) { g.all_to_all(in, out); });
    }
    template <DeviceBuffer X>
    [[nodiscard]] auto send(X&& x, int peer) && {
        return chained<message_kind<X>>([&](auto& g) { g.send(x, peer); });
    }
    template <DeviceBuffer X>
    [[nodiscard]] auto recv(X&& x, int peer) && {
        return chained<message_kind<X>>([&](auto& g) { g.recv(x, peer); });
    }
    std::size_t size() const { return calls_.size() + messages_.size(); }

    // The group is empty afterwards.
    void launch(const device_call_options& o = {}) {
        communicator_core& core = detail::base_of(comm()).internals();
        const detail::one_caller::call here(core.caller, core.net.rank());
        unmade_.are_made();
        const auto calls = std::exchange(calls_, {});
        const auto messages = std::exchange(messages_, {});
        Comm& c = comm();
        detail::kernel_batch batch;
        unsigned number = 0;
        try {
            detail::with_device_calls<detail::blocking>(c, [&]<class Runtime>(detail::device_calls<Runtime>) {
                using group_calls = detail::device_group_calls<Runtime>;
                if constexpr (sizeof...(Kinds) != 0) group_calls::template use_mix<policies, Kinds...>(batch);
                group_calls::template messages<mixes_messages>(c, messages, o, batch);
            });
            for (const auto& call : calls) batch.begin_call(++number), call(c, o, batch);
        } catch (const error& e) {
            batch.end(e);
        }
        batch.flush();
    }

private:
    template <class C, class... K>
    friend class device_group;
    static constexpr bool is_bound = !std::is_same_v<Comm, communicator>;
    using policies = std::remove_cvref_t<decltype(detail::policies_of(std::declval<Comm&>()))>;
    template <class Kind>
    static constexpr bool has = (std::is_same_v<Kind, Kinds> || ...);
    template <collective C, class In, class Out, class Op>
    using call_kind = detail::grouped_kind<C, buffer_t<In>, buffer_t<Out>, Op>;
    template <class X, class T = detail::element_of<buffer_t<X>>>
    using message_kind = detail::grouped_messages_kind<sizeof(T) % 4 == 0 && alignof(T) % 4 == 0>;
    static constexpr bool mixes_messages =
        has<detail::grouped_messages_kind<true>> || has<detail::grouped_messages_kind<false>>;

    template <class X>
    static void require_kind() {
        static_assert(
            !mixes_messages || has<detail::grouped_messages_kind<false>> || has<message_kind<X>>,
            "collx: this group's kernel moves words only. Put a message of this element type into its chain.");
    }
    void note(const char* verb) { unmade_.add(detail::base_of(comm()).internals(), verb); }
    Comm& comm() {
        if constexpr (is_bound) return comm_;
        else return *comm_;
    }
    // This group, with one kind more and with what f adds.
    template <class Kind, class F>
    auto chained(F&& f) {
        using next = std::conditional_t<has<Kind>, device_group, device_group<Comm, Kinds..., Kind>>;
        next g(comm(), std::move(calls_), std::move(messages_));
        g.unmade_ = std::move(unmade_);
        f(g);
        return g;
    }
    template <collective C, class In, class Out, class Op>
    void add(In& in, Out& out, const Op& op, bool is_in_place, int root = 0) {
        require_output<Out>();
        if constexpr (buffer_t<Out>::is_output) { // else refused, and no more errors than that one
            constexpr bool is_mixed = has<call_kind<C, In, Out, Op>>;
            calls_.push_back([a = buffer(in), b = buffer(out), op, is_in_place, root](Comm& c, device_call_options o,
                                                                                      detail::kernel_batch& batch) {
                if constexpr (C == collective::reduce || C == collective::broadcast) o.root = root;
                detail::with_device_calls<detail::blocking>(c, [&]<class Runtime>(detail::device_calls<Runtime>) {
                    detail::device_group_calls<Runtime>::template collective_of<C, is_mixed>(c, a, b, op, o,
                                                                                             is_in_place, batch);
                });
            });
        }
        note(name_of(C));
    }
    template <class View>
    static detail::device_message message(const View& v, int peer, bool outgoing) {
        static_assert(View::is_contiguous, "collx: the messages of a device_group are contiguous. Use send and recv.");
        using T = detail::element_of<View>;
        return {peer, outgoing, reinterpret_cast<std::uintptr_t>(v.data()), v.size() * sizeof(T)};
    }
    using call = std::function<void(Comm&, const device_call_options&, detail::kernel_batch&)>;
    device_group(Comm& c, std::vector<call>&& calls, std::vector<detail::device_message>&& messages) : device_group(c) {
        calls_ = std::move(calls), messages_ = std::move(messages);
    }

    std::conditional_t<is_bound, Comm, communicator*> comm_;
    std::vector<call> calls_;
    std::vector<detail::device_message> messages_;
    detail::unmade_calls unmade_;
};
device_group(communicator&)->device_group<communicator>;
template <class... P>
device_group(const bound_communicator<P...>&) -> device_group<bound_communicator<P...>>;

COLLX_END_NAMESPACE
