// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What all verbs share: policies of a bound communicator, the checks of one call, the choice of a schedule, and the
// three ways to run it (blocking, async, try_). A verb only says which views, which chunks and which collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <collx/comm/checks.hpp>
#include <collx/comm/communicator.hpp>
#include <collx/comm/options.hpp>
#include <collx/comm/short_calls.hpp>
#include <collx/comm/signature.hpp>
#include <collx/comm/work.hpp>
#include <collx/core/buffer.hpp>
#include <collx/core/op.hpp>
#include <collx/core/result.hpp>
#include <collx/exec/mover.hpp>
#include <collx/exec/relayed_task.hpp>
#include <collx/plan/instances.hpp>
#include <collx/plan/policy.hpp>
#include <collx/plan/private_counts.hpp>

COLLX_BEGIN_NAMESPACE

// A communicator with policies bound to the calls made through it. Refers to the communicator; cheap to copy.
template <class... Policies>
class bound_communicator {
public:
    bound_communicator(communicator& c, Policies... p) : comm_(&c), policies_(p...) {}
    communicator& base() const { return *comm_; }
    const policy_set<Policies...>& policies() const { return policies_; }
    int rank() const { return comm_->rank(); }
    int size() const { return comm_->size(); }
    // The same policies on another communicator.
    bound_communicator rebound(communicator& c) const {
        bound_communicator b = *this;
        b.comm_ = &c;
        return b;
    }

private:
    communicator* comm_;
    policy_set<Policies...> policies_;
};

template <class... Policies>
auto communicator::with(Policies... p) & {
    return bound_communicator<Policies...>(*this, p...);
}

namespace detail {

inline communicator& base_of(communicator& c) { return c; }
template <class... P>
communicator& base_of(const bound_communicator<P...>& c) {
    return c.base();
}
inline policy_set<> policies_of(communicator&) { return {}; }
template <class... P>
const policy_set<P...>& policies_of(const bound_communicator<P...>& c) {
    return c.policies();
}

template <class X>
concept Communicates = requires(X& x) {
    base_of(x);
};

// How a verb runs: at once, as work, or with errors as values.
struct blocking {};
struct nonblocking {};
struct tried {};

// Element type on the wire: the policy's, else the output's.
template <class Policies, class Out>
using wire_of =
    std::conditional_t<std::is_void_v<typename Policies::wire_type>, element_of<Out>, typename Policies::wire_type>;

template <class R>
R result_of(const counted_ptr<held_operation<R>>&);
// The tables of a v-variant: an outstanding call has its own, blocking ones reuse the communicator's, so that they
// allocate nothing.
template <class Mode>
counted_ptr<held_operation<void>> tables_for() {
    if constexpr (std::is_same_v<Mode, nonblocking>) return make_counted<held_operation<void>>();
    else return nullptr;
}
inline count_tables& tables_of(communicator_core& c, const counted_ptr<held_operation<void>>& held) {
    return held ? held->tables : c.tables;
}

// Everything about one call that is not its data.
struct call_facts {
    int root = 0;
    std::size_t total_elems = 0; // of the whole buffer: what the selector looks at
    std::uint64_t count = 0;     // what ranks must agree on
    std::uint64_t counts_hash = 0;
    std::int64_t timeout_ns = 0;
    bool private_counts = false;    // ranks know their own counts only, so nothing may be derived from them together
    count_tables* tables = nullptr; // of an all_to_all_v: `first` is what goes out
};

// OwnCounts: an all_to_all_v, so that only these calls are compiled with the code for relayed parts.
template <collective C, bool OwnCounts, class In, class Out, class Op, class Policies>
class prepared_call {
public:
    // What is only moved travels as it is: a rank's own part would otherwise keep digits that the others do not
    // receive.
    using wire_type = std::conditional_t<std::is_same_v<Op, no_op>, element_of<Out>, wire_of<Policies, Out>>;
    using mover_type = mover<In, Out, Op, wire_type>;

    // layouts(chunks) gives the pair of input and output layouts once the algorithm and so the number of chunks is
    // known.
    template <class Layouts>
    prepared_call(communicator::core& c, const Policies& p, In in, Out out, Op op, const call_facts& f, int at_port,
                  Layouts&& layouts)
        : core_(c), elements_(mover_type(in, out, op, c.net.size())), tables_(f.tables) {
        constexpr bool windows = In::is_window && Out::is_window && mover_type::plain;
        constexpr bool attaches = Policies::attaches && !mover_type::reduces && mover_type::plain;
        static_assert(!Policies::attaches || attaches, "collx: attach reads whole messages from contiguous memory; "
                                                       "broadcast, all_gather and all_to_all can do that.");
        attached_ = attaches && !windows;
        const bool zero_copy = (windows || attached_) && !f.private_counts &&
                               c.net.size() <= task::max_zero_copy_ranks && c.net.is_one_host();
        if (attached_ && !c.net.is_one_host())
            fail(errc::unsupported, c.net.rank(), -1, "drop the attach policy",
                 "attach reads the memory of peers, and the ranks are on several hosts");
        if (c.settings.checked != 0)
            compare_signatures(c,
                               {.count = f.count,
                                .counts_hash = f.counts_hash,
                                .type_hash = static_cast<std::uint32_t>(type_hash<wire_type>()),
                                .op_hash = static_cast<std::uint32_t>(op_hash<Op>()),
                                .root = f.root,
                                .policy_hash = hash_of(p),
                                .what = C,
                                .zero_copy = zero_copy},
                               f.timeout_ns);
        plan_ = &choose(p, f, at_port, zero_copy);
        if (plan_->zero_copy && !zero_copy)
            fail(errc::invalid_argument, c.net.rank(), -1,
                 "allocate the buffers with collx::shared_allocator on every rank",
                 "a zero-copy algorithm needs all buffers in windows");
        if (attached_ && !plan_->zero_copy && c.net.size() > 1)
            fail(errc::invalid_argument, c.net.rank(), -1, "bind attach alone",
                 "the bound algorithm does not read peers' buffers");
        const auto [li, lo] = layouts(plan_->chunks);
        in_ = li, out_ = lo;
        const std::size_t chunk_bytes = (li.largest() > lo.largest() ? li.largest() : lo.largest()) * sizeof(wire_type);
        is_short_ = mover_type::plain && plan_->is_short_form && !f.private_counts && p.piece_bytes == 0 &&
                    chunk_bytes <= most_short_bytes && chunk_bytes <= plan_->most_bytes;
        if (is_short_) {
            piece_elems_ = chunk_bytes != 0 ? chunk_bytes / sizeof(wire_type) : 1;
            return;
        }
        std::size_t bytes =
            piece_bytes(*plan_, f.private_counts ? SIZE_MAX : chunk_bytes, c.is_oversubscribed(), c.net.is_one_host());
        const std::size_t limit = plan_->most_bytes;
        if (p.piece_bytes != 0 && !plan_->zero_copy) bytes = p.piece_bytes < limit ? p.piece_bytes : limit;
        piece_elems_ = bytes / sizeof(wire_type) != 0 ? bytes / sizeof(wire_type) : 1;
        if (sizeof(wire_type) > limit)
            fail(errc::unsupported, c.net.rank(), -1, "use smaller elements or fewer ranks",
                 "one element of %zu bytes does not fit a slot", sizeof(wire_type));
        if (plan_->tmp_chunks != 0)
            c.schedules.provide_scratch(*plan_, static_cast<std::size_t>(plan_->tmp_chunks) * piece_elems_ *
                                                    sizeof(typename mover_type::acc_type));
    }

    void run(std::int64_t timeout_ns) {
        if constexpr (may_relay)
            if (relays()) {
                relayed_task t(core_.net, *plan_, elements_, in_, out_, piece_elems_, numbers());
                return core_.run(t, timeout_ns);
            }
        if constexpr (mover_type::plain)
            if (is_short_) return detail::run_short(core_, *plan_, as_short_call(), timeout_ns);
        task t(core_.net, *plan_, elements_, in_, out_, piece_elems_, attached_);
        core_.run(t, timeout_ns);
    }
    counted_ptr<operation> start(int queue) {
        if constexpr (may_relay)
            if (relays())
                return start(make_counted<typed_operation<relayed_task, mover_type>>(
                                 core_.net, *plan_, elements_.mover(), in_, out_, piece_elems_, numbers()),
                             queue);
        return start(make_counted<typed_operation<task, mover_type>>(core_.net, *plan_, elements_.mover(), in_, out_,
                                                                     piece_elems_, attached_),
                     queue);
    }

private:
    static constexpr bool may_relay = OwnCounts && C == collective::all_to_all;
    bool relays() const { return tables_ != nullptr && plan_->counts != nullptr; }
    relayed_numbers numbers() const {
        for (bound_schedule* b : {plan_->counts, plan_->expected_counts})
            if (b != nullptr) // one spare, for kernels of memory that is none
                core_.schedules.provide_scratch(*b,
                                                (static_cast<std::size_t>(b->tmp_chunks) + 1) * sizeof(std::size_t));
        tables_->relayed.resize(relayed_numbers::room_for(*plan_));
        const count_table &s = tables_->first, &r = tables_->second;
        const std::size_t bytes = plan_->directly ? piece_bytes(*plan_->directly, SIZE_MAX, false, false) : 0;
        return {s.sizes(), s.offsets(), r.sizes(), r.offsets(), tables_->relayed.data(), bytes / sizeof(wire_type)};
    }
    counted_ptr<operation> start(counted_ptr<operation> t, int queue) {
        core_.start(t, queue);
        return t;
    }
    // Not the types alone: pieces of other sizes, or an algorithm with other parameters, would read what the peers did
    // not write.
    static std::uint32_t hash_of(const Policies& p) {
        std::uint64_t h = type_hash<Policies>() ^ p.piece_bytes * 0x9e37'79b9'7f4a'7c15;
        if constexpr (Policies::template has_algorithm<C>) {
            auto a = p.template algorithm<C>();
            if constexpr (requires { a.root; }) a.root = 0; // the call's own root takes its place
            h ^= parameter_bits(a);
        }
        return static_cast<std::uint32_t>(h ^ h >> 32);
    }
    short_call as_short_call() const requires mover_type::plain {
        short_call s{.in = reinterpret_cast<const std::byte*>(elements_.mover().input().data()),
                     .out = reinterpret_cast<std::byte*>(const_cast<wire_type*>(elements_.mover().output().data())),
                     .in_layout = &in_,
                     .out_layout = &out_,
                     .elem_bytes = sizeof(wire_type),
                     .chunk_elems = piece_elems_,
                     .kind = mover_type::kind,
                     .fits_lines = alignof(wire_type) <= 8};
        if constexpr (mover_type::reduces) {
            s.op = &elements_.mover().op();
            s.sum = [](const void* op, void* to, const void* const* from, int count, std::size_t elems) {
                fold_arrays(*static_cast<const Op*>(op), static_cast<wire_type*>(to), static_cast<wire_type*>(nullptr),
                            reinterpret_cast<const wire_type* const*>(from), count, elems);
            };
        }
        return s;
    }
    bound_schedule& choose(const Policies& p, const call_facts& f, int at_port, bool zero_copy) {
        if constexpr (Policies::template has_algorithm<C>) {
            auto algorithm = p.template algorithm<C>();
            using A = decltype(algorithm);
            if constexpr (mover_type::reduces && sched::reorders_v<A>) require_commutative<Op, element_of<In>>();
            static_assert((C != collective::scan && C != collective::exclusive_scan) ||
                              !has_post_v<Op, typename mover_type::acc_type> || requires { A::signals; },
                          "collx: a scan over channels passes its results on as operands, so the operator may have no "
                          "post hook. Use the default algorithm.");
            static_assert(!Policies::rank_order || !mover_type::reduces || !sched::reorders_v<A>,
                          "collx: deterministic keeps operands in rank order, and this algorithm changes it. Bind one "
                          "of the two.");
            if constexpr (requires { algorithm.root; }) algorithm.root = f.root;
            if constexpr (requires { algorithm.contributors(1); }) // not all ranks have a part in the result
                if (algorithm.fits(core_.net.size()))
                    elements_.mover().set_ranks(algorithm.contributors(core_.net.size()));
            constexpr bool keeps_order = Policies::rank_order || !is_commutative_v<Op, element_of<In>>;
            if constexpr (mover_type::reduces && keeps_order && requires { algorithm.needs_commutative_for(1); })
                if (algorithm.needs_commutative_for(core_.net.size())) {
                    if constexpr (Policies::rank_order)
                        fail(errc::invalid_argument, core_.net.rank(), f.root,
                             "bind another algorithm, or leave the choice to deterministic",
                             "algorithm %s with root %d changes the order of operands, and deterministic keeps it",
                             A::name, f.root);
                    fail(errc::invalid_argument, core_.net.rank(), f.root,
                         "say collx::commutative(op) if it is, or use root 0 or another algorithm",
                         "algorithm %s with root %d changes the order of operands, and the operator is not known to be "
                         "commutative",
                         A::name, f.root);
                }
            if (f.private_counts) {
                if constexpr (allows_private_counts<C, A>)
                    return core_.schedules.bind_for_private_counts(algorithm, at_port);
                fail(errc::unsupported, core_.net.rank(), -1, "leave the choice of algorithm to the library",
                     "algorithm %s needs counts that all ranks know", A::name);
            }
            return core_.schedules.bind(algorithm, at_port);
        } else {
            if constexpr (may_have_private_counts<C>)
                if (f.private_counts)
                    return select_for_private_counts<C>(core_.schedules, {.ranks = core_.net.size(),
                                                                          .root = f.root,
                                                                          .at_port = at_port,
                                                                          .oversubscribed = core_.is_oversubscribed(),
                                                                          .windows = core_.net.is_one_host(),
                                                                          .hosts = core_.net.crowded_hosts()});
            constexpr bool serial = mover_type::reduces && Policies::rank_order,
                           ordered = serial || (mover_type::reduces && !is_commutative_v<Op, element_of<In>>);
            if constexpr ((C == collective::scan || C == collective::exclusive_scan) &&
                          has_post_v<Op, typename mover_type::acc_type>)
                if (!core_.net.is_one_host())
                    fail(
                        errc::unsupported, core_.net.rank(), -1, "apply the hook after the call",
                        "a scan across hosts passes its results on as operands, so the operator may have no post hook");
            return select<C>(core_.schedules, {.bytes = f.total_elems * sizeof(wire_type),
                                               .ranks = core_.net.size(),
                                               .root = f.root,
                                               .at_port = at_port,
                                               .zero_copy = zero_copy && core_.net.size() > 1,
                                               .oversubscribed = core_.is_oversubscribed(),
                                               .windows = core_.net.is_one_host(),
                                               .ordered = ordered,
                                               .serial = serial,
                                               .hosts = core_.net.crowded_hosts()});
        }
    }

    communicator::core& core_;
    typed_elements<mover_type> elements_;
    bound_schedule* plan_;
    chunk_layout in_, out_;
    std::size_t piece_elems_;
    bool attached_ = false, is_short_ = false;
    count_tables* tables_;
};

// Runs a call the way Mode says. `held` is what was moved into an async call.
template <class Mode, collective C, bool OwnCounts = false, class Comm, class In, class Out, class Op, class Layouts,
          class Held = counted_ptr<held_operation<void>>>
auto run_call(Comm& comm, In in, Out out, Op op, call_facts f, Layouts&& layouts, Held held = nullptr) {
    communicator::core& c = base_of(comm).internals();
    using policies = std::remove_cvref_t<decltype(policies_of(comm))>;
    c.begin_collective();
    if constexpr (std::is_same_v<Mode, nonblocking>) {
        const int at_port = port::first_async + static_cast<int>(c.asyncs++ % port::async_ports);
        prepared_call<C, OwnCounts, In, Out, Op, policies> call(c, policies_of(comm), in, out, op, f, at_port, layouts);
        return work<decltype(result_of(held))>(c, call.start(at_port), std::move(held), f.timeout_ns);
    } else {
        prepared_call<C, OwnCounts, In, Out, Op, policies> call(c, policies_of(comm), in, out, op, f, port::blocking,
                                                                layouts);
        call.run(f.timeout_ns);
    }
}

// f makes a whole call. Mode `tried` turns errors into values; those that no other rank knows of end the communicator.
template <class Mode, class Comm, class F>
auto in_mode(Comm& comm, F&& f) {
    if constexpr (std::is_same_v<Mode, tried>) {
        try {
            base_of(comm).internals().or_abandon(f);
            return result<void>();
        } catch (const error& e) {
            return result<void>(e);
        }
    } else {
        return base_of(comm).internals().or_abandon(f);
    }
}

} // namespace detail

COLLX_END_NAMESPACE
