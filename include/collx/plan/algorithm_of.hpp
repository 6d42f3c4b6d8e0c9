// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The algorithm types behind the names of the table of choices. They are only declared here: code that binds one
// includes its header.
#pragma once

#include <collx/plan/choices.hpp>

COLLX_BEGIN_NAMESPACE

namespace algo {
template <collective>
struct direct;
template <collective>
struct multicast;
template <collective>
struct one_shot;
template <collective>
struct zero_copy;
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

// One algorithm for each collective, by the convention algo::NAME_COLLECTIVE.
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
COLLX_ALGORITHM(aggregated, all_to_all)
COLLX_ALGORITHM(binomial, broadcast)
COLLX_ALGORITHM(binomial, reduce)
COLLX_ALGORITHM(bruck, all_gather)
COLLX_ALGORITHM(bruck, all_to_all)
COLLX_ALGORITHM(chain, broadcast)
COLLX_ALGORITHM(chain, exclusive_scan)
COLLX_ALGORITHM(chain, reduce)
COLLX_ALGORITHM(chain, scan)
COLLX_ALGORITHM(dissemination, barrier)
COLLX_ALGORITHM(double_tree, broadcast)
COLLX_ALGORITHM(doubling, exclusive_scan)
COLLX_ALGORITHM(doubling, scan)
COLLX_ALGORITHM(flag, barrier)
COLLX_ALGORITHM(halving, reduce_scatter)
COLLX_ALGORITHM(halving_doubling, all_reduce)
COLLX_ALGORITHM(leader, all_gather)
COLLX_ALGORITHM(leader, all_to_all)
COLLX_ALGORITHM(leader, barrier)
COLLX_ALGORITHM(linear, all_reduce)
COLLX_ALGORITHM(linear, broadcast)
COLLX_ALGORITHM(linear, gather)
COLLX_ALGORITHM(linear, reduce)
COLLX_ALGORITHM(linear, reduce_scatter)
COLLX_ALGORITHM(linear, scatter)
COLLX_ALGORITHM(multicast_two_shot, all_reduce)
COLLX_ALGORITHM(pairwise, all_gather)
COLLX_ALGORITHM(pairwise, all_to_all)
COLLX_ALGORITHM(pairwise, reduce_scatter)
COLLX_ALGORITHM(recursive_doubling, all_gather)
COLLX_ALGORITHM(recursive_doubling, all_reduce)
COLLX_ALGORITHM(ring, all_gather)
COLLX_ALGORITHM(ring, all_reduce)
COLLX_ALGORITHM(ring, reduce_scatter)
COLLX_ALGORITHM(two_shot, all_reduce)
#undef COLLX_ALGORITHM

COLLX_END_NAMESPACE
