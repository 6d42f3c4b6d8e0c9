// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx::by_value: collectives that return their result and find out sizes themselves. They never write into an
// argument. A tensor comes back as a std::vector of its elements (a std::string as one), a single value as a value.
// Where ranks may contribute different numbers of elements, a short exchange of counts comes first.
//
//   double total = collx::by_value::all_reduce(world, 0.5);
//   std::vector<float> all = collx::by_value::all_gather(world, mine);   // `mine` may differ in size
//
// In loops prefer the verbs that write into existing buffers: these calls allocate.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <collx/comm/all_gather.hpp>
#include <collx/comm/all_reduce.hpp>
#include <collx/comm/all_to_all.hpp>
#include <collx/comm/broadcast.hpp>
#include <collx/comm/gather.hpp>
#include <collx/comm/reduce.hpp>
#include <collx/comm/reduce_scatter.hpp>
#include <collx/comm/scan.hpp>
#include <collx/comm/scatter.hpp>
#include <collx/comm/send_recv.hpp>
#include <collx/job/call_end.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Calls that take a tensor return `auto`: a compiler may look at the return type before the constraints.

// A single element, which is no buffer.
template <class X>
concept SingleValue =
    !Buffer<X> && Element<std::remove_cvref_t<X>> && (how_seen_v<std::remove_reference_t<X>> == seen_as::single);

template <class X>
using value_list_t = std::conditional_t<std::is_same_v<std::remove_cvref_t<X>, std::string>, std::string,
                                        std::vector<typename buffer_t<X>::value_type>>;

// An element that calls overwrite: T(), or bytes of zero if T has no default constructor.
template <class T>
T blank_element() {
    if constexpr (std::is_default_constructible_v<T>) {
        return T();
    } else {
        alignas(T) const std::byte zeros[sizeof(T)]{};
        return *reinterpret_cast<const T*>(zeros);
    }
}
template <class List>
List list_of(std::size_t n) {
    return List(n, blank_element<typename List::value_type>());
}

// std::vector<bool> is no buffer.
template <class T>
constexpr void require_list_of() {
    static_assert(!std::is_same_v<T, bool>,
                  "collx: the result would be a std::vector<bool>, whose elements are bits. Use char or std::uint8_t.");
}

template <class Comm>
std::vector<std::size_t> counts_of_all(Comm& comm, std::size_t mine, const call_options& o) {
    std::vector<std::size_t> counts(static_cast<std::size_t>(comm.size()));
    all_gather_fn<blocking_mode>{}(base_of(comm), contiguous_view<const std::size_t>(&mine, 1), counts,
                                   {.timeout = o.timeout});
    return counts;
}
inline std::size_t sum_of(const std::vector<std::size_t>& counts) {
    std::size_t sum = 0;
    for (const std::size_t c : counts) sum += c;
    return sum;
}

// Verbs that reduce: a result of the input's shape; reduce_scatter: of this rank's part.
template <verb V>
struct reduction_by_value {
    static constexpr bool gives_part = row_of(V).out == extent::part;
    using verb_fn = reducing_fn<blocking_mode, V>;

    template <Communicates Comm, HostBuffer X, OpArgument Op = plus>
    auto operator()(Comm&& comm, const X& x, Op op = {}, const call_options& o = {}) const {
        require_list_of<typename buffer_t<X>::value_type>();
        const auto in = buffer(x);
        auto out = list_of<value_list_t<X>>(gives_part ? part_of(base_of(comm).internals(), in.size(), row_of(V).name)
                                                       : in.size());
        verb_fn{}(comm, in, out, op, o);
        return out;
    }
    template <Communicates Comm, SingleValue T, class Op = plus>
    requires(!gives_part) T operator()(Comm&& comm, const T& x, Op op = {}, const call_options& o = {}) const {
        T out = blank_element<T>();
        verb_fn{}(comm, contiguous_view<const T>(&x, 1), contiguous_view<T>(&out, 1), op, o);
        return out;
    }
    // Options may take the operator's place, and then the operator is the sum.
    template <Communicates Comm, HostBuffer X>
    auto operator()(Comm&& comm, const X& x, const call_options& o) const {
        return (*this)(comm, x, plus{}, o);
    }
    template <Communicates Comm, SingleValue T>
    requires(!gives_part) T operator()(Comm&& comm, const T& x, const call_options& o) const {
        return (*this)(comm, x, plus{}, o);
    }
};

struct broadcast_by_value {
    template <Communicates Comm, HostBuffer X>
    auto operator()(Comm&& comm, const X& x, const call_options& o = {}) const {
        require_list_of<typename buffer_t<X>::value_type>();
        const auto in = buffer(x);
        auto& c = base_of(comm).internals();
        return c.or_abandon([&] {
            const call_end end(o.timeout);
            if (comm.rank() == o.root)
                require_memory(c, in, {"input", name_of(verb::broadcast)}); // before sizes are exchanged
            std::size_t size = in.size();
            broadcast_fn<blocking_mode>{}(base_of(comm), contiguous_view<std::size_t>(&size, 1), o);
            auto out = list_of<value_list_t<X>>(size);
            if (comm.rank() == o.root)
                c.with_user_code([&] {
                    for (std::size_t i = 0; i < size; ++i) out[i] = in[i];
                });
            broadcast_fn<blocking_mode>{}(comm, out, end.left_of(o));
            return out;
        });
    }
    template <Communicates Comm, SingleValue T>
    T operator()(Comm&& comm, T x, const call_options& o = {}) const {
        broadcast_fn<blocking_mode>{}(comm, contiguous_view<T>(&x, 1), o);
        return x;
    }
};

// all_gather; gather: a result at the root alone.
template <verb V>
struct gathering_by_value {
    static constexpr verb_row row = row_of(V);

    template <Communicates Comm, HostBuffer X>
    auto operator()(Comm&& comm, const X& x, const call_options& o = {}) const {
        require_list_of<typename buffer_t<X>::value_type>();
        const auto in = buffer(x);
        auto& c = base_of(comm).internals();
        if constexpr (row.is_rooted()) require_root(c, o.root, row.name); // before counts are exchanged
        else if (o.root != 0) refuse_needless_root(c, o.root, row.name);
        return c.or_abandon([&] {
            const call_end end(o.timeout);
            require_memory(c, in, {"input", row.name});
            const auto counts = counts_of_all(comm, in.size(), o);
            auto out = list_of<value_list_t<X>>(has_output(row, comm.rank(), o.root) ? sum_of(counts) : 0);
            moving_v_fn<blocking_mode, counted_verb_of(row.does)>{}(comm, in, out, counts, growing_array<std::size_t>(),
                                                                    end.left_of(o));
            return out;
        });
    }
    template <Communicates Comm, SingleValue T>
    std::vector<T> operator()(Comm&& comm, const T& x, const call_options& o = {}) const {
        require_list_of<T>();
        const int parts = has_output(row, comm.rank(), o.root) ? comm.size() : 0;
        auto out = list_of<std::vector<T>>(static_cast<std::size_t>(parts));
        moving_fn<blocking_mode, V>{}(comm, contiguous_view<const T>(&x, 1), out, o);
        return out;
    }
};

// parts[r] of each rank goes to rank r. scatter reads only the root's list.
template <class Lists>
using part_of_lists = std::remove_cvref_t<decltype(*std::declval<const Lists&>().begin())>;

// The elements of all parts, one part after the other, and the length of each part.
template <class Lists>
using flat_lists =
    std::pair<std::vector<typename value_list_t<part_of_lists<Lists>>::value_type>, std::vector<std::size_t>>;
// Requires: in a call of c. Errors: invalid_argument for a part without memory, before anything is sent.
template <class Lists>
flat_lists<Lists> flatten(communicator_core& c, verb v, const Lists& parts) {
    flat_lists<Lists> flat;
    buffer_facts refused; // the error is not the program's: it must not end the communicator
    c.with_user_code([&] {
        for (const auto& part : parts) {
            const auto from = buffer(part);
            if (const buffer_facts b = facts_on_host(from); !has_elements(b) || b.is_on_device) {
                refused = b;
                return;
            }
            flat.second.push_back(from.size());
            for (std::size_t i = 0; i < from.size(); ++i) flat.first.push_back(from[i]);
        }
    });
    require_memory(c, refused, {"input", name_of(v)});
    return flat;
}

struct all_to_all_by_value {
    template <Communicates Comm, class Lists>
    requires Buffer<part_of_lists<Lists>>
    auto operator()(Comm&& comm, const Lists& parts, const call_options& o = {}) const {
        using list = value_list_t<part_of_lists<Lists>>;
        auto& c = base_of(comm).internals();
        require_no_root(c, o, name_of(verb::all_to_all)); // before counts are exchanged
        return c.or_abandon([&] {
            if (parts.size() != static_cast<std::size_t>(comm.size()))
                fail(errc::invalid_argument, comm.rank(), -1, "give one part for each rank",
                     "all_to_all: %zu parts for %d ranks", parts.size(), comm.size());
            const auto [in, send_counts] = flatten(c, verb::all_to_all, parts);
            std::vector<std::size_t> recv_counts(parts.size());
            const call_end end(o.timeout);
            all_to_all_fn<blocking_mode>{}(base_of(comm), send_counts, recv_counts, {.timeout = o.timeout});
            auto out = list_of<std::vector<typename list::value_type>>(sum_of(recv_counts));
            all_to_all_v_fn<blocking_mode>{}(comm, in, send_counts, out, recv_counts, end.left_of(o));
            std::vector<list> arrived;
            auto at = out.begin();
            for (const std::size_t count : recv_counts) {
                const auto first = at;
                at += static_cast<std::ptrdiff_t>(count);
                arrived.emplace_back(first, at);
            }
            return arrived;
        });
    }
};

struct scatter_by_value {
    template <Communicates Comm, class Lists>
    requires Buffer<part_of_lists<Lists>>
    auto operator()(Comm&& comm, const Lists& parts, const call_options& o = {}) const {
        using list = value_list_t<part_of_lists<Lists>>;
        auto& c = base_of(comm).internals();
        require_root(c, o.root, row_of(verb::scatter).name);
        return c.or_abandon([&] {
            const auto [in, counts] = comm.rank() == o.root ? flatten(c, verb::scatter, parts) : flat_lists<Lists>();
            const call_end end(o.timeout);
            // A list that is too long or too short must not leave other ranks waiting, so all ranks learn its length.
            std::size_t lists = counts.size(), mine = 0;
            broadcast_fn<blocking_mode>{}(base_of(comm), contiguous_view<std::size_t>(&lists, 1), o);
            if (lists != static_cast<std::size_t>(comm.size()))
                fail(errc::invalid_argument, comm.rank(), o.root, "give the root one part for each rank",
                     "scatter: the root has %zu parts for %d ranks", lists, comm.size());
            scatter_fn<blocking_mode>{}(base_of(comm), counts, contiguous_view<std::size_t>(&mine, 1), end.left_of(o));
            auto out = list_of<list>(mine);
            scatter_v_fn<blocking_mode>{}(comm, in, out, counts, growing_array<std::size_t>(), end.left_of(o));
            return out;
        });
    }
};

// The number of elements travels ahead of the elements. A single value needs none.
struct send_by_value {
    template <Communicates Comm, HostBuffer X>
    void operator()(Comm&& comm, const X& x, int peer, const call_options& o = {}) const {
        const auto in = buffer(x);
        const std::size_t size = in.size();
        const call_end end(o.timeout);
        collx::send(comm, contiguous_view<const std::size_t>(&size, 1), peer, o);
        collx::send(comm, in, peer, end.left_of(o));
    }
    template <Communicates Comm, SingleValue T>
    void operator()(Comm&& comm, const T& x, int peer, const call_options& o = {}) const {
        collx::send(comm, contiguous_view<const T>(&x, 1), peer, o);
    }
};

struct sendrecv_by_value {
    template <Communicates Comm, HostBuffer X>
    auto operator()(Comm&& comm, const X& x, int to, int from, const call_options& o = {}) const {
        require_list_of<typename buffer_t<X>::value_type>();
        const auto in = buffer(x);
        return base_of(comm).internals().or_abandon([&] {
            const std::size_t size = in.size();
            std::size_t other = 0;
            const call_end end(o.timeout);
            collx::sendrecv(comm, contiguous_view<const std::size_t>(&size, 1), to,
                            contiguous_view<std::size_t>(&other, 1), from, o);
            auto out = list_of<value_list_t<X>>(other);
            collx::sendrecv(comm, in, to, out, from, end.left_of(o));
            return out;
        });
    }
    template <Communicates Comm, SingleValue T>
    T operator()(Comm&& comm, const T& x, int to, int from, const call_options& o = {}) const {
        T out = blank_element<T>();
        collx::sendrecv(comm, contiguous_view<const T>(&x, 1), to, contiguous_view<T>(&out, 1), from, o);
        return out;
    }
};

template <class X, class Comm>
X recv_by_value(Comm& comm, int peer, const call_options& o) {
    if constexpr (SingleValue<X>) {
        X out = blank_element<X>();
        collx::recv(comm, contiguous_view<X>(&out, 1), peer, o);
        return out;
    } else {
        static_assert(std::is_same_v<X, value_list_t<X>>,
                      "collx: by_value::recv<T>() returns a std::vector, a std::string or a single element.");
        return base_of(comm).internals().or_abandon([&] {
            std::size_t size = 0;
            const call_end end(o.timeout);
            collx::recv(comm, contiguous_view<std::size_t>(&size, 1), peer, o);
            X out = list_of<X>(size);
            collx::recv(comm, out, peer, end.left_of(o));
            return out;
        });
    }
}

} // namespace detail

// The verbs by value. All block; the options are those of the plain verbs.
//   all_reduce, scan, exclusive_scan (world, x, op)   the input's shape, the same on all ranks; exclusive_scan: T{} on
//                                                     rank 0
//   reduce(world, x, op, {.root})                     the input's shape; only the root's result is defined
//   reduce_scatter(world, x, op)                      this rank's part
//   broadcast(world, x, {.root})                      the root's x, whatever size x has on other ranks
//   all_gather, gather (world, x)                     all ranks' elements in rank order; gather: only at the root
//   all_to_all(world, parts)                          parts[r] goes to rank r; returns the part of each rank, in a list
//   scatter(world, parts, {.root})                    the root's parts[r], on rank r
//   send(world, x, peer)                              for the peer's recv<T>(), where T is a std::vector of x's
//   recv<T>(world, peer)                              elements, a std::string or, for a single value, its type
//   sendrecv(world, x, to, from)                      what `from` has sent, of any size
// Shape: tensors of elements that can be sent; for all_gather and similar verbs of any size on each rank. parts: a
//     list with one tensor for each rank.
// Cost: the verb, an allocation, and, where sizes may differ, an exchange of counts first (one more short call).
//     send, recv and sendrecv of a list are two messages.
// Errors: as the verbs; invalid_argument on all ranks if scatter's root has not exactly one part for each rank.
// Example: for (const std::string& name : collx::by_value::all_to_all(world, names)) use(name);
namespace by_value {
// The verbs by value, each as above.
inline constexpr detail::reduction_by_value<detail::verb::all_reduce> all_reduce{};
inline constexpr detail::reduction_by_value<detail::verb::reduce> reduce{};
inline constexpr detail::reduction_by_value<detail::verb::scan> scan{};
inline constexpr detail::reduction_by_value<detail::verb::exclusive_scan> exclusive_scan{};
inline constexpr detail::reduction_by_value<detail::verb::reduce_scatter> reduce_scatter{};
inline constexpr detail::broadcast_by_value broadcast{};
inline constexpr detail::gathering_by_value<detail::verb::all_gather> all_gather{};
inline constexpr detail::gathering_by_value<detail::verb::gather> gather{};
inline constexpr detail::all_to_all_by_value all_to_all{};
inline constexpr detail::scatter_by_value scatter{};
inline constexpr detail::send_by_value send{};
inline constexpr detail::sendrecv_by_value sendrecv{};
// Returns what the peer gives to by_value::send(): a list of any size, or a single value.
// Example: const auto found = collx::by_value::recv<std::vector<float>>(world, 0);
template <class T, detail::Communicates Comm>
T recv(Comm&& comm, int peer, const call_options& o = {}) {
    return detail::recv_by_value<T>(comm, peer, o);
}
} // namespace by_value

COLLX_END_NAMESPACE
