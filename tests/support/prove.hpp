// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Macros of the proof files: they static_assert that algorithms are correct, and are what they declare, for 1 to 17
// ranks. That range has odd and even counts, powers of two and their neighbours. By day 11 to 16 are left to
// verify_test.cpp, which continues at run time, where n is not limited; scripts/test --nightly defines COLLX_PROVE_ALL.
// Each rank count is its own constant, so that no single evaluation comes near a compiler's limit.
#pragma once

#include <utility>

#include <collx/sched/facts.hpp>

namespace prove {

// The order of accesses is proved for fewer ranks only: the vector clocks are long and the patterns repeat.
inline constexpr int races_up_to = 5;

template <class Algorithm>
constexpr Algorithm with_root(Algorithm a, int root) {
    collx::sched::set_root(a, root);
    return a;
}

// The algorithm with the least window depth that it declares possible, so that every stage is soon reused.
template <class Algorithm>
constexpr Algorithm shallow(Algorithm a) {
    if constexpr (requires { a.depth; }) a.depth = collx::sched::least_window_depth_v<Algorithm>;
    return a;
}

template <class Algorithm, int N, int Root = 0>
constexpr bool right =
    collx::sched::verify(collx::sched::record_all(shallow(with_root(Algorithm{}, Root)), N)).ok(); // in place too

template <class Algorithm, int N, int Root = 0>
constexpr bool ordered = collx::sched::races(shallow(with_root(Algorithm{}, Root)), N).ok();

template <class Algorithm, int N, int Root = 0>
constexpr bool declared = collx::sched::declared_equals_derived(with_root(Algorithm{}, Root), N);

template <class Algorithm, int... I>
constexpr bool right_for(std::integer_sequence<int, I...>) {
    return (right<Algorithm, I + 1> && ...);
}
template <class Algorithm, int... I>
constexpr bool right_for_last_root(std::integer_sequence<int, I...>) {
    return (right<Algorithm, I + 1, I> && ...);
}
template <class Algorithm, int... I>
constexpr bool right_for_all_roots_of(std::integer_sequence<int, I...>) {
    return (right<Algorithm, sizeof...(I), I> && ...);
}
template <class Algorithm, int... I>
constexpr bool ordered_for(std::integer_sequence<int, I...>) {
    return (ordered<Algorithm, I + 1> && ...);
}
template <class Algorithm, int... I>
constexpr bool ordered_for_last_root(std::integer_sequence<int, I...>) {
    return (ordered<Algorithm, I + 1, I> && ...);
}

template <int N>
using up_to = std::make_integer_sequence<int, N>;
#if defined(COLLX_PROVE_ALL)
using many_ranks = up_to<17>;
#else
using many_ranks = std::integer_sequence<int, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16>;
#endif

} // namespace prove

#define COLLX_PROVE(algorithm)                                                                            \
    static_assert(prove::right_for<algorithm>(prove::many_ranks{}));                                      \
    static_assert(prove::ordered_for<algorithm>(prove::up_to<prove::races_up_to>{}));                     \
    static_assert(collx::sched::verify(algorithm{}, 4).ok() && collx::sched::races(algorithm{}, 3).ok()); \
    static_assert(prove::declared<algorithm, 4> && prove::declared<algorithm, 5>)

#define COLLX_PROVE_ROOTED(algorithm)                                                           \
    COLLX_PROVE(algorithm);                                                                     \
    static_assert(prove::right_for_last_root<algorithm>(prove::up_to<12>{}));                   \
    static_assert(prove::right_for_all_roots_of<algorithm>(prove::up_to<5>{}));                 \
    static_assert(prove::ordered_for_last_root<algorithm>(prove::up_to<prove::races_up_to>{})); \
    static_assert(prove::declared<algorithm, 5, 2>)
