// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The collectives in which each rank may know only its own counts, and the algorithms that may run them: those of the
// rows `own_counts` of the table (plan/choices.hpp), and those whose ranks pass parts on and say how they learn the
// counts (counts()).
#pragma once

#include <type_traits>

#include <collx/plan/algorithm_of.hpp>
#include <collx/plan/choose.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// The algorithm in which ranks exchange data directly, right with any counts: the last row for these calls.
template <collective C, bool = choices::next_row(choices::own_counts, C) != choices::row_count>
struct direct_algorithm {
    using type = void;
};
template <collective C>
struct direct_algorithm<C, true> {
    using type = algorithm_of<choices::last_choice(choices::own_counts, C).use, C>;
};

// Whether collective C has a form with private counts, and whether algorithm A can run it.
template <collective C>
inline constexpr bool may_have_private_counts = !std::is_void_v<typename direct_algorithm<C>::type>;
template <collective C, class A>
inline constexpr bool allows_private_counts = std::is_same_v<A, typename direct_algorithm<C>::type> ||
                                              requires(const A& a) {
    a.counts();
};

} // namespace detail

COLLX_END_NAMESPACE
