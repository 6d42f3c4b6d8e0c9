// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The traits that an algorithm need not have, each with its default: what the selector, the host's engine and kernels
// ask instead of the members. It includes nothing but the platform's macros, so that a .cu file may ask.
#pragma once

#include <collx/core/config.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
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
// For a machine whose windows have another number of stages.
template <class A>
constexpr void set_window_depth(A& a, int stages) {
    if constexpr (requires { a.depth; }) a.depth = stages;
}

// Messages that a channel must hold; 0: none are sent.
template <class A>
constexpr int min_depth_of(const A&) {
    if constexpr (requires { A::min_depth; }) return A::min_depth;
    else return 1;
}

// Whether the algorithm works over windows, and its signals of a rank.
template <class A>
inline constexpr bool has_signals_v = requires {
    A::signals;
};
template <class A>
constexpr int signals_of(const A&) {
    if constexpr (has_signals_v<A>) return A::signals;
    else return 0;
}

// Whether the algorithm has scratch for any number of ranks and any parameters, and how many chunks for these.
template <class A>
inline constexpr bool has_scratch_v = requires(const A& a) {
    a.tmp_chunks(2);
};
template <class A>
constexpr int tmp_chunks_of(const A& a, int n) {
    if constexpr (has_scratch_v<A>) return a.tmp_chunks(n);
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

} // namespace sched
COLLX_END_NAMESPACE
