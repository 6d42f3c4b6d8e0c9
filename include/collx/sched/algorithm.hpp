// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What an algorithm says of itself. It must name its collective and itself, count its chunks, and be callable over an
// executor; each other trait has a default, and this file is the one place that knows it. Readers ask traits_of(), not
// the members.
#pragma once

#include <concepts>

#include <collx/sched/collective.hpp>
#include <collx/sched/recorder.hpp>

COLLX_BEGIN_NAMESPACE

// An algorithm, of the library or of a program.
template <class A>
concept Algorithm = requires(const A& a, sched::recorder& ex) {
    { A::op } -> std::convertible_to<collective>;
    { A::name } -> std::convertible_to<const char*>;
    { a.chunks(2) } -> std::convertible_to<int>; // static, or of this value's parameters
    a(ex, 0, 2);
};

namespace sched {

template <class A>
constexpr int root_of(const A& a) {
    if constexpr (requires { a.root; }) return a.root;
    else return 0;
}

// The least number of window stages that the algorithm works with.
template <class A>
constexpr int least_window_depth_of(const A&) {
    if constexpr (requires { A::window_depth; }) return A::window_depth;
    else return 1;
}
// Stages of the windows: the algorithm's own choice if it has one, else the least.
template <class A>
constexpr int window_depth_of(const A& a) {
    if constexpr (requires { a.depth; }) return a.depth;
    else return least_window_depth_of(a);
}

// Messages that a channel must hold; 0: none are sent.
template <class A>
constexpr int min_depth_of(const A&) {
    if constexpr (requires { A::min_depth; }) return A::min_depth;
    else return 1;
}

// Signals of a rank; 0: no windows either.
template <class A>
constexpr int signals_of(const A&) {
    if constexpr (requires { A::signals; }) return A::signals;
    else return 0;
}

// Chunks of scratch.
template <class A>
constexpr int tmp_chunks_of(const A& a, int n) {
    if constexpr (requires { a.tmp_chunks(n); }) return a.tmp_chunks(n);
    else return 0;
}

// Whether the algorithm wants a commutative operator: for this n and these parameters if it can say so, else in
// general.
template <class A>
constexpr bool needs_commutative_of(const A& a, int n) {
    if constexpr (requires { a.needs_commutative_for(n); }) return a.needs_commutative_for(n);
    else if constexpr (requires { A::needs_commutative; }) return A::needs_commutative;
    else return true;
}
template <class A>
constexpr bool declares_order(const A&) {
    return requires { A::needs_commutative; };
}

template <class T, T Value>
struct trait; // named where Value must be a constant

// Members that look like a trait and would be passed over are refused, each with a sentence.
template <class A>
constexpr void require_traits() {
    static_assert(
        requires { A::op; }, "collx: an algorithm names its collective: static constexpr collx::collective op.");
    static_assert(
        requires {
            { A::name } -> std::convertible_to<const char*>;
        },
        "collx: an algorithm has a name for messages: static constexpr const char* name.");
    static_assert(
        requires(const A& a) {
            { a.chunks(2) } -> std::convertible_to<int>;
        },
        "collx: an algorithm says into how many chunks n ranks cut the buffer: static constexpr int chunks(int n).");
    static_assert(
        requires(const A& a, recorder& ex) { a(ex, 0, 2); },
        "collx: an algorithm is called with an executor, a rank and the number of ranks: template <class Ex> constexpr "
        "void operator()(Ex& ex, int r, int n) const.");
    static_assert(
        !requires(const A& a) { a.tmp_chunks; } || requires(const A& a) { a.tmp_chunks(2); },
        "collx: an algorithm's scratch depends on the number of ranks: constexpr int tmp_chunks(int n) const.");
    static_assert(
        !requires { &A::min_depth; } || requires { typename trait<int, A::min_depth>; },
        "collx: min_depth is one number for all ranks: static constexpr int min_depth.");
    static_assert(
        !requires { &A::signals; } || requires { typename trait<int, A::signals>; },
        "collx: signals is one number for all ranks: static constexpr int signals.");
    static_assert(
        !requires { &A::window_depth; } || requires { typename trait<int, A::window_depth>; },
        "collx: window_depth is one number for all ranks: static constexpr int window_depth.");
    static_assert(
        !requires { &A::needs_commutative; } || requires { typename trait<bool, A::needs_commutative>; },
        "collx: needs_commutative holds for all ranks: static constexpr bool needs_commutative.");
}

} // namespace sched
COLLX_END_NAMESPACE
