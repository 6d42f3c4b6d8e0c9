// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Maps of ranks to nodes with an order of the ranks: what is no order fits no communicator. (What maps say is tested
// with the algorithms that read them, in tests/algo/hierarchical_test.cpp.)
#include <collx/sched/node_map.hpp>

#include <catch2/catch.hpp>

#include <vector>

using namespace collx;

TEST_CASE("the ranks of a node are in the order given") {
    const node_map nodes({0, 0, 1, 1}, {3, 1, 0, 2});
    const node_view v = nodes;
    CHECK((v.fits(4) && !v.fits(3)));
    CHECK((v.local_of(1) == 0 && v.local_of(0) == 1 && v.local_of(3) == 0 && v.local_of(2) == 1));
    CHECK(v.hash() != node_map({0, 0, 1, 1}).view().hash());
}

TEST_CASE("a list that does not name each rank once fits no communicator, and is not read beyond its end") {
    const std::vector<std::vector<int>> lists{{0, 1}, {0, 1, 2, 99},   {0, 1, 2, 4}, {0, 1, 2, -1}, {0, 0, 3, 3},
                                              {},     {0, 1, 2, 3, 4}, {1, 0, 3, 3}};
    for (const auto& order : lists) {
        const node_map odd({0, 0, 1, 1}, order);
        for (const int n : {0, 3, 4, 5}) CHECK(!odd.view().fits(n));
        CHECK((odd.view().local_of(3) == 1 && odd.view().ranks() == 4)); // as without an order
    }
}
