// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The traits of an algorithm, with their defaults. Callers ask here and not the members, so that only this file knows
// the defaults. Separate from algorithm.hpp because kernels read traits and do not need the recorder.
#pragma once

#include <collx/sched/collective.hpp>

COLLX_BEGIN_NAMESPACE
namespace sched {

// Whether an algorithm has a member `root`.
template <class A>
concept has_root = requires(A a) {
    a.root = 0;
};
// The root of an algorithm; 0: it has none.
template <class A>
constexpr int root_of(const A& a) {
    if constexpr (has_root<A>) return a.root;
    else return 0;
}
// Sets the root of an algorithm that has one.
template <class A>
constexpr void set_root(A& a, int root) {
    if constexpr (has_root<A>) a.root = root;
}

// The least number of window stages that the algorithm works with.
template <class A>
inline constexpr int least_window_depth_v = 1;
template <class A>
requires requires { A::window_depth; }
inline constexpr int least_window_depth_v<A> = A::window_depth;
// Stages of the windows: the algorithm's own choice if it has one, else the least.
template <class A>
constexpr int window_depth_of(const A& a) {
    if constexpr (requires { a.depth; }) return a.depth;
    else return least_window_depth_v<A>;
}
// Sets the stages, for a machine whose windows have another number of them.
template <class A>
constexpr void set_window_depth(A& a, int stages) {
    if constexpr (requires { a.depth; }) a.depth = stages;
}

// Signals of a rank; 0: no windows either.
template <class A>
inline constexpr int signals_v = 0;
template <class A>
requires requires { A::signals; }
inline constexpr int signals_v<A> = A::signals;

// Whether chunk c of what a rank puts is for rank c alone, and each rank reads every other rank in every iteration, in
// each segment that it puts into. LL words may then be pushed into the memory of their readers (exec/device/).
template <class A>
inline constexpr bool pushes_parts_v = A::op == collective::reduce_scatter || A::op == collective::all_to_all;
template <class A>
requires requires { A::pushes_parts; }
inline constexpr bool pushes_parts_v<A> = A::pushes_parts;

// Messages that a channel must hold; 0: none are sent, the default where there are signals.
template <class A>
inline constexpr int min_depth_v = signals_v<A> > 0 ? 0 : 1;
template <class A>
requires requires { A::min_depth; }
inline constexpr int min_depth_v<A> = A::min_depth;

// Whether the algorithm has scratch, for some number of ranks and some parameters.
template <class A>
inline constexpr bool has_scratch_v = requires(const A& a) {
    a.tmp_chunks(2);
};
// Chunks of scratch that it needs on n ranks.
template <class A>
constexpr int tmp_chunks_of(const A& a, int n) {
    if constexpr (has_scratch_v<A>) return a.tmp_chunks(n);
    else return 0;
}

// Whether the algorithm is for devices only, whose executors know more kinds of steps than the host's engine.
template <class A>
inline constexpr bool only_on_devices_v = false;
template <class A>
requires requires { A::only_on_devices; }
inline constexpr bool only_on_devices_v<A> = A::only_on_devices;

// Whether the algorithm may change the order of operands for some n: what it declares, else yes if it reduces.
template <class A>
inline constexpr bool reorders_v = reduces(A::op);
template <class A>
requires requires { A::needs_commutative; }
inline constexpr bool reorders_v<A> = A::needs_commutative;
// The same for this n and these parameters, where the algorithm can say so.
template <class A>
constexpr bool needs_commutative_of(const A& a, int n) {
    if constexpr (requires { a.needs_commutative_for(n); }) return a.needs_commutative_for(n);
    else return reorders_v<A>;
}

} // namespace sched
COLLX_END_NAMESPACE
