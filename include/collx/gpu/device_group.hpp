// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// device_group: several calls on device memory at once, as group for host memory. All messages of a group are under
// way together, so rings and exchanges do not deadlock. The collectives follow in order; those of one kind share a
// kernel. A group that is written as one chain has one kernel for all its calls, because its type names their kinds.
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

#include <collx/comm/group_verbs.hpp>
#include <collx/comm/unmade_calls.hpp>
#include <collx/gpu/group_calls.hpp>

COLLX_BEGIN_NAMESPACE

// Calls of a communicator, or of one with policies bound. Buffers must stay in place until the stream is done.
// Every rank adds the same collectives in the same order. Both ranks of a pair add the messages between them, each to
// one group, in the same order.
// Kinds: the kinds of calls that share one kernel: (verb, views, operator), or messages. Each call in a chain returns
// a group with its kind added; a group that is kept (auto g = device_group(w).all_reduce(x)) takes more of its Kinds.
// Cost: one kernel for calls of Kinds, up to 32 calls and 16 KiB of arguments. Other messages: one kernel for all
//     first ones to each peer, one for all second ones, and so on. Other consecutive collectives that differ only in
//     buffers, counts and roots: one kernel, up to 16. A call begins another kernel if it or an earlier one writes
//     memory that both use.
// Errors: those of the single calls, with the call's number in the group. Calls before it are made. A group that is
//     destroyed with calls that were not launched reports so on stderr; a checked communicator ends.
template <class Comm, class... Kinds>
class device_group : public detail::group_verbs<device_group<Comm, Kinds...>, true> {
public:
    explicit device_group(Comm& c) requires std::is_same_v<Comm, communicator> : comm_(&c) {}
    template <class... P>
    explicit device_group(const bound_communicator<P...>& c) : comm_(c) {}

    // The number of calls in the group.
    std::size_t size() const { return calls_.size() + messages_.size(); }

    // Launches the calls. The group is empty afterwards.
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
    friend detail::group_verbs<device_group, true>;
    static constexpr bool is_bound = !std::is_same_v<Comm, communicator>;
    using policies = std::remove_cvref_t<decltype(detail::policies_of(std::declval<Comm&>()))>;
    template <class Kind>
    static constexpr bool has = (std::is_same_v<Kind, Kinds> || ...);
    template <class X, class T = detail::element_of<buffer_t<X>>>
    using message_kind = detail::grouped_messages_kind<sizeof(T) % 4 == 0 && alignof(T) % 4 == 0>;
    template <detail::verb V, class In, class Out, class Op>
    struct kind_of {
        using type = detail::grouped_kind<detail::row_of(V).does, buffer_t<In>, buffer_t<Out>, Op>;
    };
    template <detail::verb V, class In, class Out, class Op>
    requires(detail::row_of(V).is_message()) struct kind_of<V, In, Out, Op> {
        using type = message_kind<In>;
    };
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
    // This group with one more kind and the call that f adds.
    template <detail::verb V, class In, class Out, class Op, class F>
    auto chain(F&& f) {
        using kind = typename kind_of<V, In, Out, Op>::type;
        using next = std::conditional_t<has<kind>, device_group, device_group<Comm, Kinds..., kind>>;
        next g(comm(), std::move(calls_), std::move(messages_));
        g.unmade_ = std::move(unmade_);
        f(g);
        return g;
    }
    template <detail::verb V, bool IsInPlace, class In, class Out, class Op>
    void add(In& in, Out& out, const Op& op, int root = 0) {
        require_on_device<In>();
        require_on_device<Out>();
        require_output<Out>();
        if constexpr (buffer_t<Out>::is_output && DeviceBuffer<In> && DeviceBuffer<Out>) { // else refused
            constexpr bool is_mixed = has<typename kind_of<V, In, Out, Op>::type>;
            calls_.push_back([a = buffer(in), b = buffer(out), op, root](Comm& c, device_call_options o,
                                                                         detail::kernel_batch& batch) {
                o.root = root; // read by rooted verbs only
                detail::with_device_calls<detail::blocking>(c, [&]<class Runtime>(detail::device_calls<Runtime>) {
                    detail::device_group_calls<Runtime>::template collective_of<detail::row_of(V).does, is_mixed>(
                        c, a, b, op, o, IsInPlace, batch);
                });
            });
        }
        note(detail::name_of(V));
    }
    template <bool Outgoing, class X>
    void add_message(X& x, int peer) {
        require_on_device<X>();
        if constexpr (!Outgoing) require_output<X>();
        require_kind<X>();
        messages_.push_back(message(buffer(x), peer, Outgoing));
        note(Outgoing ? "send" : "recv");
    }
    template <class X>
    static void require_on_device() {
        static_assert(!Buffer<X> || DeviceBuffer<X>,
                      "collx: a device_group takes buffers in device memory: a device_view, a "
                      "thrust::device_vector, on_device(x). Those of the host go to collx::group.");
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
