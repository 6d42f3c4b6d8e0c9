// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The verbs on device memory: each call takes one of three ways. Kernels carry it where they reach every peer. Where
// they reach some, kernels work inside domains, and data between domains is staged (two_level.hpp). Else all is staged
// (staged.hpp). exchange.hpp has the calls that only move parts. Compiled with nvcc, or with the fake runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <collx/algo/dissemination.hpp>
#include <collx/comm/gather.hpp>
#include <collx/comm/neighbor.hpp>
#include <collx/comm/scatter.hpp>
#include <collx/gpu/by_kernel.hpp>
#include <collx/gpu/exchange.hpp>
#include <collx/gpu/ready_launch.hpp>
#include <collx/gpu/staged.hpp>
#include <collx/gpu/two_level.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

template <class Runtime>
struct device_group_calls;

template <class Runtime>
struct device_calls {
    template <class Comm>
    using started = device_started<Runtime, Comm>;

    // Rest: whether the call is in place, or the counts of a v-variant.
    template <collective C, class Comm, class In, class Out, class Op, class... Rest>
    static void run(Comm& comm, In in, Out out, const Op& op, const device_call_options& o, const Rest&... rest) {
        make<C>(started<Comm>(comm, o), in, out, op, rest...);
    }
    template <verb V, class Comm, class In, class Out, class S, class SO, class R, class RO>
    static void neighbors(Comm& comm, const collx::neighbors& g, const In& in, const Out& out,
                          const device_call_options& o, const part_counts<S, SO>& send,
                          const part_counts<R, RO>& receive) {
        require_no_root(base_of(comm).internals(), o);
        make_neighbors<V>(started<Comm>(comm, o), g, in, out, send, receive);
    }
    template <class Comm, class Sent, class Received>
    static void message(Comm& comm, const Sent& sent, int to, const Received& received, int from,
                        const device_call_options& o) {
        require_no_root(base_of(comm).internals(), o);
        check_message(base_of(comm), to, from);
        make_message(started<Comm>(comm, o, false), sent, to, received, from);
    }
    template <class Comm>
    static void barrier(Comm& comm, const device_call_options& o) {
        require_no_root(base_of(comm).internals(), o);
        make_barrier(started<Comm>(comm, o));
    }
    static void require_set_up(communicator& c, int peer) {
        if (c.internals().device == nullptr)
            fail(errc::invalid_argument, c.rank(), peer, "call collx::use_device(comm) on all ranks before",
                 "the first call on device memory sets things up on all ranks, and a message is between two");
    }

private:
    template <class R>
    friend struct device_group_calls;
    template <class R>
    friend struct device_recording;

    // ------------------------------------------------------------------------------------------ started calls
    // Started: a call that is made once, one of a group, or one that is recorded to be made again and again.
    template <collective C, class Started, class In, class Out, class Op>
    static void make(const Started& started, const In& in, const Out& out, const Op& op, bool is_in_place) {
        if constexpr (C == collective::gather || C == collective::scatter) equal_parts<C>(started, in, out);
        else if constexpr (std::is_same_v<Op, no_op>) call<C>(started, in, out, device::move_only{}, is_in_place);
        else call<C>(started, in, out, op, is_in_place);
    }
    // all_gather_v, gather_v, scatter_v, reduce_scatter_v.
    template <collective C, class Started, class In, class Out, class Op, class Counts, class Offsets>
    static void make(const Started& call, const In& in, const Out& out, const Op& op,
                     const part_counts<Counts, Offsets>& parts) {
        constexpr verb V = counted_verb_of(C);
        constexpr verb_row row = row_of(V);
        if constexpr (row.reduces()) require_reduce_op<Op, element_of<In>>();
        const int me = call.g.rank(), n = call.g.size();
        count_table& t = call.core().tables.first;
        if (row.counts == counts_known_by::root && me != call.o.root)
            t.assign_one(me, n, row.out == extent::part ? out.size() : in.size());
        else t.assign(me, n, parts.counts, parts.offsets, row.name);
        (void)check_on_device<V>(call, in, out, false, &call.core().tables);
        if constexpr (C == collective::reduce_scatter) reduce_parts(call, in, out, op, t);
        else if constexpr (C == collective::all_gather) gather_to_all(call, in, out, t);
        else rooted<C>(call, in, out);
    }
    // all_to_all_v.
    template <collective C, class Started, class In, class Out, class Op, class S, class SO, class R, class RO>
    static void make(const Started& call, const In& in, const Out& out, const Op&, const part_counts<S, SO>& send,
                     const part_counts<R, RO>& receive) {
        static_assert(C == collective::all_to_all);
        count_tables& t = call.core().tables;
        const int me = call.g.rank(), n = call.g.size();
        t.first.assign(me, n, send.counts, send.offsets, "send");
        t.second.assign(me, n, receive.counts, receive.offsets, "receive");
        (void)check_on_device<verb::all_to_all_v>(call, in, out, false, &t);
        exchange<C>(call, in, out, with_all<Out>());
    }
    // Exchanges parts along the edges of a graph, as an all_to_all_v in which most parts are empty.
    template <verb V, class Started, class In, class Out, class S, class SO, class R, class RO>
    static void make_neighbors(const Started& call, const collx::neighbors& g, const In& in, const Out& out,
                               const part_counts<S, SO>& send, const part_counts<R, RO>& receive) {
        constexpr verb_row row = row_of(V);
        communicator_core& core = call.core();
        count_tables& t = core.tables;
        const int me = call.g.rank();
        const bool has_counts = row.counts != counts_known_by::none;
        if (has_counts && row.in == extent::destinations)
            t.first.assign_neighbors(me, g.destinations.size(), send.counts, send.offsets, "send");
        if (has_counts) t.second.assign_neighbors(me, g.sources.size(), receive.counts, receive.offsets, "receive");
        const graph_edges edges = check_edges(core, row, g,
                                              {.in = {.elems = in.size(), .elem_bytes = sizeof(element_of<In>)},
                                               .out = {.elems = out.size(), .elem_bytes = sizeof(element_of<Out>)},
                                               .tables = has_counts ? &t : nullptr});
        require_no_overlap(core, in, out, SIZE_MAX);
        const std::uint64_t hash = type_hash<element_of<Out>>() + static_cast<std::uint64_t>(V);
        const auto to = edges_by_rank(call, t.first, edges.sent, part_kind(hash), "destination"),
                   from = edges_by_rank(call, t.second, edges.received, part_kind(hash), "source");
        if (t.first.sizes()[me] != t.second.sizes()[me])
            fail(errc::invalid_argument, me, me, "a rank that is its own destination is its own source, too",
                 "the counts of a rank for itself differ: %zu and %zu", t.first.sizes()[me], t.second.sizes()[me]);
        call.g.require_memory(in, "input");
        call.g.require_memory(out, "output");
        exchange<collective::all_to_all>(call, in, out, {part_peers::listed(to), part_peers::listed(from), hash});
    }
    static void check_message(communicator& c, int to, int from) {
        const int me = c.rank();
        require_set_up(c, to != no_peer ? to : from);
        if (to != no_peer) require_peer(c.internals(), to);
        if (from != no_peer) require_peer(c.internals(), from);
        if ((to == me) != (from == me))
            fail(errc::invalid_argument, me, me, "use sendrecv with both ranks this one, or copy it",
                 "a message of a rank to itself alone would wait for ever");
    }
    template <class Started, class Sent, class Received>
    static void make_message(const Started& call, const Sent& sent, int to, const Received& received, int from) {
        communicator_core& core = call.core();
        const int me = call.g.rank(), n = call.g.size();
        require_no_overlap(core, sent, received, SIZE_MAX);
        call.g.require_memory(sent, "input");
        call.g.require_memory(received, "output");
        require_distinct(me, facts_of(received), "output");
        if (to == me && sent.size() != received.size())
            fail(errc::invalid_argument, me, me, "what a rank sends itself it also receives",
                 "a message of a rank to itself has %zu elements, and it receives %zu", sent.size(), received.size());
        one_part(core.tables.first, me, n, to != no_peer ? to : -1, sent.size());
        one_part(core.tables.second, me, n, from != no_peer ? from : -1, received.size());
        const std::uint32_t kind = message_kind<Received>();
        exchange<collective::send_recv>(call, sent, received, {part_peers::one(to, kind), part_peers::one(from, kind)});
    }
    template <class Started>
    static void make_barrier(const Started& call) {
        const device_call_options& o = call.o;
        const typename Started::alone& alone = call; // as in call()
        using empty_view = contiguous_view<char>;
        using types = device::call_types<empty_view, empty_view, device::move_only, char, device::even_cuts, true>;
        if (call.g.is_direct()) {
            by_kernel::launch<types>(device::simple_protocol{}, algo::flag_barrier{}, call, empty_view(), empty_view(),
                                     device::move_only{}, [](int) { return device::even_cuts(); },
                                     {collective::barrier});
        } else if (!two_level::try_barrier(alone)) {
            staged_pieces<Runtime> pieces(call.g, o.stream, call.stream.is_capturing, call.timeout_ns());
            pieces.template put<char>(empty_view(), device::staging_range(),
                                      [t = o.timeout](communicator& side, const std::byte*, std::byte*) {
                                          collx::barrier(side, {.timeout = t});
                                      });
            pieces.take(empty_view(), device::staging_range());
        }
        call.end();
    }

    // The common path of collectives that are not an exchange of parts. Started: a single call, or one of a group.
    template <collective C, class Started, class In, class Out, class Op>
    static void call(const Started& call, const In& in, const Out& out, const Op& op, bool is_in_place) {
        if constexpr (!std::is_same_v<Op, device::move_only>) require_reduce_op<Op, element_of<In>>();
        if constexpr (C == collective::scan || C == collective::exclusive_scan)
            static_assert(
                !has_post_v<Op, accumulator_t<element_of<In>>>,
                "collx: a result of a scan is an operand of the next rank, so that no post hook applies to it");
        auto& g = call.g;
        const device_shape s = device_shape_of(check_on_device<verb_of(C)>(call, in, out, is_in_place), in.size(),
                                               out.size(), is_in_place, g.rank());
        const typename Started::alone& alone = call; // so that staged calls are not compiled for groups again
        if (g.is_direct()) by_kernel::run<C>(call, in, out, op, s);
        else if (!two_level::try_run<C>(alone, in, out, op, s)) staged_call::run<C>(alone, in, out, op, s);
        call.end();
    }

    // ------------------------------------------------------------------------------------------ parts
    static void one_part(count_table& t, int me, int n, int peer, std::size_t count) {
        std::vector<std::size_t> counts(static_cast<std::size_t>(n));
        if (peer >= 0) counts[static_cast<std::size_t>(peer)] = count;
        t.assign(me, n, counts, "message");
    }
    // Returns the kinds of the parts, for part_peers.
    template <class Comm>
    static std::vector<std::uint32_t> edges_by_rank(const started<Comm>& call, count_table& t,
                                                    const growing_array<graph_edge>& edges, std::uint32_t kind,
                                                    const char* which) {
        const auto n = static_cast<std::size_t>(call.g.size());
        std::vector<std::size_t> counts(n), offsets(n), times(n);
        std::vector<std::uint32_t> kinds(n);
        for (const graph_edge& e : edges) {
            const auto k = static_cast<std::size_t>(e.peer);
            if (++times[k] > 1)
                fail(errc::unsupported, call.g.rank(), e.peer, "make two calls, or one on host memory",
                     "rank %d is a %s more than once, and on device memory two ranks have one edge each way", e.peer,
                     which);
            counts[k] = e.count;
            offsets[k] = e.at;
            kinds[k] = kind;
        }
        t.assign(call.g.rank(), call.g.size(), counts, offsets, which);
        return kinds;
    }
    template <collective C, class Started, class In, class Out>
    static void equal_parts(const Started& call, const In& in, const Out& out) {
        using policies = typename Started::policies;
        const call_facts f = check_on_device<verb_of(C)>(call, in, out);
        const int me = call.g.rank(), n = call.g.size();
        if constexpr (policies::template has_algorithm<C>)
            if (call.g.is_direct()) {
                by_kernel::run<C>(call, in, out, device::move_only{},
                                  device_shape_of(f, in.size(), out.size(), false, me));
                return call.end();
            }
        call.core().tables.first.assign(me, n, std::vector<std::size_t>(static_cast<std::size_t>(n), f.cuts.elems),
                                        name_of(C));
        rooted<C, false>(call, in, out);
    }
    // gather and scatter as an exchange. The first table has the root's parts, which the root receives or sends. Each
    // rank, the root too, has one part in the other direction: its own.
    template <collective C, bool Private = true, class Call, class In, class Out>
    static void rooted(const Call& call, const In& in, const Out& out) {
        constexpr bool gathers = C == collective::gather;
        count_tables& t = call.core().tables;
        if (gathers) std::swap(t.first, t.second);
        const int me = call.g.rank(), n = call.g.size(), root = call.o.root;
        one_part(gathers ? t.first : t.second, me, n, root, gathers ? in.size() : out.size());
        if (me != root) one_part(gathers ? t.second : t.first, me, n, -1, 0);
        const std::uint64_t hash = type_hash<element_of<Out>>() + static_cast<std::uint64_t>(root);
        const std::uint32_t kind = part_kind(hash);
        const part_peers mine = part_peers::one(root, kind), whole = me == root ? part_peers::all(kind) : part_peers();
        exchange<C, Private>(call, in, out, {gathers ? mine : whole, gathers ? whole : mine, hash});
    }
    template <class Call, class In, class Out>
    static void gather_to_all(const Call& call, const In& in, const Out& out, const count_table& t) {
        count_tables& tables = call.core().tables;
        const int n = call.g.size();
        if constexpr (Call::policies::template has_algorithm<collective::all_gather>)
            if (call.g.is_direct() && n <= device::max_ranks) {
                by_kernel::run_parts<collective::all_gather>(call, in, out, device::move_only{}, t, false);
                return call.end();
            }
        const std::vector<std::size_t> mine_to_all(static_cast<std::size_t>(n), in.size()),
            same_place(static_cast<std::size_t>(n), 0);
        std::swap(tables.first, tables.second);
        tables.first.assign(call.g.rank(), n, mine_to_all, same_place, "all_gather_v");
        exchange<collective::all_gather, false>(call, in, out, with_all<Out>(tables.second.hash()));
    }
    template <class Call, class In, class Out, class Op>
    static void reduce_parts(const Call& call, const In& in, const Out& out, const Op& op, const count_table& t) {
        if (call.g.is_direct()) by_kernel::run_parts<collective::reduce_scatter>(call, in, out, op, t, true);
        else if (!two_level::try_parts(call, in, out, op, t)) staged_call::reduce_parts(call, in, out, op, t);
        call.end();
    }
    // Private: ranks know only their own counts, so no algorithm may pass parts on through other ranks.
    // parts: see exchange_parts; 0: one for each rank, or one for a message.
    template <collective C, bool Private = true, class Started, class In, class Out>
    static void exchange(const Started& call, const In& in, const Out& out, const exchange_ends& ends,
                         std::size_t parts = 0) {
        using policies = typename Started::policies;
        if (parts == 0) parts = C == collective::send_recv ? 1 : static_cast<std::size_t>(call.g.size());
        [[maybe_unused]] const auto& p = policies_of(call.comm);
        communicator_core& core = call.core();
        if constexpr (Private && policies::template has_algorithm<C>) {
            using A = decltype(p.template algorithm<C>());
            if (!std::is_same_v<A, typename direct_algorithm<C>::type>)
                fail(errc::unsupported, call.g.rank(), -1, "leave the choice of algorithm to the library",
                     "algorithm %s needs counts that all ranks know", A::name);
        }
        const exchange_parts x = exchange_parts::of(C, core.tables, ends, parts);
        if (core.settings.checked != 0)
            compare_parts<C>(call, x, static_cast<std::uint32_t>(type_hash<element_of<Out>>()),
                             sizeof(element_of<Out>));
        device_exchange::run(call, in, out, x);
        call.end();
    }
    // Of a collective in which each rank has a part for each.
    template <class Out>
    static exchange_ends with_all(std::uint64_t hash = 0) {
        hash += type_hash<element_of<Out>>();
        return {part_peers::all(part_kind(hash)), part_peers::all(part_kind(hash)), hash};
    }
    // The kind of a program's messages: its element type, in which it travels.
    template <class View>
    static constexpr std::uint32_t message_kind() {
        return part_kind(type_hash<element_of<View>>());
    }
    // For checked calls. The ends of a message are compared by their ranks' hosts, also where it has no elements, of
    // which kernels would not notice anything. Staged parts are announced anyway.
    template <collective C, class Comm>
    static void compare_parts(const started<Comm>& call, const exchange_parts& x, std::uint32_t type,
                              std::size_t elem_bytes) {
        communicator_core& core = call.core();
        const call_options o{.timeout = duration::from_ns(call.timeout_ns())};
        if constexpr (C == collective::send_recv) {
            if (!call.g.is_direct() && call.g.domains() == nullptr) return;
            std::vector<announced_part> sent, received;
            x.announce(sent, received, call, elem_bytes, 0, [](int) { return true; });
            announce_parts(call.c, sent, received, o.timeout);
        } else {
            compare_signatures(core, {.type_hash = type, .root = call.o.root, .what = verb_of(C)}, o.timeout.count());
            call_facts f{.timeout_ns = o.timeout.count(), .tables = &core.tables};
            compare_counts(call.c, f);
        }
    }
};

// What the calls of a communicator on device memory share; made by the first of them.
template <class Comm>
auto& device_part_of(Comm& comm, void* stream, const device_settings* s = nullptr) {
    using runtime = runtime_of<std::remove_cvref_t<decltype(policies_of(comm))>>;
    return gpu_group<typename runtime::type>::of(base_of(comm), runtime::make(policies_of(comm)), stream, s);
}

} // namespace detail

// Sets up calls on device memory, on the current device of each rank: exchange memory, mappings, the proxy thread. The
// first call does the same; use_device() takes settings, and calls can be captured after it. Collective.
// Errors: unsupported without a device; resource; mismatch where settings differ; invalid_argument while capturing.
template <class Comm>
void use_device(Comm&& comm, const device_settings& s = {}, void* stream = nullptr) {
    (void)detail::device_part_of(comm, stream, &s);
}

// Waits for the stream, and throws the error that ended a call on device memory: timed_out, aborted, peer_failed.
// Local.
template <class Comm>
void synchronize(Comm&& comm, const device_call_options& o = {}) {
    detail::device_part_of(comm, o.stream).synchronize(detail::base_of(comm), o.stream);
}

// Says which way calls on device memory take, and why not a shorter one: "kernels over nvlink", "staged through the
// host: rank 0 cannot reach rank 3: it is on another host". Collective where nothing has been set up.
template <class Comm>
kept_text device_route(Comm&& comm) {
    return detail::device_part_of(comm, nullptr).route();
}

COLLX_END_NAMESPACE
