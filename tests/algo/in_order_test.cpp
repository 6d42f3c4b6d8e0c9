// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Algorithms with their ranks in another order: rings along the existing links, and any order at all.
#include <collx/algo/aggregated.hpp>
#include <collx/algo/bruck.hpp>
#include <collx/algo/chain.hpp>
#include <collx/algo/dissemination.hpp>
#include <collx/algo/hierarchical.hpp>
#include <collx/algo/in_order.hpp>
#include <collx/algo/on_rings.hpp>
#include <collx/algo/pairwise.hpp>
#include <collx/algo/recursive_doubling.hpp>
#include <collx/algo/ring.hpp>
#include <collx/sched/facts.hpp>

#include <algorithm>
#include <numeric>

#include <catch2/catch.hpp>

using namespace collx;
using collx::algo::in_order;

namespace {

// A hybrid cube mesh of 8: two quads, each fully linked, and every place linked to its counterpart in the other quad.
bool cube_mesh(int a, int b) { return a != b && (a / 4 == b / 4 || a % 4 == b % 4); }
// The number of messages between ranks without a link, where rank r is at places[r].
template <class Algorithm, class Linked>
int unlinked_messages(const Algorithm& a, const std::vector<int>& places, Linked&& linked) {
    int count = 0;
    const auto s = sched::record_all(a, static_cast<int>(places.size()));
    for (std::size_t r = 0; r < places.size(); ++r)
        for (const auto& strand : s.programs[r].strands)
            for (const auto& st : strand)
                count +=
                    (st.what & sched::send) != 0 && !linked(places[r], places[static_cast<std::size_t>(st.peer_to)]);
    return count;
}

} // namespace

TEST_CASE("a ring in another order sends along links only") {
    const std::vector<int> even{0, 2, 4, 6};
    CHECK(unlinked_messages(algo::ring_all_reduce{}, even, cube_mesh) == 2 * 6); // 2 to 4 and 6 to 0
    const rank_order order{0, 1, 3, 2};
    CHECK(unlinked_messages(in_order<algo::ring_all_reduce>{order}, even, cube_mesh) == 0);
}

TEMPLATE_TEST_CASE("algorithms are right in any order", "", algo::ring_all_reduce, algo::ring_all_gather,
                   algo::ring_reduce_scatter, algo::recursive_doubling_all_reduce, algo::bruck_all_gather,
                   algo::pairwise_reduce_scatter, algo::pairwise_all_to_all, algo::bruck_all_to_all,
                   algo::dissemination_barrier) {
    std::vector<int> p(5);
    std::iota(p.begin(), p.end(), 0);
    do {
        const rank_order order(p);
        const in_order<TestType> a{order};
        const auto s = sched::record_all(a, 5);
        const auto f = sched::facts_of(s);
        CHECK(f.ok);
        CHECK(f.same_on_all_ranks);
        CHECK(f.tmp_chunks <= sched::tmp_chunks_of(a, 5));
        CHECK(f.min_depth <= a.min_depth);
    } while (std::next_permutation(p.begin(), p.end()));
    CHECK(sched::record(in_order<TestType>{}, 2, 5).strands[0].size() >=
          sched::record(TestType{}, 2, 5).strands[0].size());
}

TEST_CASE("rings at once are right where no channel belongs to two of them") {
    const auto on = [](const std::vector<rank_order>& orders) {
        std::vector<order_view> views(orders.begin(), orders.end());
        const int n = 5;
        const algo::on_rings<algo::ring_all_reduce> a{views.data(), static_cast<int>(views.size())};
        return sched::record_all(a, n);
    };
    std::vector<int> p(5);
    std::iota(p.begin(), p.end(), 0);
    do {
        const auto s = on({rank_order(p), rank_order(std::vector<int>(p.rbegin(), p.rend()))});
        const auto f = sched::facts_of(s);
        CHECK((f.ok && f.same_on_all_ranks && f.min_depth <= 2));
        CHECK(s.chunks == 10);
        CHECK(s.programs[0].strands.size() == 2);
    } while (std::next_permutation(p.begin() + 1, p.end()));
    CHECK(!sched::facts_of(on({rank_order{0, 1, 2, 3, 4}, rank_order{0, 1, 3, 4, 2}})).ok); // 0 -> 1 is in both
    const rank_order twice{0, 1, 1};
    const order_view unfit = twice;
    CHECK(!algo::on_rings<algo::ring_all_reduce>{&unfit, 1}.fits(3));
    CHECK(!algo::on_rings<algo::ring_all_reduce>{}.fits(3));
}

TEST_CASE("hierarchical algorithms are right with the ranks of a node in any order") {
    const auto rings_on = [](const node_map& m, int n) {
        for (const auto& f : {sched::facts_of(sched::record_all(algo::hierarchical_all_reduce<>{m}, n)),
                              sched::facts_of(sched::record_all(algo::hierarchical_all_gather<>{m}, n)),
                              sched::facts_of(sched::record_all(algo::hierarchical_reduce_scatter<>{m}, n)),
                              sched::facts_of(sched::record_all(algo::aggregated_all_to_all{.nodes = m}, n)),
                              sched::facts_of(sched::record_all(algo::hierarchical<collective::broadcast>{{m, 1}}, n))})
            CHECK((f.ok && f.same_on_all_ranks));
    };
    const node_map even({0, 0, 0, 1, 1, 1}, {2, 0, 1, 4, 5, 3});
    CHECK((even.view().local_of(2) == 0 && even.view().rank_of(1, 2) == 3 && !even.view().in_rank_order()));
    CHECK(even.view().hash() != node_map({0, 0, 0, 1, 1, 1}).view().hash());
    CHECK(node_map({0, 0, 0, 1, 1, 1}).view().in_rank_order());
    rings_on(even, 6);
    rings_on(node_map({1, 0, 1, 0, 0}, {2, 0, 4, 1, 3}), 5);
}

TEST_CASE("chains are right in any order, whatever their root") {
    std::vector<int> p(4);
    std::iota(p.begin(), p.end(), 0);
    do {
        const rank_order order(p);
        for (int root = 0; root < 4; ++root) {
            const algo::rooted_in_order<algo::chain_broadcast> down{order, root};
            const algo::rooted_in_order<algo::chain_reduce> up{order, root};
            CHECK(sched::facts_of(sched::record_all(down, 4)).ok);
            CHECK(sched::facts_of(sched::record_all(up, 4)).ok);
            CHECK(down.parameter_bits() !=
                  algo::rooted_in_order<algo::chain_broadcast>{order, root + 1}.parameter_bits());
        }
    } while (std::next_permutation(p.begin(), p.end()));
}

TEST_CASE("what is no order fits no communicator") {
    CHECK(rank_order({1, 0, 2}).view().fits(3));
    CHECK(!rank_order({1, 0, 2}).view().fits(4));
    CHECK(!rank_order({1, 1, 2}).view().fits(3));
    CHECK(!rank_order({0, 3, 1}).view().fits(3));
    CHECK(rank_order({1, 0, 2}).view().hash() != rank_order({0, 1, 2}).view().hash());
    CHECK(order_view{}.fits(7));
    const rank_order order{2, 0, 1};
    CHECK(order.view().position_of(0) == 1);
    CHECK(order.view().rank_at(0) == 2);
    // A plain ring would fail here: the order makes the difference.
    CHECK(sched::record(in_order<algo::ring_all_reduce>{order}, 0, 3).strands[0][0].peer_to == 1);
    CHECK(sched::record(in_order<algo::ring_all_reduce>{order}, 1, 3).strands[0][0].peer_to == 2);
}
