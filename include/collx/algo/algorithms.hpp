// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// All algorithms that need only a number of ranks, by collective: tests prove each of them, tools and explanations list
// them. A new algorithm becomes known to all of these by one word here. It includes all their headers, so ordinary
// programs should not include it. Not here: algorithms that take a node map (aggregated.hpp, hierarchical.hpp,
// leader.hpp) or an order of the ranks (in_order.hpp, on_rings.hpp, on_route.hpp), and multicast.hpp, for devices.
#pragma once

#include <type_traits>

#include <collx/algo/binomial.hpp>
#include <collx/algo/bruck.hpp>
#include <collx/algo/chain.hpp>
#include <collx/algo/direct.hpp>
#include <collx/algo/dissemination.hpp>
#include <collx/algo/double_tree.hpp>
#include <collx/algo/halving_doubling.hpp>
#include <collx/algo/linear.hpp>
#include <collx/algo/multicast_two_shot.hpp>
#include <collx/algo/one_shot.hpp>
#include <collx/algo/pairwise.hpp>
#include <collx/algo/recursive_doubling.hpp>
#include <collx/algo/ring.hpp>
#include <collx/algo/scan.hpp>
#include <collx/algo/two_shot.hpp>
#include <collx/algo/zero_copy.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// A list of types; for_each calls f with a default value of each.
template <class... Algorithms>
struct algorithm_list {
    static constexpr int size = sizeof...(Algorithms);
    template <class F>
    static constexpr void for_each(F&& f) {
        (f(Algorithms{}), ...);
    }
    template <class... More>
    algorithm_list<Algorithms..., More...> operator+(algorithm_list<More...>) const;
};

// These algorithms, collective by collective, the plain ones first. Names are unique within a collective.
// clang-format off
using all_algorithms = algorithm_list<
    ring_all_reduce, linear_all_reduce, recursive_doubling_all_reduce, halving_doubling_all_reduce,
    binomial_all_reduce, double_tree_all_reduce, one_shot_all_reduce, two_shot_all_reduce,
    multicast_two_shot_all_reduce, zero_copy_all_reduce,
    linear_reduce, chain_reduce, binomial_reduce, double_tree_reduce, one_shot_reduce, direct_reduce,
    zero_copy_reduce,
    linear_broadcast, chain_broadcast, binomial_broadcast, double_tree_broadcast, one_shot_broadcast,
    direct_broadcast, zero_copy_broadcast,
    ring_all_gather, bruck_all_gather, recursive_doubling_all_gather, pairwise_all_gather, one_shot_all_gather,
    direct_all_gather, zero_copy_all_gather,
    ring_reduce_scatter, linear_reduce_scatter, pairwise_reduce_scatter, halving_reduce_scatter,
    one_shot_reduce_scatter, direct_reduce_scatter, zero_copy_reduce_scatter,
    linear_gather, binomial_gather, direct_gather,
    linear_scatter, binomial_scatter, direct_scatter,
    pairwise_all_to_all, bruck_all_to_all, one_shot_all_to_all, direct_all_to_all, zero_copy_all_to_all,
    chain_scan, doubling_scan, one_shot_scan,
    chain_exclusive_scan, doubling_exclusive_scan, one_shot_exclusive_scan,
    dissemination_barrier, flag_barrier>;
// clang-format on

// algorithms<collective::broadcast>: the algorithms for it, in the order of the list.
template <collective C, class... A>
auto algorithms_of(algorithm_list<A...>)
    -> decltype((algorithm_list<>{} + ... + std::conditional_t<A::op == C, algorithm_list<A>, algorithm_list<>>{}));
template <collective C>
using algorithms = decltype(algorithms_of<C>(all_algorithms{}));

// Calls f with a default value of every algorithm, collective by collective.
template <class F>
constexpr void for_each_algorithm(F&& f) {
    all_algorithms::for_each(f);
}

} // namespace algo
COLLX_END_NAMESPACE
