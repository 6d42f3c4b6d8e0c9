// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parts of hierarchical algorithms, and the rooted ones step by step: broadcast, reduce, barrier.
#include <collx/algo/hierarchical_parts.hpp>
#include <collx/algo/hierarchical_rooted.hpp>

#include <collx/sched/algorithm.hpp>

#include "checks.hpp"

using namespace checks;
using namespace collx::algo;
using collx::node_map;
using collx::node_view;

namespace {

const node_map uneven({0, 0, 0, 1, 1, 2}), pairs = node_map::blocks(6, 2);

} // namespace

TEST_CASE("parts: depths, orders, scratch and chunks of several algorithms together") {
    STATIC_REQUIRE(parts::min_depth<ring_all_reduce, binomial_broadcast>() == 2);
    STATIC_REQUIRE(parts::min_depth<binomial_broadcast>() == 1);
    STATIC_REQUIRE(parts::need_commutative<binomial_reduce, ring_all_reduce>());
    STATIC_REQUIRE(!parts::need_commutative<binomial_broadcast>());
    STATIC_REQUIRE(parts::keep_nothing<binomial_broadcast, chain_broadcast>);
    STATIC_REQUIRE(!parts::keep_nothing<binomial_broadcast, binomial_reduce>);
    STATIC_REQUIRE(collx::sched::tmp_chunks_of(ring_all_reduce{}, 5) == 0);
    STATIC_REQUIRE(collx::sched::tmp_chunks_of(binomial_reduce{}, 5) == 1);
    STATIC_REQUIRE(parts::common_multiple(4, 6) == 12);
    STATIC_REQUIRE(parts::common_multiple(1, 7) == 7);
    STATIC_REQUIRE(parts::common_multiple(0, 0) == 1);
    CHECK(parts::chunks_inside<ring_all_reduce>(uneven.view(), 1) == 6);    // rings of 3, 2 and 1
    CHECK(parts::chunks_inside<ring_all_reduce>(pairs.view(), 3) == 6);     // and 3 outside
    CHECK(parts::chunks_inside<binomial_broadcast>(uneven.view(), 4) == 4); // any number is allowed
}

TEST_CASE("the base knows when one of two algorithms has nothing to do") {
    STATIC_REQUIRE(hierarchical_base::is_flat(node_view{}.over(5)));
    CHECK(hierarchical_base::is_flat(node_map({0, 1, 2}).view()));
    CHECK(!hierarchical_base::is_flat(uneven.view()));
    CHECK(hierarchical_base::flat_chunks(node_map({0, 1, 2}).view(), binomial_broadcast{}, ring_all_reduce{}, 3) == 3);
    CHECK(hierarchical_base::flat_chunks(node_view{}.over(3), binomial_broadcast{}, ring_all_reduce{}, 3) == 1);
    CHECK(hierarchical_base::flat_tmp_chunks(node_view{}.over(3), binomial_reduce{}, ring_all_reduce{}, 3) == 1);
    CHECK(hierarchical_base{uneven}.fits(6));
    CHECK(!hierarchical_base{uneven}.fits(5));
    CHECK(hierarchical_base{uneven}.parameter_bits() != hierarchical_base{pairs}.parameter_bits());
}

TEST_CASE("one rank stands for its node: the root for its own, its local index elsewhere, counted round") {
    rooted_hierarchical_base b;
    b.nodes = uneven;
    b.root = 2; // local index 2 of node 0
    CHECK(b.stands_for(uneven.view(), 0) == 2);
    CHECK(b.stands_for(uneven.view(), 1) == 0);
    CHECK(b.stands_for(uneven.view(), 2) == 0);
    b.root = 4;
    CHECK(b.stands_for(uneven.view(), 0) == 1);
    rooted_hierarchical_base other = b;
    other.root = 3;
    CHECK(b.parameter_bits() != other.parameter_bits());
}

TEST_CASE("broadcast from a rank in the middle of an uneven map") {
    const hierarchical_broadcast<trees> a{{uneven, 4}};
    CHECK(a.chunks(6) == 1);
    CHECK(a.messages_between(6) == 2);
    const auto s = record_all(a, 6);
    CHECK(verify(s).ok());
    CHECK(messages_between(s, [](int r) { return uneven.view().node_of(r); }).total_messages == 2);
    CHECK(steps(a, 0, 6).size() == 1); // receives from its node's representative
    CHECK(steps(a, 0, 6)[0] == "1 -> out[0]");
}

TEST_CASE("reduce goes the way back, and keeps rank order where nodes are intervals") {
    const hierarchical_reduce<trees> a{{uneven, 4}};
    CHECK(a.messages_between(6) == 2);
    CHECK(!a.needs_commutative_for(6));
    const node_map cyclic{0, 1, 0, 1}, apart{0, 1, 2};
    static_assert(!std::is_convertible_v<node_map, node_view> && std::is_convertible_v<const node_map&, node_view>);
    CHECK(hierarchical_reduce<trees>{{cyclic, 0}}.needs_commutative_for(4));
    const auto s = record_all(a, 6);
    CHECK(verify(s).ok());
    CHECK(verify(s).order == reduction_order::rank_order);
    CHECK(facts_of(s).tmp_chunks <= a.tmp_chunks(6));
    CHECK(hierarchical_reduce<trees>{}.messages_between(4) == 0); // one node
    CHECK(verify(record_all(hierarchical_reduce<trees>{{apart, 1}}, 3)).ok());
}

TEST_CASE("barrier: nodes meet inside, then among themselves, then tell") {
    hierarchical_barrier<trees> a;
    a.nodes = pairs;
    const auto s = record_all(a, 6);
    CHECK(verify(s).ok());
    CHECK(messages_between(s, [](int r) { return r / 2; }).total_messages == a.messages_between(6));
    CHECK(a.messages_between(6) > 0);
    // Without the last phase a rank would leave before the other nodes have arrived.
    auto mutant = s;
    auto& last = mutant.programs[1].strands[0];
    REQUIRE(!last.empty());
    last.pop_back();
    mutant.programs[0].strands[0].pop_back();
    CHECK(!verify(mutant).ok());
}
