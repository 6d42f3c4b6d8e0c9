// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The entry of the verbs to calls on device memory. Those calls need nvcc, or the fake runtime, and are in
// gpu/calls.hpp: programs of the host alone compile only this file.
#pragma once

#include <type_traits>
#include <utility>

#include <collx/comm/bound_communicator.hpp>
#include <collx/comm/options.hpp>

COLLX_BEGIN_NAMESPACE

// A policy: calls on device memory go through this GpuRuntime: comm.with(gpus{runtime}). In files that include
// gpu/calls.cuh it is CUDA's unless another is bound.
template <class Runtime>
struct gpus {
    // Launches, copies and synchronises: a model of GpuRuntime.
    Runtime runtime;
};
template <class R>
gpus(R) -> gpus<R>;

template <class R, class... Rest>
struct policy_set<gpus<R>, Rest...> : policy_set<Rest...> {
    using runtime_type = R;
    static constexpr bool serves_all_calls = true;
    R runtime;
    constexpr policy_set(gpus<R> g, Rest... rest) : policy_set<Rest...>{rest...}, runtime(g.runtime) {}
};

namespace detail {

// Specialised for void by gpu/calls.cuh. The argument depends on Policies, so that the specialisation is looked for
// where a call is compiled, not here.
template <class Never>
struct default_runtime {
    using type = void;
};
template <class Policies>
struct runtime_of {
    using type = typename default_runtime<std::conditional_t<sizeof(Policies) == 0, int, void>>::type;
    static type make(const Policies&) { return type(); }
};
template <class Policies>
requires requires { typename Policies::runtime_type; }
struct runtime_of<Policies> {
    using type = typename Policies::runtime_type;
    static type make(const Policies& p) { return p.runtime; }
};

template <class Runtime>
struct device_calls; // gpu/calls.hpp

template <class Runtime>
struct device_recording; // gpu/ready_launch.hpp

// The communicator that a persistent call keeps, with its policies, which may belong to a temporary.
template <class Kept>
struct communicator_of_call {
    Kept comm;
};
inline communicator_of_call<communicator&> kept_communicator(communicator& c) { return {c}; }
template <class... P>
communicator_of_call<bound_communicator<P...>> kept_communicator(const bound_communicator<P...>& c) {
    return {c};
}

template <class Comm>
using kept_communicator_t = decltype(kept_communicator(std::declval<Comm&>()));

template <class X>
constexpr void refuse_device_in_place() {
    static_assert(!DeviceBuffer<X>, "collx: on device memory this call is not done in place. Pass two buffers.");
}

// The lists of a v-variant: how many elements each rank's part has, and where it begins.
template <class Counts, class Offsets>
struct part_counts {
    // Declared, because clang 14 does not initialise aggregates in parentheses.
    part_counts(const Counts& c, const Offsets& o) : counts(c), offsets(o) {}
    const Counts& counts;
    const Offsets& offsets;
};

// A persistent call's copy of the lists, which may refer to temporaries.
struct kept_part_counts {
    count_list counts, offsets;
    template <class Counts, class Offsets>
    explicit kept_part_counts(const part_counts<Counts, Offsets>& p)
        : counts(copied(p.counts)), offsets(copied(p.offsets)) {}
    auto shown() const { return part_counts{counts, offsets}; }

private:
    template <class List>
    static count_list copied(const List& l) {
        count_list c;
        for (std::size_t i = 0; i < static_cast<std::size_t>(l.size()); ++i)
            c.push_back(static_cast<std::size_t>(l.data()[i]));
        return c;
    }
};
template <class T>
struct kept_value {
    T value;
    const T& shown() const { return value; }
};
template <class T>
kept_value<T> kept_argument(const T& x) {
    return {x};
}
template <class Counts, class Offsets>
kept_part_counts kept_argument(const part_counts<Counts, Offsets>& p) {
    return kept_part_counts(p);
}

// Calls f(device_calls of the communicator's runtime, communicator, arguments). Mode repeated: makes a ready launch of
// it, which has copies of the arguments.
template <class Mode, class Comm, class F, class... Args>
auto with_device_calls(Comm& comm, const F& f, const Args&... args) {
    static_assert(!std::is_same_v<Mode, async_mode>,
                  "collx: a call on device memory returns at once and is done when its stream is. Drop async::.");
    using policies = std::remove_cvref_t<decltype(policies_of(comm))>;
    using runtime = typename runtime_of<policies>::type;
    if constexpr (std::is_void_v<runtime>) {
        static_assert(!std::is_void_v<runtime>,
                      "collx: this buffer lies in device memory. Make the call in a .cu file that includes "
                      "<collx/gpu/calls.cuh>, or bind a runtime: comm.with(collx::gpus{runtime}).");
    } else if constexpr (std::is_same_v<Mode, persistent_mode>) {
        return in_mode<Mode>(comm, [&] {
            auto again = [f, c = kept_communicator(comm), ... kept = kept_argument(args)](auto&& calls) mutable {
                f(calls, c.comm, kept.shown()...);
            };
            return persistent_call(base_of(comm).internals(), device_recording<runtime>::make_ready(std::move(again)));
        });
    } else {
        return in_mode<Mode>(comm, [&] {
            device_calls<runtime> calls;
            f(calls, without_list(comm), args...);
        });
    }
}

// Rest: whether the call is in place, or part_counts.
template <class Mode, collective C, class Comm, class In, class Out, class Op, class... Rest>
auto call_on_device(Comm& comm, In& in, Out& out, const Op& op, const device_call_options& o, const Rest&... rest) {
    using in_view = buffer_t<In>;
    static_assert(
        memory_kind_v<in_view> == memory_kind::device || !requires(const in_view& v) { v.pointer(0); },
        "collx: the output lies in device memory and the input in the host's. Copy it, or say "
        "collx::on_device(x) where the type does not tell.");
    require_output<Out, In>();
    return with_device_calls<Mode>(
        comm, [](auto& calls, auto& c, const auto&... args) { calls.template run<C>(c, args...); }, buffer(in),
        buffer(out), op, o, rest...);
}
// One message each way, or only one: then the other peer is no_peer. Both buffers are views.
// Not -1: a program's -1 must still be refused as a rank that does not exist.
inline constexpr int no_peer = -0x7fff'ffff;

template <class Mode, class Comm, class Sent, class Received>
auto message_on_device(Comm& comm, const Sent& sent, int to, const Received& received, int from,
                       const device_call_options& o) {
    static_assert(
        std::is_same_v<element_of<Sent>, element_of<Received>>,
        "collx: both messages of a sendrecv on device memory have elements of one type. Messages of two types "
        "are a send and a recv in a collx::device_group.");
    return with_device_calls<Mode>(
        comm, [](auto& calls, auto& c, const auto&... args) { calls.message(c, args...); }, sent, to, received, from,
        o);
}

} // namespace detail

COLLX_END_NAMESPACE
