// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The algorithm types behind the names of the table of choices. They are only declared here: code that binds one
// includes its header.
#pragma once

#include <collx/plan/choices.hpp>

COLLX_BEGIN_NAMESPACE

namespace algo {
template <collective>
struct direct; // <collx/algo/direct.hpp>
template <collective>
struct multicast; // <collx/algo/multicast.hpp>
template <collective>
struct one_shot; // <collx/algo/one_shot.hpp>
template <collective>
struct zero_copy; // <collx/algo/zero_copy.hpp>
} // namespace algo

namespace detail {

template <choices::name, collective>
struct algorithm_named;
template <choices::name N, collective C>
using algorithm_of = typename algorithm_named<N, C>::type;

// One algorithm for all collectives.
template <collective C>
struct algorithm_named<choices::direct, C> {
    using type = algo::direct<C>;
};
template <collective C>
struct algorithm_named<choices::multicast, C> {
    using type = algo::multicast<C>;
};
template <collective C>
struct algorithm_named<choices::one_shot, C> {
    using type = algo::one_shot<C>;
};
template <collective C>
struct algorithm_named<choices::zero_copy, C> {
    using type = algo::zero_copy<C>;
};

} // namespace detail

// One algorithm for each collective, by the convention algo::NAME_COLLECTIVE. Each line has the header with its
// definition, because compilers show the line where a program uses the type without that header.
#define COLLX_ALGORITHM(name, collective_)                           \
    namespace algo {                                                 \
    struct name##_##collective_;                                     \
    }                                                                \
    namespace detail {                                               \
    template <>                                                      \
    struct algorithm_named<choices::name, collective::collective_> { \
        using type = algo::name##_##collective_;                     \
    };                                                               \
    }
COLLX_ALGORITHM(aggregated, all_to_all)         // <collx/algo/aggregated.hpp>
COLLX_ALGORITHM(binomial, broadcast)            // <collx/algo/binomial.hpp>
COLLX_ALGORITHM(binomial, reduce)               // <collx/algo/binomial.hpp>
COLLX_ALGORITHM(bruck, all_gather)              // <collx/algo/bruck.hpp>
COLLX_ALGORITHM(bruck, all_to_all)              // <collx/algo/bruck.hpp>
COLLX_ALGORITHM(chain, broadcast)               // <collx/algo/chain.hpp>
COLLX_ALGORITHM(chain, exclusive_scan)          // <collx/algo/scan.hpp>
COLLX_ALGORITHM(chain, reduce)                  // <collx/algo/chain.hpp>
COLLX_ALGORITHM(chain, scan)                    // <collx/algo/scan.hpp>
COLLX_ALGORITHM(dissemination, barrier)         // <collx/algo/dissemination.hpp>
COLLX_ALGORITHM(double_tree, broadcast)         // <collx/algo/double_tree.hpp>
COLLX_ALGORITHM(doubling, exclusive_scan)       // <collx/algo/scan.hpp>
COLLX_ALGORITHM(doubling, scan)                 // <collx/algo/scan.hpp>
COLLX_ALGORITHM(flag, barrier)                  // <collx/algo/dissemination.hpp>
COLLX_ALGORITHM(halving, reduce_scatter)        // <collx/algo/halving_doubling.hpp>
COLLX_ALGORITHM(halving_doubling, all_reduce)   // <collx/algo/halving_doubling.hpp>
COLLX_ALGORITHM(leader, all_gather)             // <collx/algo/leader.hpp>
COLLX_ALGORITHM(leader, all_to_all)             // <collx/algo/leader.hpp>
COLLX_ALGORITHM(leader, barrier)                // <collx/algo/leader.hpp>
COLLX_ALGORITHM(linear, all_reduce)             // <collx/algo/linear.hpp>
COLLX_ALGORITHM(linear, broadcast)              // <collx/algo/linear.hpp>
COLLX_ALGORITHM(linear, gather)                 // <collx/algo/linear.hpp>
COLLX_ALGORITHM(linear, reduce)                 // <collx/algo/linear.hpp>
COLLX_ALGORITHM(linear, reduce_scatter)         // <collx/algo/linear.hpp>
COLLX_ALGORITHM(linear, scatter)                // <collx/algo/linear.hpp>
COLLX_ALGORITHM(multicast_two_shot, all_reduce) // <collx/algo/multicast_two_shot.hpp>
COLLX_ALGORITHM(pairwise, all_gather)           // <collx/algo/pairwise.hpp>
COLLX_ALGORITHM(pairwise, all_to_all)           // <collx/algo/pairwise.hpp>
COLLX_ALGORITHM(pairwise, reduce_scatter)       // <collx/algo/pairwise.hpp>
COLLX_ALGORITHM(recursive_doubling, all_gather) // <collx/algo/recursive_doubling.hpp>
COLLX_ALGORITHM(recursive_doubling, all_reduce) // <collx/algo/recursive_doubling.hpp>
COLLX_ALGORITHM(ring, all_gather)               // <collx/algo/ring.hpp>
COLLX_ALGORITHM(ring, all_reduce)               // <collx/algo/ring.hpp>
COLLX_ALGORITHM(ring, reduce_scatter)           // <collx/algo/ring.hpp>
COLLX_ALGORITHM(two_shot, all_reduce)           // <collx/algo/two_shot.hpp>
#undef COLLX_ALGORITHM

COLLX_END_NAMESPACE
