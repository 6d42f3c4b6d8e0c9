// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The requirements on an algorithm type: it names its collective and itself, says its number of chunks, and can be
// called with an executor. Every other trait has a default (traits.hpp).
#pragma once

#include <concepts>

#include <collx/sched/collective.hpp>
#include <collx/sched/recorder.hpp>
#include <collx/sched/traits.hpp>

COLLX_BEGIN_NAMESPACE

// An algorithm, of the library or of a program.
template <class A>
concept Algorithm = requires(const A& a, sched::recorder& ex) {
    { A::op } -> std::convertible_to<collective>;
    { A::name } -> std::convertible_to<const char*>;
    { a.chunks(2) } -> std::convertible_to<int>; // static, or dependent on the value's parameters
    a(ex, 0, 2);
};

namespace sched {

template <class T, T Value>
struct trait; // valid only where Value is a constant

// Refuses, with a sentence each, missing members and members that look like a trait but would be ignored.
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
