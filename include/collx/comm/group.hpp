// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// group: many small calls as one exchange. Each rank publishes the operands of all calls together, sees those of all
// other ranks with one synchronisation, and finishes every call from them. The schedule is one_shot's; only the mover
// differs: it carries a list of operands instead of one. Across hosts one all_gather brings the operands of all ranks
// together. Sends and receives leave as one message per peer (grouped_messages.hpp).
//
//   collx::group g(world);
//   for (auto& layer : gradients) g.all_reduce(layer);
//   g.launch();
//   collx::group(world).all_reduce(norm).broadcast(seed, 0).launch();
#pragma once

#include <collx/core/pointers.hpp>

#include <collx/algo/one_shot.hpp>
#include <collx/comm/all_gather.hpp>
#include <collx/comm/group_memory.hpp>
#include <collx/comm/group_verbs.hpp>
#include <collx/comm/grouped_calls.hpp>
#include <collx/comm/neighbor.hpp>
#include <collx/comm/ready_group.hpp>
#include <collx/comm/unmade_calls.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/job/call_end.hpp>

COLLX_BEGIN_NAMESPACE

// Collects calls; launch() runs them all. Every rank adds the same collectives in the same order. Both ranks of a
// transfer add it, to one group each, in the same order. Buffers must stay in place until launch() returns; of a lazy
// view, which is copied, only the memory that it reads. The calls are independent: launch() refuses calls of which one
// writes memory that another one uses, because their order is not defined (invalid_argument, naming both). Strided and
// computed buffers are not compared.
// Cost: for collectives, one synchronisation for up to 1 MiB of operands per rank on one host, across hosts one
//     all_gather for up to 64 KiB per rank (256 KiB of all ranks); larger ones run alone, in order. For sends and
//     receives, one message for everything that goes to one peer, up to a slot (512 KiB or 1 MiB across hosts for few
//     ranks); larger ones go alone in their turn. All are under way at once, so rings and exchanges of groups do not
//     deadlock.
// A group that is destroyed with calls that were not launched reports this on stderr and ends a checked communicator.
// Errors: as all_reduce; mismatch naming the peer whose group has other transfers, types or counts; invalid_argument
//     where the communicator was replaced (world = world.shrink()) since the first call was added.
// Mode: blocking, or persistent: then launch() runs nothing and returns a persistent_call of the whole group.
template <class Mode>
class basic_group : public detail::group_verbs<basic_group<Mode>> {
    using verbs = detail::group_verbs<basic_group<Mode>>;

public:
    explicit basic_group(communicator& c) : comm_(&c) {}
    template <class... Policies>
    explicit basic_group(const bound_communicator<Policies...>&) {
        static_assert(sizeof...(Policies) == 0,
                      "collx: a group takes no policies, because all its calls share one exchange. Make it from the "
                      "communicator, and calls that need a policy by themselves.");
    }

    using verbs::neighbor_all_gather, verbs::neighbor_all_to_all; // overloads for arguments that no form takes
    using verbs::neighbor_all_gather_v, verbs::neighbor_all_to_all_v;
    // Adds the call; each edge becomes a transfer of the group.
    template <Buffer In, Buffer Out>
    void neighbor_all_gather(const neighbors& g, In&& in, Out&& out) {
        add_edges<detail::verb::neighbor_all_gather, In, Out>(g, in, out, nullptr);
    }
    // The same for neighbor_all_to_all.
    template <Buffer In, Buffer Out>
    void neighbor_all_to_all(const neighbors& g, In&& in, Out&& out) {
        add_edges<detail::verb::neighbor_all_to_all, In, Out>(g, in, out, nullptr);
    }
    // counts: how many elements come from each source.
    template <Buffer In, Buffer Out, detail::CountList Counts = detail::count_list>
    void neighbor_all_gather_v(const neighbors& g, In&& in, Out&& out, const Counts& counts) {
        detail::count_tables t;
        t.second.assign_neighbors(comm_->rank(), g.sources.size(), counts, detail::count_list(), "receive");
        add_edges<detail::verb::neighbor_all_gather_v, In, Out>(g, in, out, &t);
    }
    // send_counts: elements for each destination. recv_counts: elements from each source.
    template <Buffer In, detail::CountList SendCounts = detail::count_list, Buffer Out,
              detail::CountList RecvCounts = detail::count_list>
    void neighbor_all_to_all_v(const neighbors& g, In&& in, const SendCounts& send_counts, Out&& out,
                               const RecvCounts& recv_counts) {
        detail::count_tables t;
        t.first.assign_neighbors(comm_->rank(), g.destinations.size(), send_counts, detail::count_list(), "send");
        t.second.assign_neighbors(comm_->rank(), g.sources.size(), recv_counts, detail::count_list(), "receive");
        add_edges<detail::verb::neighbor_all_to_all_v, In, Out>(g, in, out, &t);
    }
    // The number of calls that it holds.
    std::size_t size() const { return held_.calls.size() + held_.transfers.size(); }

    // Runs all calls and returns when they are done; the group is empty afterwards. A persistent group instead returns
    // a persistent_call, which runs all of them each time it is called.
    auto launch(const call_options& options = {}) {
        return comm_->internals().or_abandon([&] {
            if constexpr (detail::is_repeated_v<Mode>) return make_ready(options);
            else return launch_all(options);
        });
    }

private:
    friend verbs;
    struct held {
        detail::group_mover::calls calls;
        detail::packed_message::parts transfers;
        detail::group_watches buffers; // of a persistent group; lazy views of any
    };
    // The group is empty afterwards, also if its calls are refused.
    held take_all() {
        held all = std::exchange(held_, {});
        const detail::group_memory memory = std::exchange(memory_, {});
        unmade_.take(comm_->internals());
        if (memory.may_overlap()) [[unlikely]]
            require_independent(all);
        return all;
    }
    [[gnu::cold]] void require_independent(const held& all) const {
        detail::group_buffers used;
        for (const auto& c : all.calls) c->show_buffers(used);
        for (const auto& t : all.transfers) t->show_buffers(used);
        used.require_independent(comm_->rank());
    }
    template <class Options>
    void launch_all(const Options& o) {
        auto& c = comm_->internals();
        c.require_time_limit(o.timeout.count());
        detail::require_no_root(c, o);
        const detail::call_end end(o.timeout);
        held all = take_all();
        auto& calls = all.calls;
        // Compared before any transfer starts: if ranks differ, this throws and none is under way.
        const std::uint64_t fingerprint = calls.empty() ? 0 : agree_on(calls, o);
        auto under_way = detail::transfer_packer<Mode>(*comm_, o).start(std::move(all.transfers));
        if (!calls.empty()) (void)c.agree(fingerprint);
        const bool is_one_host = c.net.is_one_host();
        for_each_part(calls, [&](std::size_t first, std::size_t last, std::size_t bytes, bool is_alone) {
            const Options left = end.left_of(o);
            if (is_alone) static_cast<detail::grouped_call_in<Mode>&>(*calls[first]).run_alone(*comm_, left);
            else if (is_one_host) exchange(calls, first, last, bytes, left);
            else gather<Mode>(calls, first, last, bytes, left);
        });
        for (auto& w : under_way) detail::handle_access::of(w).wait_at_most(end.left_ns());
    }
    template <class Options, class Mover = detail::group_mover>
    persistent_call make_ready(const Options& o) {
        auto& c = comm_->internals();
        c.require_time_limit(o.timeout.count());
        detail::require_no_root(c, o);
        held mine = take_all();
        auto messages = detail::transfer_packer<Mode>(*comm_, o).start(std::move(mine.transfers));
        const bool has_calls = !mine.calls.empty();
        const std::uint64_t fingerprint = has_calls ? agree_on(mine.calls, o) : 0;
        if (has_calls) (void)c.agree(~fingerprint); // inverted: making and running it are different calls
        auto all = make_sole<detail::ready_group<typename Mover::calls>>(
            c, std::move(mine.calls), std::move(mine.buffers), fingerprint, o.timeout.count());
        for (auto& m : messages) all->parts.add(std::move(m));
        const bool is_one_host = c.net.is_one_host();
        const int at_port = detail::next_async_port(c);
        if (has_calls) ++c.asyncs;
        for_each_part(all->calls, [&](std::size_t first, std::size_t last, std::size_t bytes, bool is_alone) {
            if (is_alone)
                all->parts.add(
                    static_cast<detail::grouped_call_in<Mode>&>(*all->calls[first]).run_alone(*comm_, o).release());
            else if (is_one_host)
                all->parts.add(make_sole<detail::ready_exchange<Mover>>(c, all->calls, first, last, bytes, at_port,
                                                                        o.timeout.count()));
            else
                all->parts.add(make_sole<detail::ready_gather<Mover, detail::all_gather_fn<Mode>>>(
                    *comm_, all->calls, first, last, bytes, o));
        });
        return persistent_call(c, std::move(all));
    }
    // How many bytes of calls go together.
    std::size_t room_together() const {
        const auto& c = comm_->internals();
        return c.net.is_one_host() ? c.schedules.stage_bytes(1, algo::one_shot_all_reduce{}.depth)
                                   : gather_limit(static_cast<std::size_t>(comm_->size()));
    }
    // Refuses a call that launch() would have to refuse when other calls of the group are under way.
    void require_possible(const detail::grouped_call& call, std::size_t elem_bytes) const {
        const auto& c = comm_->internals();
        detail::require_slot(c, elem_bytes);
        if (!c.net.is_one_host() && call.must_go_together() && call.bytes() > room_together())
            detail::refuse_post_of_scan(c);
    }
    // Calls f(first, last, bytes, is alone) for each part of a group: calls that go together, or one that goes alone.
    template <class Calls, class F>
    void for_each_part(const Calls& calls, F&& f) const {
        const bool is_one_host = comm_->internals().net.is_one_host();
        const std::size_t room = room_together();
        for (std::size_t first = 0; first < calls.size();) {
            std::size_t last = first, bytes = 0;
            while (last < calls.size() && bytes + round_up(calls[last]->bytes(), 8) <= room)
                bytes += round_up(calls[last++]->bytes(), 8);
            const bool is_alone =
                last == first || (last == first + 1 && !is_one_host && !calls[first]->must_go_together());
            if (is_alone) last = first + 1;
            f(first, last, bytes, is_alone);
            first = last;
        }
    }
    template <class X>
    void watch(X& x) {
        if constexpr (detail::is_repeated_v<Mode>) held_.buffers.push_back(make_sole<detail::typed_watch<X>>(&x));
    }
    // What the calls of the group read of an input: a lazy view's iterators refer to the view, so the group keeps it.
    template <class In>
    auto& kept(std::remove_reference_t<In>& in) {
        if constexpr (detail::is_lazy_view<In>()) {
            auto view = make_sole<detail::held_view<std::remove_reference_t<In>>>(static_cast<In&&>(in));
            auto& mine = view->view;
            held_.buffers.push_back(std::move(view));
            return mine;
        } else {
            return in;
        }
    }
    template <detail::verb V, bool IsInPlace, class In, class Out, class Op>
    void add(std::remove_reference_t<In>& in, std::remove_reference_t<Out>& out, Op op, int root = 0) {
        require_output<Out, In>();
        detail::require_staying<In, Out>();
        using element = detail::element_of<buffer_t<In>>;
        constexpr bool reduces = !std::is_same_v<Op, no_op>;
        if constexpr (reduces) require_reduce_op<Op, element>();
        if constexpr (buffer_t<Out>::is_output && (!reduces || ReduceOp<Op, element>)) { // else refused above
            const auto a = buffer(kept<In>(in));
            const auto b = buffer(out);
            detail::call_arguments with{.out = detail::facts_on_host(b),
                                        .is_in_place = IsInPlace,
                                        .is_same_type = std::is_same_v<element, detail::element_of<buffer_t<Out>>>,
                                        .root = root};
            if (!IsInPlace) with.in = detail::facts_on_host(a);
            auto& c = comm_->internals();
            const std::size_t count = detail::check_call(c, detail::row_of(V), with).cuts.elems;
            auto call = make_sole<detail::grouped_collective<Mode, V, IsInPlace, buffer_t<In>, buffer_t<Out>, Op>>(
                *comm_, a, b, op, root, count, size() + 1);
            require_possible(*call, sizeof(element));
            held_.calls.push_back(std::move(call));
            if (!IsInPlace) memory_.look(with.in);
            memory_.look(with.out);
            unmade_.add(c, detail::name_of(V));
            watch(in);
            if (!IsInPlace) watch(out);
        }
    }
    template <bool Outgoing, class X>
    void add_message(std::remove_reference_t<X>& x, int peer) {
        if constexpr (!Outgoing) require_output<X>();
        detail::require_staying<X>();
        if constexpr (Outgoing || buffer_t<X>::is_output) {
            add_transfer<Outgoing>(buffer(kept<X>(x)), peer);
            watch(x);
        }
    }
    template <detail::verb, class In, class Out, class Op, class F>
    basic_group chain(F&& f) {
        f(*this);
        return std::move(*this);
    }

    template <detail::verb V, class In, class Out>
    void add_edges(const neighbors& g, In& in, Out& out, detail::count_tables* tables) {
        detail::require_neighbor_buffers<In, Out>();
        detail::require_staying<In, Out>();
        if constexpr (buffer_t<Out>::is_output) {
            const auto a = buffer(kept<In>(in));
            const auto b = buffer(out);
            const auto edges = detail::check_edges(comm_->internals(), detail::row_of(V), g,
                                                   {.in = detail::facts_on_host(a),
                                                    .out = detail::facts_on_host(b),
                                                    .is_same_type = true,
                                                    .tables = tables});
            for (const auto& e : edges.received) add_transfer<false>(detail::part_of_view(b, e), e.peer);
            for (const auto& e : edges.sent) add_transfer<true>(detail::part_of_view(a, e), e.peer);
            watch(in);
            watch(out);
        }
    }
    template <bool Outgoing, class View>
    void add_transfer(View v, int peer) {
        detail::require_peer(comm_->internals(), peer);
        detail::require_memory(comm_->internals(), v, "group's");
        if (!Outgoing) detail::require_distinct(comm_->rank(), detail::facts_of(v), "receive");
        detail::require_slot(comm_->internals(), sizeof(typename View::value_type));
        held_.transfers.push_back(make_sole<detail::typed_transfer<Mode, View, Outgoing>>(*comm_, v, peer));
        held_.transfers.back()->number = size();
        memory_.look(detail::facts_of(v));
        unmade_.add(comm_->internals(), Outgoing ? "send" : "recv");
    }

    template <class Mover = detail::group_mover>
    void exchange(typename Mover::calls& calls, std::size_t first, std::size_t last, std::size_t bytes,
                  const call_options& o) {
        auto& c = comm_->internals();
        auto& plan = c.schedules.bind(algo::one_shot_all_reduce{}, port::blocking);
        const auto l = chunk_layout::even(bytes, 1);
        typed_elements<Mover> elements(Mover(calls, first, last));
        task t(c.net, plan, elements, l, l, bytes, c.agree(bytes));
        detail::recorded(c.recorder.get(), {"group", bytes, plan.name}, [&] { c.run(t, o.timeout.count()); });
    }

    // Compares the group as a whole, which determines how it is cut into parts. Returns what must be the same on all
    // ranks.
    std::uint64_t agree_on(const detail::group_mover::calls& calls, const call_options& o) {
        auto& c = comm_->internals();
        c.begin_collective();
        detail::group_signature all;
        for (const auto& call : calls) call->sign(all);
        all.shown.kind = detail::call_kind_of<Mode>;
        if (c.settings.checked != 0)
            detail::recorded(c.recorder.get(), {"group", 0, "", detail::kind_of_comparison<Mode>},
                             [&] { detail::compare_signatures(c, all.shown, o.timeout.count()); });
        return all.fingerprint;
    }

    // Each rank sends its operands to all ranks. That pays while latency outweighs bandwidth: up to 64 KiB from each
    // rank and 256 KiB from all.
    static std::size_t gather_limit(std::size_t n) {
        constexpr std::size_t of_all = 256 * 1024, most = 64 * 1024;
        return of_all / n < most ? of_all / n / 8 * 8 : most;
    }
    template <class GatherMode>
    void gather(detail::group_mover::calls& calls, std::size_t first, std::size_t last, std::size_t bytes,
                const call_options& o) {
        const auto n = static_cast<std::size_t>(comm_->size()), me = static_cast<std::size_t>(comm_->rank());
        detail::growing_array<std::byte> all(n * bytes);
        detail::group_mover operands(calls, first, last);
        const contiguous_view<std::byte> mine(all.data() + me * bytes, bytes);
        comm_->internals().with_user_code([&] { operands.load(mine.data(), sched::place::in, 0, bytes); });
        detail::all_gather_fn<GatherMode>{}(*comm_, mine, all, call_options{.timeout = o.timeout});
        detail::growing_array<const std::byte*> ranks;
        for (std::size_t r = 0; r < n; ++r) ranks.push_back(all.data() + r * bytes);
        comm_->internals().with_user_code([&] {
            operands.fold_ranks(ranks.data(), comm_->size(), comm_->rank(), sched::place::in, 0, sched::place::out, 0,
                                nullptr, bytes);
        });
    }

    communicator* comm_;
    held held_;
    detail::group_memory memory_;
    detail::unmade_calls unmade_;
};

// Many calls as one exchange: basic_group in its blocking mode.
// Errors: as all_reduce; mismatch naming the peer whose group has other transfers, types or counts.
// Example: collx::group(world).all_reduce(norm).broadcast(seed, 0).launch();
using group = basic_group<detail::blocking_mode>;
namespace persistent {
// The calls of a group, made ready together:
//   collx::persistent::group g(world);
//   for (auto& layer : gradients) g.all_reduce(layer);
//   auto sums = g.launch(); // a persistent_call
using group = basic_group<detail::persistent_mode>;
} // namespace persistent

COLLX_END_NAMESPACE
