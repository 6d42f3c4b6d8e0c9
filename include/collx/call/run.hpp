// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs a call that has been checked, blocking, async or persistent: combines its types, policies and collective
// (typed_call), chooses a schedule, makes the task.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <collx/call/checks.hpp>
#include <collx/call/persistent.hpp>
#include <collx/call/prepared_call.hpp>
#include <collx/call/typed_ready_call.hpp>
#include <collx/call/work.hpp>
#include <collx/core/buffer.hpp>
#include <collx/core/op.hpp>
#include <collx/exec/mover.hpp>
#include <collx/plan/instances.hpp>
#include <collx/plan/policy.hpp>
#include <collx/plan/private_counts.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// The element type on the wire: the policy's, else the output's.
template <class Policies, class Out>
using wire_of =
    std::conditional_t<std::is_void_v<typename Policies::wire_type>, element_of<Out>, typename Policies::wire_type>;

template <class R>
R result_of(const counted_ptr<held_operation<R>>&);

// The typed part of a call_request, derived from the policies, the collective and the types of one call.
template <collective C, class In, class Out, class Op, class Policies>
struct typed_call {
    // Elements that are only moved keep their type on the wire: otherwise a rank's own part would keep digits that the
    // other ranks do not receive.
    using wire_type = std::conditional_t<std::is_same_v<Op, no_op>, element_of<Out>, wire_of<Policies, Out>>;
    using mover_type = mover<In, Out, Op, wire_type>;
    static constexpr bool has_post = has_post_v<Op, typename mover_type::acc_type>;
    static constexpr bool is_scan = C == collective::scan || C == collective::exclusive_scan;
    // Whether a result may travel on as an operand: no hook has changed it, and the wire does not round it. If it may
    // not, scans on one host are one_shot, in which each rank reads the operands themselves.
    static constexpr bool accumulates_in_wire_type =
        !has_post && std::is_same_v<wire_type, typename mover_type::acc_type>;
    static constexpr bool serial = mover_type::reduces && Policies::rank_order;
    static constexpr bool ordered = serial || (mover_type::reduces && !is_commutative_v<Op, element_of<In>>);
    static constexpr bool attaches = Policies::attaches && !mover_type::reduces && mover_type::plain;
    static_assert(
        !Policies::has_algorithms || Policies::serves_all_calls || Policies::template has_algorithm<C>,
        "collx: with() binds algorithms here, and none for this collective. Bind one for it, or make the call "
        "through a communicator without.");
    static_assert(!Policies::attaches || attaches, "collx: attach reads whole messages from contiguous memory; "
                                                   "broadcast, all_gather and all_to_all can do that.");

    static call_request request(communicator_core& c, const Policies& p, typed_elements<mover_type>& elements,
                                const call_facts& f, int at_port) {
        require_wire<wire_type, element_of<Out>, typename mover_type::acc_type>();
        const bool checked = c.settings.checked != 0;
        std::uint32_t type_says = static_cast<std::uint32_t>(type_hash<wire_type>());
        std::uint32_t op_says = static_cast<std::uint32_t>(op_hash<Op>());
        if constexpr (requires(const Op& op) { op.chosen(); }) { // an operator chosen at run time: any_op.hpp
            const auto& said = elements.mover().op().chosen();
            type_says = said.type_hash;
            op_says = said.op_hash;
        }
        return {.facts = f,
                .elements = elements,
                .kept_bytes = sizeof(typename mover_type::acc_type),
                .kept_align = alignof(typename mover_type::acc_type),
                .at_port = at_port,
                .in_windows = In::is_window && Out::is_window && mover_type::plain,
                .attaches = attaches,
                .ordered = ordered,
                .serial = serial,
                .is_persistent = false,
                .is_free_to_choose = !Policies::template has_algorithm<C>,
                .piece_bytes = p.piece_bytes,
                .type_hash = type_says,
                .op_hash = op_says,
                .policy_hash = checked ? hash_of(p) : 0,
                .choose = &choose,
                .policies = &p};
    }

private:
    // Covers values, not only types: with another piece size, or other parameters of the algorithm, a rank would read
    // what its peers did not write.
    static std::uint32_t hash_of(const Policies& p) {
        std::uint64_t h = type_hash<Policies>() ^ p.piece_bytes * 0x9e37'79b9'7f4a'7c15;
        if constexpr (Policies::template has_algorithm<C>) {
            auto a = p.template algorithm<C>();
            sched::set_root(a, 0); // the call's own root takes its place
            h ^= parameter_bits(a);
        }
        return static_cast<std::uint32_t>(h ^ h >> 32);
    }
    static bound_schedule& choose(communicator_core& c, const call_request& r, const problem& p) {
        if constexpr (Policies::template has_algorithm<C>) {
            return bind(c, r, static_cast<const Policies*>(r.policies)->template algorithm<C>(), p);
        } else {
            if constexpr (may_have_private_counts<C>)
                if (r.facts.private_counts) return select_for_private_counts<C>(c.schedules, p);
            if constexpr (is_scan && !accumulates_in_wire_type) {
                if (p.windows) return c.schedules.bind(algo::one_shot<C>{}, p.at_port);
                if (has_post) refuse_post_of_scan(c);
            }
            if constexpr (C == collective::reduce && serial && !accumulates_in_wire_type) {
                problem narrow = p;
                narrow.must_round_once = true;
                return select<C>(c.schedules, narrow);
            } else {
                return select<C>(c.schedules, p);
            }
        }
    }
    // Binds the algorithm that the policies name.
    template <class A>
    static bound_schedule& bind(communicator_core& c, const call_request& r, A algorithm, const problem& p) {
        if constexpr (mover_type::reduces && sched::reorders_v<A>) require_commutative<Op, element_of<In>>();
        static_assert(!is_scan || !has_post || sched::signals_v<A> != 0,
                      "collx: a scan over channels passes its results on as operands, so the operator may have no "
                      "post hook. Use the default algorithm.");
        static_assert(!Policies::rank_order || !mover_type::reduces || !sched::reorders_v<A>,
                      "collx: deterministic keeps operands in rank order, and this algorithm changes it. Bind one "
                      "of the two.");
        sched::set_root(algorithm, p.root);
        if constexpr (requires { algorithm.contributors(1); }) // not all ranks contribute to the result
            if (algorithm.fits(p.ranks)) r.elements.set_ranks(algorithm.contributors(p.ranks));
        if constexpr (ordered && requires { algorithm.needs_commutative_for(1); })
            if (algorithm.needs_commutative_for(p.ranks)) {
                if constexpr (Policies::rank_order)
                    fail(errc::invalid_argument, c.net.rank(), p.root,
                         "bind another algorithm, or leave the choice to deterministic",
                         "algorithm %s with root %d changes the order of operands, and deterministic keeps it", A::name,
                         p.root);
                fail(errc::invalid_argument, c.net.rank(), p.root,
                     "say collx::commutative(op) if it is, or use root 0 or another algorithm",
                     "algorithm %s with root %d changes the order of operands, and the operator is not known to be "
                     "commutative",
                     A::name, p.root);
            }
        if (r.facts.private_counts) {
            if constexpr (allows_private_counts<C, A>)
                return proved(c, c.schedules.bind_for_private_counts(algorithm, p.at_port, schedule_cache::inspected),
                              algorithm);
            fail(errc::unsupported, c.net.rank(), -1, "leave the choice of algorithm to the library",
                 "algorithm %s needs counts that all ranks know", A::name);
        }
        return proved(c, c.schedules.bind(algorithm, p.at_port, schedule_cache::inspected), algorithm);
    }
    template <class A>
    static bound_schedule& proved(communicator_core& c, bound_schedule& b, const A& algorithm) {
        if (c.settings.checked != 0) c.schedules.require_proof(b, algorithm);
        return b;
    }
};

// Starts a call as an operation that owns its elements. Across hosts, parts of an all_to_all_v may be relayed; only
// programs that call it compile the code for that.
template <bool MayRelay, class Mover>
counted_ptr<operation> start_prepared(communicator_core& c, const call_request& r, const prepared_call& p,
                                      const Mover& m, int queue) {
    counted_ptr<operation> t;
    const std::uint64_t agreed = c.agree(p.fingerprint);
    if constexpr (MayRelay)
        if (is_relayed(r, p))
            t = make_counted<typed_operation<relayed_task, Mover>>(c.net, *p.plan, m, p.in, p.out, p.piece_elems,
                                                                   agreed, numbers_of_relayed(c, r, p));
    if (!t)
        t = make_counted<typed_operation<task, Mover>>(c.net, *p.plan, m, p.in, p.out, p.piece_elems, agreed,
                                                       p.attached);
    c.start(t, queue);
    return t;
}

struct no_refresh {
    void operator()() const {}
};
// The port of the next async call. All ranks take the same ports, in the order of their calls. So a call that is
// refused on one rank takes none: ++asyncs comes after what may refuse it.
inline int next_async_port(const communicator_core& c) {
    return port::first_async + static_cast<int>(c.asyncs % port::async_ports);
}

// Runs a checked call in the given mode. kept: what an async or persistent call keeps alive. refresh: what a
// persistent call does before each run.
template <class Mode, verb V, class Policies, class In, class Out, class Op, class Kept = kept_buffers<>,
          class Refresh = no_refresh>
auto run_call(communicator_core& c, const Policies& policies, const In& in, const Out& out, const Op& op,
              const call_facts& f, const Kept& kept = Kept(), const Refresh& refresh = {}) {
    constexpr collective C = row_of(V).does;
    constexpr bool may_relay = V == verb::all_to_all_v;
    // The verb has refused any other operator with a static_assert: no errors of the engine should follow that.
    if constexpr (std::is_same_v<Op, no_op> || ReduceOp<Op, element_of<In>>) {
        using call = typed_call<C, In, Out, Op, Policies>;
        c.require_time_limit(f.timeout_ns);
        c.begin_collective();
        using mover_type = typename call::mover_type;
        if constexpr (std::is_same_v<Mode, persistent_mode>) {
            using ready = ready_collective<C, call, may_relay, Policies, Kept, Refresh>;
            auto made = make_sole<ready>(c, policies, mover_type(in, out, op, c.net.size()), f, kept, refresh,
                                         next_async_port(c));
            ++c.asyncs;
            return persistent_call(c, std::move(made));
        } else if constexpr (std::is_same_v<Mode, async_mode>) {
            typed_elements elements(mover_type(in, out, op, c.net.size()));
            const int at_port = next_async_port(c);
            const call_request r = call::request(c, policies, elements, f, at_port);
            const prepared_call p = prepare(c, r);
            ++c.asyncs;
            return work<decltype(result_of(kept.held))>(
                c, start_prepared<may_relay>(c, r, p, elements.mover(), at_port), kept.held, f.timeout_ns);
        } else {
            typed_elements elements(mover_type(in, out, op, c.net.size()));
            const call_request r = call::request(c, policies, elements, f, port::blocking);
            if constexpr (may_relay) {
                run_perhaps_relayed(c, r);
            } else {
                run_blocking(c, r);
            }
        }
    }
}

} // namespace detail

COLLX_END_NAMESPACE
