// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Collectives on device memory where kernels reach every peer. Selects algorithm and protocol by the rows `device` and
// `switched` of the table of choices (plan/choices.hpp), and cuts the buffers for the fused executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <collx/algo/direct.hpp>
#include <collx/algo/multicast_two_shot.hpp>
#include <collx/algo/one_shot.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/exec/count_table.hpp>
#include <collx/exec/device/call_mix.hpp>
#include <collx/gpu/call.hpp>
#include <collx/plan/algorithm_of.hpp>
#include <collx/plan/choose.hpp>
#include <collx/sched/traits.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// The facts of a call that all ranks compare: verb, root, count, and a hash of all else. Messages have none.
struct call_sign {
    collective what;
    std::size_t count = 0;
    std::uint64_t hash = 0;
    bool is_for_each = false; // each peer has its own count, which the kernel fills in
    bool is_compared = true;

    // For kernels that not all ranks launch. The two ends of each part compare it.
    static constexpr call_sign of_parts() { return {collective::send_recv, 0, 0, true, false}; }
};

// The type of the protocol that a row of the table of choices names.
template <choices::protocol P>
using protocol_of = std::conditional_t<
    P == choices::protocol::packets, device::packet_protocol,
    std::conditional_t<P == choices::protocol::multicast, device::multicast_protocol, device::simple_protocol>>;

struct by_kernel {
    // Runs a collective whose parts have one size.
    template <collective C, class Call, class In, class Out, class Op>
    static void run(const Call& call, const In& in, const Out& out, const Op& op, const device_shape& s) {
        if (call.core().settings.checked != 0) compare<C, Op, element_of<Out>>(call, s.count, 0);
        using wire = wire_for<typename Call::policies, Op, Out>;
        require_wire<wire, element_of<Out>, accumulator_t<element_of<In>>>();
        const auto cuts = [&](int chunks) {
            return device::even_cuts(layout(s.count, chunks, C, s.in_packed), layout(s.count, chunks, C, s.out_packed));
        };
        const bool may_be_short = call.g.team().template fits_packet<wire>();
        const choices::situation of{.bytes = may_be_short ? s.count * sizeof(wire) : choices::any_bytes,
                                    .ranks = call.g.size()};
        using types = device::call_types<In, Out, Op, wire, device::even_cuts, true>;
        const auto start = [&](auto protocol, auto algorithm) {
            launch<types>(protocol, algorithm, call, in, out, op, cuts, {C, s.count, hash_for<Op, Out, wire>()});
        };
        if constexpr (may_switch<typename Call::policies, C, types>) {
            const bool is_started =
                call.g.exchange_of_all() != nullptr && choices::with_choice<choices::switched, C>(of, [&](auto chosen) {
                    if constexpr (chosen.use != choices::none)
                        start(protocol_of<chosen.by>(), algorithm_of<chosen.use, C>());
                    return chosen.use != choices::none;
                });
            if (is_started) return;
        }
        choose<C, Op, element_of<In>>(policies_of(call.comm), of, start);
    }
    // Parts of any sizes, which all ranks know. They are parts of the input if in_whole, else of the output.
    template <collective C, class Call, class In, class Out, class Op>
    static void run_parts(const Call& call, const In& in, const Out& out, const Op& op, const count_table& t,
                          bool in_whole) {
        if (call.core().settings.checked != 0) compare<C, Op, element_of<Out>>(call, 0, t.hash());
        using wire = wire_for<typename Call::policies, Op, Out>;
        require_wire<wire, element_of<Out>, accumulator_t<element_of<In>>>();
        using types = device::call_types<In, Out, Op, wire, device::table_cuts, true>;
        const auto cuts = [&](int) {
            device::table_cuts u;
            for (std::size_t k = 0; k < static_cast<std::size_t>(call.g.size()); ++k) {
                u.sizes[k] = t.sizes()[k];
                (in_whole ? u.in_at : u.out_at)[k] = t.offsets()[k];
            }
            return u;
        };
        const choices::situation of{.bytes = choices::any_bytes, .ranks = call.g.size()};
        choose<C, Op, element_of<In>>(policies_of(call.comm), of, [&](auto protocol, auto algorithm) {
            launch<types>(protocol, algorithm, call, in, out, op, cuts,
                          {C, t.total(), hash_for<Op, Out, wire>() ^ t.hash()});
        });
    }
    template <class Types, class Protocol, class A, class Call, class In, class Out, class Op, class Cuts>
    static void launch(Protocol, A algorithm, const Call& call, const In& in, const Out& out, const Op& op,
                       const Cuts& cuts, const call_sign& sign, std::size_t piece_bytes = 0) {
        const int n = call.g.size();
        sched::set_root(algorithm, call.o.root);
        call.g.team().require_bounds(algorithm);
        refuse_peers_buffers(call, algorithm);
        if (piece_bytes == 0) piece_bytes = policies_of(call.comm).piece_bytes;
        device::fused_options with{call.o.stream, call.timeout_ns(), 0, piece_in_32_bits(piece_bytes)};
        static constexpr std::uint64_t name = hash_bytes(A::name, __builtin_strlen(A::name), 3);
        std::uint64_t hash = sign.hash ^ name ^ piece_bytes;
        if constexpr (requires { algorithm.parameter_bits(); }) hash ^= algorithm.parameter_bits();
        if (sign.is_compared)
            with.words = device::call_words::of(sign.what, call.o.root, hash, sign.count, sign.is_for_each);
        call.put(device::fused_call<Protocol, 1, A, Types>{call.g.team().template prepare<Types, Protocol>(
                     algorithm, cuts(algorithm.chunks(n)),
                     [&](int) {
                         return device::rank_operands<Types>{in, out, op};
                     },
                     with)},
                 with, in, out);
    }

    // A longer piece than slots have room for is cut to their size; 4 GiB must not become 0, which asks for no size.
    static constexpr std::uint32_t piece_in_32_bits(std::size_t bytes) {
        return bytes < UINT32_MAX ? static_cast<std::uint32_t>(bytes) : UINT32_MAX;
    }

    // The kinds of calls that run() may launch.
    template <class Policies, collective C, class In, class Out, class Op>
    static constexpr auto kinds() {
        using types = device::call_types<In, Out, Op, wire_for<Policies, Op, Out>, device::even_cuts, true>;
        if constexpr (Policies::template has_algorithm<C>)
            return only<types, decltype(std::declval<const Policies&>().template algorithm<C>())>();
        else if constexpr (may_switch<Policies, C, types>)
            return kinds_from<choices::device, C, types,
                              decltype(kinds_from<choices::switched, C, types, device::call_kinds<>>())>();
        else return kinds_from<choices::device, C, types, device::call_kinds<>>();
    }
    template <class Types, class A>
    static constexpr auto only() {
        return device::call_kinds<device::fused_call<device::simple_protocol, 1, std::remove_cvref_t<A>, Types>>();
    }

    template <class Call, class A>
    static void refuse_peers_buffers(const Call& call, const A& algorithm) {
        if (device::usage_of(algorithm, call.g.size()).peers_buffers)
            fail(errc::unsupported, call.g.rank(), -1, "use it on a collx::gpu_team, or another algorithm",
                 "algorithm %s reads the buffers of other ranks, which are not mapped here", A::name);
    }

    // For checked calls: compares signatures, because nothing on the device would notice a difference.
    template <collective C, class Op, class T, class Call>
    static void compare(const Call& call, std::size_t count, std::uint64_t counts_hash) {
        compare_signatures(call.core(),
                           {.count = count,
                            .counts_hash = counts_hash,
                            .type_hash = static_cast<std::uint32_t>(type_hash<T>()),
                            .op_hash = static_cast<std::uint32_t>(op_hash<Op>()),
                            .root = call.o.root,
                            .what = verb_of(C)},
                           call.timeout_ns());
    }

private:
    template <class Op, class Out, class Wire>
    static constexpr std::uint64_t hash_for() {
        return type_hash<element_of<Out>>() + 3 * op_hash<Op>() + 5 * type_hash<Wire>();
    }
    template <class Policies, class Op, class Out>
    using wire_for = std::conditional_t<std::is_same_v<Op, device::move_only>, element_of<Out>, wire_of<Policies, Out>>;

    // Calls f(protocol, algorithm) with the algorithm of the policies, else with the choice of the table.
    template <collective C, class Op, class T, class Policies, class F>
    static void choose(const Policies& p, const choices::situation& of, F&& f) {
        if constexpr (Policies::template has_algorithm<C>) {
            using A = decltype(p.template algorithm<C>());
            if constexpr (sched::reorders_v<A>) require_commutative<Op, T>();
            static_assert(!Policies::rank_order || !sched::reorders_v<A>,
                          "collx: deterministic keeps operands in rank order, and this algorithm changes it. Bind one "
                          "of the two.");
            f(device::simple_protocol(), p.template algorithm<C>());
        } else {
            choices::with_choice<choices::device, C>(
                of, [&](auto chosen) { f(protocol_of<chosen.by>(), algorithm_of<chosen.use, C>()); });
        }
    }
    // Whether a switch may make the sums of this call. The switch determines their order.
    template <class Policies, collective C, class Types>
    static constexpr bool may_switch =
        !Policies::template has_algorithm<C> && !Policies::rank_order &&
        choices::next_row(choices::switched, C) < choices::row_count && device::may_multicast_v<Types>;
    // `Kinds`, and the kinds of calls that the rows of venue P name, from `Row` on.
    template <choices::venue P, collective C, class Types, class Kinds, int Row = choices::next_row(P, C)>
    static constexpr auto kinds_from() {
        if constexpr (Row >= choices::row_count) {
            return Kinds();
        } else {
            using call = device::fused_call<protocol_of<choices::rows[Row].by>, 1,
                                            algorithm_of<choices::rows[Row].use, C>, Types>;
            return kinds_from<P, C, Types, decltype(Kinds::with(device::call_kinds<call>())),
                              choices::next_row(P, C, Row + 1)>();
        }
    }

    static chunk_layout layout(std::size_t count, int chunks, collective what, bool packed) {
        const bool parts = what == collective::all_gather || what == collective::reduce_scatter ||
                           what == collective::all_to_all || what == collective::gather || what == collective::scatter;
        const chunk_layout l = parts ? chunk_layout::blocks(count, chunks) : chunk_layout::even(count, chunks, 16);
        return packed ? l.packed() : l;
    }
};

} // namespace detail
COLLX_END_NAMESPACE
