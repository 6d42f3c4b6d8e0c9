// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Suites: one algorithm for each collective that a hierarchical algorithm is made of. A program's own suite derives
// from one of these and names what differs:
//   struct mine : rings { using all_reduce = recursive_doubling_all_reduce; };
#pragma once

#include <collx/algo/binomial.hpp>
#include <collx/algo/bruck.hpp>
#include <collx/algo/chain.hpp>
#include <collx/algo/dissemination.hpp>
#include <collx/algo/halving_doubling.hpp>
#include <collx/algo/pairwise.hpp>
#include <collx/algo/recursive_doubling.hpp>
#include <collx/algo/ring.hpp>

COLLX_BEGIN_NAMESPACE
namespace algo {

// For long messages: as few bytes as possible.
struct rings {
    static constexpr const char* name = "rings";
    using all_reduce = ring_all_reduce;
    using reduce_scatter = ring_reduce_scatter;
    using all_gather = ring_all_gather;
    using reduce = chain_reduce;
    using broadcast = chain_broadcast;
    using barrier = dissemination_barrier;
};

// For short messages: as few rounds as possible.
struct trees {
    static constexpr const char* name = "trees";
    using all_reduce = recursive_doubling_all_reduce;
    using reduce_scatter = halving_reduce_scatter;
    using all_gather = bruck_all_gather;
    using reduce = binomial_reduce;
    using broadcast = binomial_broadcast;
    using barrier = dissemination_barrier;
};

// For operators that do not commute: operands stay in rank order, as long as nodes are intervals of ranks.
struct rank_ordered {
    static constexpr const char* name = "rank_ordered";
    using all_reduce = halving_doubling_all_reduce;
    using reduce_scatter = pairwise_reduce_scatter;
    using all_gather = pairwise_all_gather;
    using reduce = binomial_reduce;
    using broadcast = binomial_broadcast;
    using barrier = dissemination_barrier;
};

} // namespace algo
COLLX_END_NAMESPACE
