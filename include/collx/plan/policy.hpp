// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a program may fix at compile time about how a collective runs: the algorithm, the type on the wire, the order of
// operands, the size of pieces. A policy is a plain value; comm.with(…) binds any of them, in any order, to the calls
// made through it.
#pragma once

#include <cstddef>
#include <limits>
#include <type_traits>

#include <collx/sched/algorithm.hpp>
#include <collx/sched/collective.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// Elements travel as W, for example bf16 in float sums. Reducing collectives only; all ranks keep the values that the
// wire carried, so results stay equal. Floating-point elements take any floating-point W, integers a W that has all
// their values; a call with others is refused when it is compiled.
template <class W>
struct wire {
    using type = W;
};
// Operands are combined in rank order, one after the other, for any size, number of ranks and machine: the same bits on
// every run.
struct deterministic {};
// The bytes of one chunk that travel at once; 0: the selector decides.
struct piece {
    std::size_t bytes = 0;
};
// Broadcast, all_gather and all_to_all read private memory of their peers directly (cross-memory attach,
// process_vm_readv) instead of staging it in shared memory. One copy instead of two, but through the kernel: slower on
// every machine measured so far, and so not the default. Calls up to 16 KiB are staged, as without.
// Errors: unsupported where the kernel or the container forbids it (collx_info says why).
struct attach {};
// Let the selector choose (the default).
struct automatic {};

namespace detail {
// Whether values of T, which are summed as Acc, pass through W, rounded at most as floating-point numbers are.
template <class W, class T, class Acc = T>
constexpr bool carries() {
    using from = std::numeric_limits<T>;
    using to = std::numeric_limits<W>;
    if constexpr (std::is_same_v<W, T>) return true;
    else if constexpr (!from::is_specialized || !to::is_specialized)
        return std::is_constructible_v<W, Acc> && std::is_constructible_v<Acc, W>;
    else if constexpr (!from::is_integer) return !to::is_integer;
    else return to::digits >= from::digits && (to::is_signed || !from::is_signed);
}
template <class W, class T, class Acc>
constexpr void require_wire() {
    static_assert(
        carries<W, T, Acc>(),
        "collx: wire<W> would destroy these elements: floating-point numbers travel as a floating-point type, "
        "integers as one that has all their values, others as a type that they convert to and from. Make the "
        "call through a communicator without it.");
}

// A type that is meant as an algorithm, complete or not.
template <class A>
concept LooksLikeAlgorithm = requires {
    A::op;
}
|| requires(const A& a) { a.chunks(2); }
|| requires(const A& a, sched::recorder& ex) { a(ex, 0, 2); };
} // namespace detail

// The policies of one call, folded from a list: one of each kind, and one algorithm for each collective. Calls refuse
// algorithms at compile time where none is for their own collective (sets that serve all calls may hold others). wire
// and deterministic have no effect on calls that only move data.
template <class... Policies>
struct policy_set;

template <>
struct policy_set<> {
    using wire_type = void;
    static constexpr bool rank_order = false;
    static constexpr bool attaches = false;
    std::size_t piece_bytes = 0;
    template <collective C>
    static constexpr bool has_algorithm = false;
    static constexpr bool has_algorithms = false, has_piece = false;
    static constexpr bool serves_all_calls = false; // for calls of all kinds, as where a GPU's runtime is bound
};

template <class W, class... Rest>
struct policy_set<wire<W>, Rest...> : policy_set<Rest...> {
    static_assert(std::is_void_v<typename policy_set<Rest...>::wire_type>,
                  "collx: two wire<> policies are bound. Bind one of the two.");
    using wire_type = W;
    constexpr policy_set(wire<W>, Rest... rest) : policy_set<Rest...>{rest...} {}
};
template <class... Rest>
struct policy_set<deterministic, Rest...> : policy_set<Rest...> {
    static constexpr bool rank_order = true;
    constexpr policy_set(deterministic, Rest... rest) : policy_set<Rest...>{rest...} {}
};
template <class... Rest>
struct policy_set<piece, Rest...> : policy_set<Rest...> {
    static_assert(!policy_set<Rest...>::has_piece, "collx: two piece policies are bound. Bind one of the two.");
    static constexpr bool has_piece = true;
    constexpr policy_set(piece p, Rest... rest) : policy_set<Rest...>{rest...} { this->piece_bytes = p.bytes; }
};
template <class... Rest>
struct policy_set<attach, Rest...> : policy_set<Rest...> {
    static constexpr bool attaches = true;
    constexpr policy_set(attach, Rest... rest) : policy_set<Rest...>{rest...} {}
};
template <class... Rest>
struct policy_set<automatic, Rest...> : policy_set<Rest...> {
    constexpr policy_set(automatic, Rest... rest) : policy_set<Rest...>{rest...} {}
};
template <Algorithm A, class... Rest>
struct policy_set<A, Rest...> : policy_set<Rest...> {
    static_assert(!policy_set<Rest...>::template has_algorithm<A::op>,
                  "collx: two algorithms for one collective are bound. Bind one of the two.");
    static constexpr bool has_algorithms = true;
    A bound;
    constexpr policy_set(A a, Rest... rest) : policy_set<Rest...>{rest...}, bound(a) {}
    template <collective C>
    static constexpr bool has_algorithm = C == A::op || policy_set<Rest...>::template has_algorithm<C>;
    template <collective C>
    constexpr auto algorithm() const {
        if constexpr (C == A::op) return bound;
        else return policy_set<Rest...>::template algorithm<C>();
    }
};

// What comm.with() takes: a type that a policy_set can have.
template <class P>
concept Policy = requires {
    sizeof(policy_set<P>);
};

namespace detail {
template <class P>
constexpr void require_policy() {
    if constexpr (LooksLikeAlgorithm<P>) sched::require_traits<P>();
    else
        static_assert(Policy<P>, "collx: with() takes policies: an algorithm, wire<T>{}, deterministic{}, "
                                 "piece{bytes}, attach{}, automatic{}, gpus{runtime}. This is none of them.");
}
} // namespace detail

COLLX_END_NAMESPACE
