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
//
//   auto step = collx::persistent::device_group(world).all_reduce(norm).broadcast(seed, 0).launch({.stream = stream});
//   for (...) step(); // launches what was prepared once
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <collx/comm/group_verbs.hpp>
#include <collx/comm/unmade_calls.hpp>
#include <collx/gpu/group_calls.hpp>
#include <collx/gpu/ready_group.hpp>

COLLX_BEGIN_NAMESPACE

// Calls of a communicator, or of one with policies bound. Buffers must stay in place until the stream is done.
// Every rank adds the same collectives in the same order. Both ranks of a pair add the messages between them, each to
// one group, in the same order.
// Mode: blocking, or repeated: then launch() launches nothing and returns a persistent_call of the whole group.
// Kinds: the kinds of calls that share one kernel: (verb, views, operator), or messages. Each call in a chain returns
// a group with its kind added; a group that is kept (auto g = device_group(w).all_reduce(x)) takes more of its Kinds.
// Cost: one kernel for calls of Kinds, up to 32 calls and 16 KiB of arguments. Other messages: one kernel for all
//     first ones to each peer, one for all second ones, and so on; elements whose size is no power of two have
//     their own. Other consecutive collectives that differ only in buffers, counts and roots: one kernel, up to 16. A
//     call begins another kernel if it or an earlier one writes memory that both use. An operator or hook that may hold
//     a pointer uses all memory, so its call has its own kernel.
// Errors: those of the single calls, with the call's number in the group. Calls before it are made. A group that is
//     destroyed with calls that were not launched reports so on stderr; a checked communicator ends.
template <class Comm, class Mode = detail::blocking_mode, class... Kinds>
class device_group : public detail::group_verbs<device_group<Comm, Mode, Kinds...>, true> {
public:
    explicit device_group(Comm& c) requires std::is_same_v<Comm, communicator> : comm_(&c) {}
    template <class... P>
    explicit device_group(const bound_communicator<P...>& c) : comm_(c) {}

    // The number of calls in the group.
    std::size_t size() const { return all_.size(); }

    // Launches the calls. The group is empty afterwards. A persistent group instead returns a persistent_call, which
    // launches all of them each time it is called, and is done when its stream is.
    auto launch(const device_call_options& o = {}) {
        Comm& c = comm();
        communicator_core& core = detail::base_of(c).internals();
        const detail::one_caller::call here(core.caller, core.net.rank());
        detail::require_no_root(core, o);
        auto all = std::exchange(all_, {});
        unmade_.take(core);
        sole_ptr<detail::ready_call> ready;
        detail::with_device_calls<detail::blocking_mode>(c, [&]<class Runtime>(detail::device_calls<Runtime>, auto&) {
            if constexpr (is_persistent) {
                ready = make_sole<detail::ready_device_group<Runtime, Comm, Kinds...>>(c, std::move(all), o);
            } else {
                detail::kernel_batch batch;
                detail::device_group_calls<Runtime>::template put<Mode, Kinds...>(c, all, o, batch);
            }
        });
        if constexpr (is_persistent) return persistent_call(core, std::move(ready));
    }

private:
    template <class C, class M, class... K>
    friend class device_group;
    friend detail::group_verbs<device_group, true>;
    static constexpr bool is_bound = !std::is_same_v<Comm, communicator>,
                          is_persistent = std::is_same_v<Mode, detail::persistent_mode>;
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
    template <class X>
    static void require_kind() {
        static_assert(
            !detail::mixes_messages<Kinds...> || has<detail::grouped_messages_kind<false>> || has<message_kind<X>>,
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
        using next = std::conditional_t<has<kind>, device_group, device_group<Comm, Mode, Kinds..., kind>>;
        next g(comm(), std::move(all_));
        g.unmade_ = std::move(unmade_);
        f(g);
        return g;
    }
    template <detail::verb V, bool IsInPlace, class In, class Out, class Op>
    void add(In& in, Out& out, const Op& op, int root = 0) {
        require_on_device<In>();
        require_on_device<Out>();
        require_output<Out, In>();
        if constexpr (buffer_t<Out>::is_output && DeviceBuffer<In> && DeviceBuffer<Out>) { // else refused
            constexpr bool is_mixed = has<typename kind_of<V, In, Out, Op>::type>;
            all_.collectives.push_back([a = buffer(in), b = buffer(out), op, root](Comm& c, device_call_options o,
                                                                                   detail::kernel_batch& batch) {
                o.root = root; // read by rooted verbs only
                detail::with_device_calls<detail::blocking_mode>(
                    c, [&]<class Runtime>(detail::device_calls<Runtime>, auto&) {
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
        all_.messages.push_back(message(buffer(x), peer, Outgoing));
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
        return {peer,
                outgoing,
                reinterpret_cast<std::uintptr_t>(v.data()),
                v.size() * sizeof(T),
                detail::part_kind(type_hash<T>()),
                detail::piece_multiple_v<T>};
    }
    device_group(Comm& c, detail::device_group_list<Comm>&& all) : device_group(c) { all_ = std::move(all); }

    std::conditional_t<is_bound, Comm, communicator*> comm_;
    detail::device_group_list<Comm> all_;
    detail::unmade_calls unmade_;
};
device_group(communicator&)->device_group<communicator>;
template <class... P>
device_group(const bound_communicator<P...>&) -> device_group<bound_communicator<P...>>;

namespace persistent {
// A device_group whose calls are made ready together: launch() returns a persistent_call. Where kernels reach every
// peer, the calls are checked and their kernels prepared there, once; each start launches these kernels. On other ways
// a start makes the calls. Options: those of launch(), for all starts.
//   auto step = collx::persistent::device_group(world).all_reduce(norm).broadcast(seed, 0).launch({.stream = stream});
//   for (...) step();
template <class Comm>
class device_group : public collx::device_group<Comm, detail::persistent_mode> {
public:
    using collx::device_group<Comm, detail::persistent_mode>::device_group;
};
device_group(communicator&)->device_group<communicator>;
template <class... P>
device_group(const bound_communicator<P...>&) -> device_group<bound_communicator<P...>>;
} // namespace persistent

COLLX_END_NAMESPACE
