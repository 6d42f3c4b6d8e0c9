// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The verbs on device memory: what a call needs of kernels, by the two ways there are. Where kernels reach every peer
// the fused executor runs an algorithm's text; else pieces are staged and the same verb runs over the host. Both are
// put into a stream, so a call returns at once and may be captured. Compiled with nvcc, or with the fake runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <collx/algo/direct.hpp>
#include <collx/algo/one_shot.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/comm/all_gather.hpp>
#include <collx/comm/all_reduce.hpp>
#include <collx/comm/all_to_all.hpp>
#include <collx/comm/broadcast.hpp>
#include <collx/comm/device_call.hpp>
#include <collx/comm/gpu_group.hpp>
#include <collx/comm/reduce.hpp>
#include <collx/comm/reduce_scatter.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// How many elements, and how a rank's buffers fall into parts.
struct device_shape {
    std::size_t in = 0, out = 0; // elements of the views
    std::size_t count = 0;       // of one part, or of all where there are no parts
    bool in_parts = false, out_parts = false;
    std::size_t in_at = 0, out_at = 0; // where this rank's only part lies, in place
    bool in_packed = false, out_packed = false;
};

template <collective C>
device_shape device_shape_of(communicator_core& c, std::size_t in, std::size_t out, bool is_in_place) {
    const auto n = static_cast<std::size_t>(c.net.size()), me = static_cast<std::size_t>(c.net.rank());
    device_shape s{.in = in, .out = out, .count = in};
    if constexpr (C == collective::all_gather) {
        s.count = is_in_place ? part_of(c, out) : in;
        require_size(c, "output", out, s.count * n);
        s.out_parts = true, s.in_packed = !is_in_place, s.in_at = is_in_place ? me * s.count : 0;
    } else if constexpr (C == collective::reduce_scatter) {
        s.count = part_of(c, in);
        if (!is_in_place) require_size(c, "output", out, s.count);
        s.in_parts = true, s.out_packed = !is_in_place, s.out_at = is_in_place ? me * s.count : 0;
    } else if constexpr (C == collective::all_to_all) {
        s.count = part_of(c, in);
        require_size(c, "output", out, in);
        s.in_parts = s.out_parts = true;
    } else if constexpr (C != collective::reduce) {
        require_size(c, "output", out, in);
    }
    return s;
}

// Hooks are told the element's number in the user's buffer, not in the piece.
template <class Op>
struct shifted_op : op_wrapper<Op> {
    device::staging_range in, out;

    template <class X>
    requires has_pre_v<Op, X>
    constexpr X pre(const X& x, hook_context c) const {
        c.index = in.index(c.index);
        return apply_pre(this->op, x, c);
    }
    template <class X>
    requires has_post_v<Op, X>
    constexpr X post(const X& x, hook_context c) const {
        c.index = out.index(c.index);
        return apply_post(this->op, x, c);
    }
};

template <class... P>
bound_communicator<P...> on_side(const bound_communicator<P...>& c, communicator& side) {
    return c.rebound(side);
}
inline bound_communicator<> on_side(communicator&, communicator& side) { return bound_communicator<>(side); }

template <class Runtime>
struct device_calls {
    using group = gpu_group<Runtime>;

    template <collective C, class Comm, class In, class Out, class Op>
    static void run(Comm& comm, In in, Out out, const Op& op, const device_call_options& o, bool is_in_place) {
        if constexpr (std::is_same_v<Op, no_op>) call<C>(comm, in, out, device::move_only{}, o, is_in_place);
        else call<C>(comm, in, out, op, o, is_in_place);
    }

private:
    template <collective C, class Comm, class In, class Out, class Op>
    static void call(Comm& comm, const In& in, const Out& out, const Op& op, const device_call_options& o,
                     bool is_in_place) {
        using policies = std::remove_cvref_t<decltype(policies_of(comm))>;
        communicator& c = base_of(comm);
        if constexpr (!std::is_same_v<Op, device::move_only>) require_reduce_op<Op, element_of<In>>();
        group& g = group::of(c, runtime_of<policies>::make(policies_of(comm)), o.stream);
        const device::stream_facts stream = g.begin(c, o);
        require_root(c.internals(), o.root);
        const device_shape s = device_shape_of<C>(c.internals(), in.size(), out.size(), is_in_place);
        g.require_memory(in, "input");
        if (C != collective::reduce || o.root == g.rank()) {
            g.require_memory(out, "output");
            if (out.size() < in.size() && C == collective::reduce)
                require_size(c.internals(), "output", out.size(), in.size());
        }
        if (g.is_direct()) direct<C>(g, comm, in, out, op, o, s);
        else by_host<C>(g, comm, in, out, op, o, s, stream.is_capturing);
        g.end(o, stream);
    }
    static std::int64_t timeout_of(communicator& c, const device_call_options& o) {
        return o.timeout.count() > 0 ? o.timeout.count() : c.internals().settings.timeout_ns;
    }

    // ------------------------------------------------------------------------------------------ kernels
    template <collective C, class Comm, class In, class Out, class Op>
    static void direct(group& g, Comm& comm, const In& in, const Out& out, const Op& op, const device_call_options& o,
                       const device_shape& s) {
        using policies = std::remove_cvref_t<decltype(policies_of(comm))>;
        communicator& c = base_of(comm);
        const auto& p = policies_of(comm);
        if (c.internals().settings.checked != 0) compare<C>(c, in, out, op, o, s);
        using wire = std::conditional_t<std::is_same_v<Op, device::move_only>, element_of<Out>, wire_of<policies, Out>>;
        using types = device::call_types<In, Out, Op, wire>;
        const device::fused_options f{o.stream, timeout_of(c, o), 0, static_cast<std::uint32_t>(p.piece_bytes)};
        const auto launch = [&]<class Protocol, class A>(Protocol, A algorithm) {
            if constexpr (requires { algorithm.root; }) algorithm.root = o.root;
            if (device::usage_of(algorithm, g.size()).peers_buffers)
                fail(errc::unsupported, g.rank(), -1, "use it on a collx::gpu_team, or another algorithm",
                     "algorithm %s reads the buffers of other ranks, which are not mapped here", A::name);
            const int chunks = algorithm.chunks(g.size());
            g.team().template run<types, Protocol>(
                algorithm, layout(s.count, chunks, C, s.in_packed), layout(s.count, chunks, C, s.out_packed),
                [&](int) {
                    return device::rank_operands<types>{in, out, op};
                },
                f);
        };
        constexpr device::simple_protocol simple{};
        if constexpr (policies::template has_algorithm<C>) {
            using A = decltype(p.template algorithm<C>());
            if constexpr (A::needs_commutative) require_commutative<Op, element_of<In>>();
            static_assert(!policies::rank_order || !A::needs_commutative,
                          "collx: deterministic keeps operands in rank order, and this algorithm changes it. Bind one "
                          "of the two.");
            launch(simple, p.template algorithm<C>());
        } else if constexpr (C == collective::all_reduce) {
            if (s.count * sizeof(wire) <= short_bytes) launch(device::packet_protocol{}, algo::one_shot_all_reduce{});
            else launch(simple, algo::two_shot_all_reduce{});
        } else if constexpr (C == collective::all_gather) {
            launch(simple, algo::one_shot_all_gather{});
        } else if constexpr (C == collective::reduce_scatter) {
            launch(simple, algo::one_shot_reduce_scatter{});
        } else if constexpr (C == collective::all_to_all) {
            launch(simple, algo::direct_all_to_all{});
        } else if constexpr (C == collective::broadcast) {
            launch(simple, algo::one_shot_broadcast{});
        } else {
            launch(simple, algo::one_shot_reduce{});
        }
    }
    // A first guess, as on a team: nothing has been measured.
    static constexpr std::size_t short_bytes = 64 * 1024;

    static chunk_layout layout(std::size_t count, int chunks, collective what, bool packed) {
        const bool parts =
            what == collective::all_gather || what == collective::reduce_scatter || what == collective::all_to_all;
        const chunk_layout l = parts ? chunk_layout::blocks(count, chunks) : chunk_layout::even(count, chunks, 16);
        return packed ? l.packed() : l;
    }
    template <collective C, class In, class Out, class Op>
    static void compare(communicator& c, const In&, const Out&, const Op&, const device_call_options& o,
                        const device_shape& s) {
        compare_signatures(c.internals(),
                           {.count = s.count,
                            .type_hash = static_cast<std::uint32_t>(type_hash<element_of<Out>>()),
                            .op_hash = static_cast<std::uint32_t>(op_hash<Op>()),
                            .root = o.root,
                            .what = C},
                           timeout_of(c, o));
    }

    // ------------------------------------------------------------------------------------------ by way of the host
    // A buffer is filled while the one before it is on its way. The stream orders the rest: what fills a buffer comes
    // after what took the result of its last use.
    template <collective C, class Comm, class In, class Out, class Op>
    static void by_host(group& g, Comm& comm, const In& in, const Out& out, const Op& op, const device_call_options& o,
                        const device_shape& s, bool is_in_graph) {
        using in_type = element_of<In>;
        using out_type = element_of<Out>;
        const auto n = static_cast<std::size_t>(g.size());
        const std::size_t per_in = (s.in_parts ? n : 1) * sizeof(in_type),
                          per_out = (s.out_parts ? n : 1) * sizeof(out_type), per = per_in > per_out ? per_in : per_out;
        const std::size_t most = g.staging().bytes / per;
        if (most == 0)
            fail(errc::unsupported, g.rank(), -1, "raise device_settings::staging_bytes",
                 "one element of %zu bytes for each rank does not fit a staging buffer", per);
        const std::size_t pieces = (s.count + most - 1) / most;
        const auto range = [&](std::size_t k, bool parts, std::size_t at) {
            device::staging_range r;
            r.count = s.count - k * most < most ? s.count - k * most : most;
            r.at = at + k * most, r.pitch = s.count, r.blocks = parts ? static_cast<unsigned>(n) : 1;
            return r;
        };
        for (std::size_t k = 0; k <= pieces; ++k) {
            if (k < pieces) {
                const auto from = range(k, s.in_parts, s.in_at), to = range(k, s.out_parts, s.out_at);
                stage(g, in, from, order_for<C, in_type, out_type>(comm, op, o, from, to), is_in_graph, o.stream);
            }
            if (k == 0) continue;
            auto to = range(k - 1, s.out_parts, s.out_at);
            if (C == collective::reduce && o.root != g.rank()) to.count = 0; // waits, and takes nothing
            const device::stage_in<Out> take{out,
                                             to,
                                             g.staging_words_on_device(),
                                             g.staging_counts(),
                                             there(g, g.staging().out),
                                             g.staging().bytes,
                                             static_cast<std::uint64_t>(2 * timeout_of(base_of(comm), o)) +
                                                 1'000'000'000};
            g.runtime().launch_lanes(take, g.settings().staging_lanes, o.stream);
        }
    }
    template <class In>
    static void stage(group& g, const In& in, const device::staging_range& from, gpu_proxy::order f, bool is_in_graph,
                      void* stream) {
        const std::uint64_t id = g.proxy().add(std::move(f), is_in_graph);
        try {
            const device::stage_out<In> put{
                in, from, g.staging_words_on_device(), g.staging_counts(), there(g, g.staging().in), g.staging().bytes,
                id};
            g.runtime().launch_lanes(put, g.settings().staging_lanes, stream);
        } catch (const error&) {
            g.proxy().drop(id);
            throw;
        }
        g.proxy().ring();
    }
    // A host address as the device sees it.
    static std::byte* there(group& g, std::byte* p) {
        return reinterpret_cast<std::byte*>(g.staging_words_on_device()) +
               (p - reinterpret_cast<std::byte*>(g.staging().words));
    }

    // What the proxy does with a piece: the same verb, on views of the staging buffers.
    template <collective C, class InType, class OutType, class Comm, class Op>
    static gpu_proxy::order order_for(Comm& comm, const Op& op, const device_call_options& o,
                                      const device::staging_range& from, const device::staging_range& to) {
        using bound = std::remove_cvref_t<decltype(on_side(comm, base_of(comm)))>;
        const call_options with{.timeout = o.timeout, .root = o.root};
        const std::int64_t limit = base_of(comm).internals().settings.timeout_ns;
        return [bound_to = bound(on_side(comm, base_of(comm))), op, with, from, to,
                limit](communicator& side, const std::byte* in_bytes, std::byte* out_bytes) {
            side.internals().settings.timeout_ns = limit;
            auto c = bound_to.rebound(side);
            const contiguous_view<const InType> in(reinterpret_cast<const InType*>(in_bytes), from.size());
            const contiguous_view<OutType> out(reinterpret_cast<OutType*>(out_bytes), to.size());
            if constexpr (C == collective::all_gather) all_gather(c, in, out, with);
            else if constexpr (C == collective::all_to_all) all_to_all(c, in, out, with);
            else if constexpr (C == collective::broadcast) {
                if (side.rank() == with.root) std::memcpy(out_bytes, in_bytes, in.size() * sizeof(InType));
                broadcast(c, out, with);
            } else {
                call_reduction<C>(c, in, out, with_numbers<InType>(op, from, to), with);
            }
        };
    }
    template <collective C, class Comm, class In, class Out, class Op>
    static void call_reduction(Comm& c, const In& in, const Out& out, const Op& op, const call_options& with) {
        if constexpr (C == collective::all_reduce) all_reduce(c, in, out, op, with);
        else if constexpr (C == collective::reduce_scatter) reduce_scatter(c, in, out, op, with);
        else reduce(c, in, out, op, with);
    }
    template <class T, class Op>
    static auto with_numbers(const Op& op, const device::staging_range& in, const device::staging_range& out) {
        if constexpr (has_pre_v<Op, T> || has_post_v<Op, accumulator_t<T>>) return shifted_op<Op>{{op}, in, out};
        else return op;
    }
};

} // namespace detail

// Sets up calls on device memory, on the current device of each rank: exchange memory, mappings, a thread that watches.
// The first call does it too; here settings can be given, and calls captured afterwards. Collective.
// Errors: unsupported without a device; resource; mismatch where settings differ; invalid_argument while capturing.
template <class Comm>
void use_device(Comm&& comm, const device_settings& s = {}, void* stream = nullptr) {
    using policies = std::remove_cvref_t<decltype(detail::policies_of(comm))>;
    using runtime = typename detail::runtime_of<policies>::type;
    detail::gpu_group<runtime>::of(detail::base_of(comm), detail::runtime_of<policies>::make(detail::policies_of(comm)),
                                   stream, &s);
}

// Waits until the stream has done what is in it, and throws what ended a call on device memory: timed_out, aborted,
// peer_failed. Local.
template <class Comm>
void synchronize(Comm&& comm, const device_call_options& o = {}) {
    using policies = std::remove_cvref_t<decltype(detail::policies_of(comm))>;
    using runtime = typename detail::runtime_of<policies>::type;
    auto& c = detail::base_of(comm);
    detail::gpu_group<runtime>::of(c, detail::runtime_of<policies>::make(detail::policies_of(comm)), o.stream)
        .synchronize(c, o.stream);
}

// Which way calls on device memory take, and why not the shorter one: "kernels over nvlink", "staged through the host:
// rank 0 cannot reach rank 3: it is on another host". Collective where nothing has been set up.
template <class Comm>
std::string device_route(Comm&& comm) {
    using policies = std::remove_cvref_t<decltype(detail::policies_of(comm))>;
    using runtime = typename detail::runtime_of<policies>::type;
    return detail::gpu_group<runtime>::of(detail::base_of(comm),
                                          detail::runtime_of<policies>::make(detail::policies_of(comm)), nullptr)
        .route();
}

COLLX_END_NAMESPACE
