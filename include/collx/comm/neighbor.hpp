// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// neighbor_all_gather(_v), neighbor_all_to_all(_v): exchanges along the edges of a graph that the program gives, like
// MPI's neighbourhood collectives: halos of a grid, ghost cells, sparse exchanges. A call is one message for each
// edge, straight between the buffers, with all receives posted before the first send.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <collx/call/neighbor_edges.hpp>
#include <collx/call/signature.hpp>
#include <collx/comm/all_gather.hpp>
#include <collx/comm/all_to_all.hpp>
#include <collx/comm/send_recv.hpp>
#include <collx/job/call_end.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// A view of the elements [at, at + size) of another view.
template <class View>
class part_view {
public:
    using value_type = typename View::value_type;
    static constexpr bool is_contiguous = false, is_output = View::is_output, is_window = false;

    part_view(const View& whole, std::size_t at, std::size_t size) : whole_(whole), at_(at), size_(size) {}
    std::size_t size() const { return size_; }
    decltype(auto) operator[](std::size_t i) const { return whole_[at_ + i]; }

private:
    View whole_;
    std::size_t at_, size_;
};
template <class View>
auto part_of_view(const View& v, const graph_edge& e) {
    if constexpr (View::is_contiguous) return contiguous_view(v.data() + e.at, e.count);
    else return part_view<View>(v, e.at, e.count);
}

// A persistent call. Its messages advance independently.
template <class Kept>
class ready_neighbors final : public ready_parts {
public:
    ready_neighbors(communicator_core& c, const Kept& kept, std::uint64_t fingerprint, std::int64_t timeout_ns)
        : ready_parts(c, fingerprint, timeout_ns), buffers_(kept) {}
    void require_unmoved() const override {
        buffers_.look(
            [&](const char* which, std::size_t then, std::size_t now) { refuse_moved(core_, which, then, now); });
    }

private:
    const watched_buffers<Kept> buffers_;
};

// In checked calls every rank receives the number of its peers' edges to it and their elements, compares, and shows to
// all what it has found. All ranks throw the same. A template, so that only programs with such a call compile it.
template <class Mode, class Comm>
[[gnu::cold]] void compare_edges(Comm& comm, verb v, std::uint64_t type, const graph_edges& edges,
                                 std::int64_t timeout_ns) {
    auto& c = comm.internals();
    const call_end end(timeout_ns);
    const signature call{.type_hash = static_cast<std::uint32_t>(type), .what = v, .kind = call_kind_of<Mode>};
    compare_signatures(c, call, end.left_ns());
    const auto sent = sums_by_peer(c.net.size(), edges.sent), expected = sums_by_peer(c.net.size(), edges.received);
    growing_array<edge_sum> announced(sent.size());
    all_to_all_fn<blocking_mode>{}(comm, view(sent.data(), sent.size()), view(announced.data(), announced.size()),
                                   end.left_of(call_options()));
    const edge_fault mine = first_fault(c.net.rank(), announced, expected);
    growing_array<edge_fault> found(announced.size());
    all_gather_fn<blocking_mode>{}(comm, contiguous_view<const edge_fault>(&mine, 1), view(found.data(), found.size()),
                                   end.left_of(call_options()));
    for (const edge_fault& f : found)
        if (f.from >= 0) refuse_edge(c, f);
}

template <class In, class Out>
constexpr void require_neighbor_buffers() {
    static_assert(std::is_same_v<element_of<buffer_t<In>>, element_of<buffer_t<Out>>>,
                  "collx: both buffers of a neighbourhood collective have elements of one type.");
    require_output<Out, In>();
}

template <class Mode, verb V>
class neighbor_call {
    static constexpr verb_row row = row_of(V);

public:
    template <class Comm, class In, class Out, class Kept>
    static auto run(Comm& comm, const neighbors& g, const In& in, const Out& out, const call_options& o,
                    const Kept& kept, count_tables* tables) {
        using element = element_of<Out>;
        auto& c = base_of(comm).internals();
        c.require_time_limit(o.timeout.count());
        require_no_root(c, o, row.name);
        const graph_edges edges = check_edges(c, row, g,
                                              {.in = facts_on_host(in),
                                               .out = facts_on_host(out),
                                               .is_same_type = true,
                                               .timeout_ns = o.timeout.count(),
                                               .tables = tables});
        require_slot(c, sizeof(element));
        c.begin_collective();
        const call_end end(o.timeout);
        constexpr std::uint64_t fingerprint = kind_hash<element, no_op>() + static_cast<std::uint64_t>(V);
        const call_words words{name_of(V), in.size() * sizeof(element), "", kind_of_comparison<Mode>};
        const auto compared = [&] {
            if (c.settings.checked != 0)
                compare_edges<Mode>(base_of(comm), V, type_hash<element>(), edges, o.timeout.count());
        };
        if constexpr (std::is_same_v<Mode, persistent_mode>) {
            recorded(c.recorder.get(), words, compared);
            (void)c.agree(~fingerprint); // inverted: making and running it are different calls
            auto all = make_sole<ready_neighbors<Kept>>(c, kept, fingerprint, o.timeout.count());
            for (const graph_edge& e : edges.received) add_ready<false>(c, *all, part_of_view(out, e), e.peer, o);
            for (const graph_edge& e : edges.sent) add_ready<true>(c, *all, part_of_view(in, e), e.peer, o);
            return persistent_call(c, std::move(all));
        } else {
            c.messages += edges.received.size() + edges.sent.size();
            auto set = make_counted<message_set>(c);
            recorded<true>(c.recorder.get(), words, [&] {
                compared();
                (void)c.agree(fingerprint);
                for (const graph_edge& e : edges.received)
                    set->add(start_message<false>(c, part_of_view(out, e), algo::recv_message{.peer = e.peer}));
                for (const graph_edge& e : edges.sent)
                    set->add(start_message<true>(c, part_of_view(in, e), algo::send_message{.peer = e.peer}));
            });
            c.start(set, outstanding_calls::no_queue);
            work<decltype(result_of(kept.held))> all(c, set, kept.held, end.left_ns());
            if constexpr (std::is_same_v<Mode, async_mode>) return all;
            else all.wait();
        }
    }

private:
    template <bool Outgoing, class View, class Ready>
    static void add_ready(communicator_core& c, Ready& all, const View& v, int peer, const call_options& o) {
        using algorithm = std::conditional_t<Outgoing, algo::send_message, algo::recv_message>;
        all.parts.add(make_sole<ready_message<Outgoing, View, kept_buffers<>>>(
            c, v, algorithm{.peer = peer}, o.timeout.count(), kept_buffers<>(), Outgoing));
    }
};

// Refuses arguments that are no buffer; collx::buffer says why.
struct neighbor_refusals {
    template <Communicates Comm, class In, class Out, class... Rest>
    requires(!Buffer<In> || !Buffer<Out>) void operator()(Comm&&, const neighbors&, In&&, Out&&, const Rest&...) const {
        refuse_arguments<In, Out>();
    }
    void operator()(refused_call<call_form::graph>, ...) const;
};

template <class Mode, verb V, class Comm, class In, class Out, class S, class SO, class R, class RO>
auto neighbors_on_device(Comm& comm, const neighbors& g, In& in, Out& out, const device_call_options& o,
                         const part_counts<S, SO>& sent, const part_counts<R, RO>& received) {
    require_neighbor_buffers<In, Out>();
    return with_device_calls<Mode>(
        comm, [](auto& calls, auto& c, const auto&... args) { calls.template neighbors<V>(c, args...); }, g, buffer(in),
        buffer(out), o, sent, received);
}

template <class Mode, verb V>
struct neighbor_fn : neighbor_refusals {
    using neighbor_refusals::operator();

    template <Communicates Comm, Buffer In, HostBuffer Out>
    auto operator()(Comm&& comm, const neighbors& g, In&& in, Out&& out, const call_options& o = {}) const {
        require_neighbor_buffers<In, Out>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, In, Out>(in, out);
            return neighbor_call<Mode, V>::run(comm, g, buffer(*kept.in), buffer(*kept.out), o, kept, nullptr);
        });
    }
    template <Communicates Comm, Buffer In, DeviceBuffer Out>
    auto operator()(Comm&& comm, const neighbors& g, In&& in, Out&& out, const device_call_options& o = {}) const {
        return neighbors_on_device<Mode, V>(comm, g, in, out, o, no_counts(), no_counts());
    }

private:
    static part_counts<count_list, count_list> no_counts() {
        static const count_list none;
        return {none, none};
    }
};

template <class Mode>
struct neighbor_all_gather_v_fn : neighbor_refusals {
    using neighbor_refusals::operator();

    template <Communicates Comm, Buffer In, HostBuffer Out, CountList Counts = count_list,
              class Offsets = growing_array<std::size_t>>
    auto operator()(Comm&& comm, const neighbors& g, In&& in, Out&& out, const Counts& counts,
                    const Offsets& offsets = {}, const call_options& o = {}) const {
        require_neighbor_buffers<In, Out>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, In, Out, true>(in, out);
            auto& c = base_of(comm).internals();
            count_tables& t = kept.tables(c);
            t.second.assign_neighbors(c.net.rank(), g.sources.size(), counts, offsets, "receive");
            return neighbor_call<Mode, verb::neighbor_all_gather_v>::run(comm, g, buffer(*kept.in), buffer(*kept.out),
                                                                         o, kept, &t);
        });
    }
    template <Communicates Comm, Buffer In, DeviceBuffer Out, CountList Counts = count_list,
              class Offsets = growing_array<std::size_t>>
    auto operator()(Comm&& comm, const neighbors& g, In&& in, Out&& out, const Counts& counts,
                    const Offsets& offsets = {}, const device_call_options& o = {}) const {
        const count_list none;
        return neighbors_on_device<Mode, verb::neighbor_all_gather_v>(comm, g, in, out, o, part_counts(none, none),
                                                                      part_counts(counts, offsets));
    }
    // Options may take the offsets' place, and then one part follows the other.
    template <Communicates Comm, Buffer In, HostBuffer Out, CountList Counts = count_list>
    auto operator()(Comm&& comm, const neighbors& g, In&& in, Out&& out, const Counts& counts,
                    const call_options& o) const {
        const count_list packed;
        return (*this)(comm, g, std::forward<In>(in), std::forward<Out>(out), counts, packed, o);
    }
    template <Communicates Comm, Buffer In, DeviceBuffer Out, CountList Counts = count_list>
    auto operator()(Comm&& comm, const neighbors& g, In&& in, Out&& out, const Counts& counts,
                    const device_call_options& o) const {
        const count_list packed;
        return (*this)(comm, g, std::forward<In>(in), std::forward<Out>(out), counts, packed, o);
    }
};

template <class Mode>
struct neighbor_all_to_all_v_fn : neighbor_refusals {
    using neighbor_refusals::operator();

    template <Communicates Comm, Buffer In, CountList SendCounts = count_list, HostBuffer Out,
              CountList RecvCounts = count_list>
    auto operator()(Comm&& comm, const neighbors& g, In&& in, const SendCounts& send_counts, Out&& out,
                    const RecvCounts& recv_counts, const call_options& o = {}) const {
        const count_list packed;
        return (*this)(comm, g, std::forward<In>(in), send_counts, packed, std::forward<Out>(out), recv_counts, packed,
                       o);
    }
    template <Communicates Comm, Buffer In, CountList SendCounts = count_list, CountList SendOffsets = count_list,
              HostBuffer Out, CountList RecvCounts = count_list, CountList RecvOffsets = count_list>
    auto operator()(Comm&& comm, const neighbors& g, In&& in, const SendCounts& send_counts,
                    const SendOffsets& send_offsets, Out&& out, const RecvCounts& recv_counts,
                    const RecvOffsets& recv_offsets, const call_options& o = {}) const {
        require_neighbor_buffers<In, Out>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, In, Out, true>(in, out);
            auto& c = base_of(comm).internals();
            count_tables& t = kept.tables(c);
            t.first.assign_neighbors(c.net.rank(), g.destinations.size(), send_counts, send_offsets, "send");
            t.second.assign_neighbors(c.net.rank(), g.sources.size(), recv_counts, recv_offsets, "receive");
            return neighbor_call<Mode, verb::neighbor_all_to_all_v>::run(comm, g, buffer(*kept.in), buffer(*kept.out),
                                                                         o, kept, &t);
        });
    }
    template <Communicates Comm, Buffer In, CountList SendCounts = count_list, DeviceBuffer Out,
              CountList RecvCounts = count_list>
    auto operator()(Comm&& comm, const neighbors& g, In&& in, const SendCounts& send_counts, Out&& out,
                    const RecvCounts& recv_counts, const device_call_options& o = {}) const {
        const count_list packed;
        return neighbors_on_device<Mode, verb::neighbor_all_to_all_v>(
            comm, g, in, out, o, part_counts(send_counts, packed), part_counts(recv_counts, packed));
    }
};

} // namespace detail

// Sends `in` to every destination of the graph and receives a part from every source.
// Shape: `in` has m elements, `out` one part of m for each source, in the order of the list. All ranks of the
//     communicator make the call, also those without neighbours; m is the same on ranks that have an edge.
// Cost: one message and one allocation for each edge; a persistent call allocates only when it is made.
// Order: the messages are in order with the sends and receives between two ranks.
// Errors: as send; invalid_argument for a neighbour that is no rank; mismatch naming the edge (checked) if only one
//     end has it. On device memory: unsupported where two ranks have more than one edge in a direction.
// Example: collx::neighbors ring{{right, left}, {left, right}};
//     collx::neighbor_all_gather(world, ring, mine, theirs);
COLLX_VERB_BY(neighbor_all_gather, neighbor_fn)

// The same with parts of different sizes.
// Shape: counts[i] elements come from source i, to offsets[i] of `out`, by default one part after the other.
// Errors: as neighbor_all_gather.
COLLX_VERB(neighbor_all_gather_v)

// Sends a separate part to every destination of the graph and receives one from every source.
// Shape: `in` has one part of m elements for each destination, `out` one for each source, in the order of the lists.
// Cost, Order, Errors: as neighbor_all_gather.
// Example: collx::neighbor_all_to_all(world, {{right, left}, {left, right}}, border, halo);
COLLX_VERB_BY(neighbor_all_to_all, neighbor_fn)

// The same with parts of different sizes.
// Shape: send_counts[i] elements go to destination i, recv_counts[k] come from source k. Optional offsets say where
//     each part begins; by default one part follows the other.
// Errors: as neighbor_all_gather.
COLLX_VERB(neighbor_all_to_all_v)

COLLX_END_NAMESPACE
