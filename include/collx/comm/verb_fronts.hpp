// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The forms in which verbs are called: with one buffer or two, with an operator or without, on host memory, device
// memory or a fused team. Two verbs of one form differ only by their row in the table of verbs. A verb's header names
// its front and documents the verb.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include <collx/comm/device_call.hpp>
#include <collx/comm/rank_buffers.hpp>
#include <collx/comm/refusals.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/scalar.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Copies the first `count` elements to memory of the call. An exchange in place sends from there while parts arrive.
// Requires: in a call of c.
template <class View, class T = element_of<View>>
contiguous_view<const T> copy_of(communicator_core& c, const View& v, std::size_t count,
                                 growing_array<std::byte>& memory) {
    memory.reserve(count * sizeof(T) + alignof(T)); // the elements are written over what is there
    const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
    auto* const to = reinterpret_cast<T*>((at + alignof(T) - 1) / alignof(T) * alignof(T));
    if constexpr (View::is_contiguous) {
        if (count != 0) std::memcpy(static_cast<void*>(to), v.data(), count * sizeof(T));
    } else {
        c.with_user_code([&] {
            for (std::size_t i = 0; i < count; ++i) {
                const T element = v[i];
                std::memcpy(static_cast<void*>(to + i), &element, sizeof(T));
            }
        });
    }
    return {to, count};
}

// Exchanges the counts of an all_to_all_v (all_to_all.hpp).
template <class Comm>
[[gnu::cold]] void compare_counts(Comm& comm, call_facts& f);

// Checks a call. Only all_to_all_v has counts that other ranks give.
template <verb V, class Comm>
[[gnu::always_inline]] inline call_facts checked(Comm& comm, const call_arguments& a) {
    auto& c = base_of(comm).internals();
    call_facts f = check_call(c, row_of(V), a);
    if constexpr (V == verb::all_to_all_v)
        if (c.settings.checked != 0) compare_counts(base_of(comm), f);
    return f;
}
// Checks and runs a call of one buffer, or of two. tables: of a v-variant.
template <class Mode, verb V, class Comm, class X, class Op, class Kept>
auto run_in_place(Comm& comm, const X& x, const Op& op, const call_options& o, const Kept& kept,
                  count_tables* tables = nullptr) {
    const call_facts f = checked<V>(comm, {.out = facts_on_host(x),
                                           .is_in_place = true,
                                           .root = o.root,
                                           .timeout_ns = o.timeout.count(),
                                           .tables = tables});
    if constexpr (row_of(V).place == in_place::copied) {
        auto& c = base_of(comm).internals();
        auto& copied = kept.tables(c).copied;
        const std::size_t count = tables != nullptr ? tables->first.end() : x.size();
        return run_call<Mode, V>(c, policies_of(comm), copy_of(c, x, count, copied), x, op, f, kept,
                                 [&c, x, count, &copied] { copy_of(c, x, count, copied); });
    } else {
        return run_call<Mode, V>(base_of(comm).internals(), policies_of(comm), x, x, op, f, kept);
    }
}
template <class Mode, verb V, class Comm, class In, class Out, class Op, class Kept>
auto run_out_of_place(Comm& comm, const In& in, const Out& out, const Op& op, const call_options& o, const Kept& kept,
                      count_tables* tables = nullptr) {
    const call_facts f = checked<V>(comm, {.in = facts_on_host(in),
                                           .out = facts_on_host(out),
                                           .is_same_type = std::is_same_v<element_of<In>, element_of<Out>>,
                                           .root = o.root,
                                           .timeout_ns = o.timeout.count(),
                                           .tables = tables});
    return run_call<Mode, V>(base_of(comm).internals(), policies_of(comm), in, out, op, f, kept);
}

// Verbs that move elements unchanged, in parts of one length.
template <class Mode, verb V>
struct moving_fn : takes<call_form::movement> {
    using takes<call_form::movement>::operator();
    static constexpr verb_row row = row_of(V);

    template <Communicates Comm, HostBuffer X>
    requires(row.takes_one) auto operator()(Comm&& comm, X&& x, const call_options& o = {}) const {
        require_output<X>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, X, row.place == in_place::copied>(x);
            return run_in_place<Mode, V>(comm, buffer(*kept.out), no_op{}, o, kept);
        });
    }
    template <Communicates Comm, Buffer In, HostBuffer Out>
    requires(row.takes_two) auto operator()(Comm&& comm, In&& in, Out&& out, const call_options& o = {}) const {
        require_output<Out, In>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, In, Out>(in, out);
            return run_out_of_place<Mode, V>(comm, buffer(*kept.in), buffer(*kept.out), no_op{}, o, kept);
        });
    }
    template <Communicates Comm, DeviceBuffer X>
    requires(row.takes_one) auto operator()(Comm&& comm, X&& x, const device_call_options& o = {}) const {
        if constexpr (row.place == in_place::copied) return refuse_device_in_place<X>();
        else return call_on_device<Mode, row.does>(comm, x, x, no_op{}, o, true);
    }
    template <Communicates Comm, Buffer In, DeviceBuffer Out>
    requires(row.takes_two) auto operator()(Comm&& comm, In&& in, Out&& out, const device_call_options& o = {}) const {
        return call_on_device<Mode, row.does>(comm, in, out, no_op{}, o, false);
    }
    // All ranks of a fused team at once.
    template <FusedTeam Team, RankBuffers In, RankBuffers Out>
    requires(std::is_same_v<Mode, blocking_mode> && !row.is_rooted()) void
    operator()(Team&& team, In&& in, Out&& out, const team_options<Team>& o = {}) const {
        team.template on<V>(o, in, out);
    }
    template <FusedTeam Team, RankBuffers In, RankBuffers Out>
    requires(std::is_same_v<Mode, blocking_mode>&& row.is_rooted()) void
    operator()(Team&& team, In&& in, Out&& out, int root, const team_options<Team>& o = {}) const {
        team.template on<V>(o, in, out, root);
    }
};

// The same with a list of the parts' lengths and one of their offsets: all_gather_v, gather_v, scatter_v.
template <class Mode, verb V>
struct moving_v_fn : takes<call_form::counted> {
    using takes<call_form::counted>::operator();
    static constexpr verb_row row = row_of(V);

    template <Communicates Comm, Buffer In, DeviceBuffer Out, CountList Counts = count_list,
              class Offsets = growing_array<std::size_t>>
    auto operator()(Comm&& comm, In&& in, Out&& out, const Counts& counts, const Offsets& offsets = {},
                    const device_call_options& o = {}) const {
        return call_on_device<Mode, row.does>(comm, in, out, no_op{}, o, part_counts(counts, offsets));
    }
    template <Communicates Comm, Buffer In, HostBuffer Out, CountList Counts = count_list,
              class Offsets = growing_array<std::size_t>>
    auto operator()(Comm&& comm, In&& in, Out&& out, const Counts& counts, const Offsets& offsets = {},
                    const call_options& o = {}) const {
        require_output<Out, In>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, In, Out, true>(in, out);
            const auto a = buffer(*kept.in);
            const auto b = buffer(*kept.out);
            auto& c = base_of(comm).internals();
            count_tables& tables = kept.tables(c);
            if (row.counts == counts_known_by::root && c.net.rank() != o.root)
                tables.first.assign_one(c.net.rank(), c.net.size(), row.out == extent::part ? b.size() : a.size());
            else tables.first.assign(c.net.rank(), c.net.size(), counts, offsets, row.name);
            return run_out_of_place<Mode, V>(comm, a, b, no_op{}, o, kept, &tables);
        });
    }
    // Options may take the offsets' place, and then one part follows the other.
    //   collx::gather_v(world, mine, all, counts, {.root = 1});
    template <Communicates Comm, Buffer In, DeviceBuffer Out, CountList Counts = count_list>
    auto operator()(Comm&& comm, In&& in, Out&& out, const Counts& counts, const device_call_options& o) const {
        const growing_array<std::size_t> packed;
        return (*this)(comm, std::forward<In>(in), std::forward<Out>(out), counts, packed, o);
    }
    template <Communicates Comm, Buffer In, HostBuffer Out, CountList Counts = count_list>
    auto operator()(Comm&& comm, In&& in, Out&& out, const Counts& counts, const call_options& o) const {
        const growing_array<std::size_t> packed;
        return (*this)(comm, std::forward<In>(in), std::forward<Out>(out), counts, packed, o);
    }
};

// Verbs that reduce, with an operator, plus by default.
template <class Mode, verb V>
struct reducing_fn : sums_by_default<reducing_fn<Mode, V>> {
    using sums_by_default<reducing_fn<Mode, V>>::operator();
    static constexpr verb_row row = row_of(V);

    template <Communicates Comm, HostBuffer X, OpArgument Op = plus>
    auto operator()(Comm&& comm, X&& x, Op op = {}, const call_options& o = {}) const {
        require_output<X>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, X>(x);
            const auto v = buffer(*kept.out);
            require_reduce_op<Op, element_of<decltype(v)>>();
            return run_in_place<Mode, V>(comm, v, op, o, kept);
        });
    }
    template <Communicates Comm, HostBuffer In, HostBuffer Out, class Op = plus>
    auto operator()(Comm&& comm, In&& in, Out&& out, Op op = {}, const call_options& o = {}) const {
        require_output<Out, In>();
        return in_mode<Mode>(comm, [&] {
            const auto kept = keep<Mode, In, Out>(in, out);
            const auto a = buffer(*kept.in);
            require_reduce_op<Op, element_of<decltype(a)>>();
            return run_out_of_place<Mode, V>(comm, a, buffer(*kept.out), op, o, kept);
        });
    }
    template <Communicates Comm, DeviceBuffer X, OpArgument Op = plus>
    auto operator()(Comm&& comm, X&& x, Op op = {}, const device_call_options& o = {}) const {
        return call_on_device<Mode, row.does>(comm, x, x, op, o, true);
    }
    template <Communicates Comm, Buffer In, DeviceBuffer Out, class Op = plus>
    auto operator()(Comm&& comm, In&& in, Out&& out, Op op = {}, const device_call_options& o = {}) const {
        return call_on_device<Mode, row.does>(comm, in, out, op, o, false);
    }
    // All ranks of a fused team at once.
    template <FusedTeam Team, RankBuffers X, class Op = plus>
    requires(std::is_same_v<Mode, blocking_mode>&& V == verb::all_reduce && !RankBuffers<Op>) void
    operator()(Team&& team, X&& x, const Op& op = {}, const team_options<Team>& o = {}) const {
        team.template on<V>(o, x, x, 0, op);
    }
    template <FusedTeam Team, RankBuffers In, RankBuffers Out, class Op = plus>
    requires(std::is_same_v<Mode, blocking_mode> && !row.is_rooted()) void
    operator()(Team&& team, In&& in, Out&& out, const Op& op = {}, const team_options<Team>& o = {}) const {
        team.template on<V>(o, in, out, 0, op);
    }
    template <FusedTeam Team, RankBuffers In, RankBuffers Out, class Op = plus>
    requires(std::is_same_v<Mode, blocking_mode>&& row.is_rooted()) void
    operator()(Team&& team, In&& in, Out&& out, int root, const Op& op = {}, const team_options<Team>& o = {}) const {
        team.template on<V>(o, in, out, root, op);
    }
};

} // namespace detail
COLLX_END_NAMESPACE

// Defines a verb in all its modes; NAME_fn, a template over the mode, is its front.
#define COLLX_VERB(NAME)                                                \
    inline constexpr detail::NAME##_fn<detail::blocking_mode> NAME{};   \
    namespace async {                                                   \
    inline constexpr detail::NAME##_fn<detail::async_mode> NAME{};      \
    }                                                                   \
    namespace try_ {                                                    \
    inline constexpr detail::NAME##_fn<detail::try_mode> NAME{};        \
    }                                                                   \
    namespace persistent {                                              \
    inline constexpr detail::NAME##_fn<detail::persistent_mode> NAME{}; \
    }
// The same for a verb whose front takes the mode and the verb.
#define COLLX_VERB_BY(NAME, FRONT)             \
    namespace detail {                         \
    template <class Mode>                      \
    using NAME##_fn = FRONT<Mode, verb::NAME>; \
    }                                          \
    COLLX_VERB(NAME)
