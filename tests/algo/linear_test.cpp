// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/algo/linear.hpp>

#include "checks.hpp"

using namespace checks;

TEST_CASE("linear broadcast") {
    CHECK(steps(linear_broadcast{.root = 1}, 1, 3) == lines{"in[0] -> 2", "in[0] -> 0", "in[0] -> out[0]"});
    CHECK(steps(linear_broadcast{.root = 1}, 0, 3) == lines{"1 -> out[0]"});
    check_all<linear_broadcast>();
}

TEST_CASE("linear reduction takes operands in rank order, its own too") {
    CHECK(steps(linear_reduce{}, 0, 3) == lines{"in[0] + 1 -> tmp[0]", "tmp[0] + 2 -> out[0]"});
    CHECK(steps(linear_reduce{.root = 1}, 1, 3) == lines{"0 + in[0] -> tmp[0]", "tmp[0] + 2 -> out[0]"});
    CHECK(steps(linear_reduce{.root = 2}, 2, 3) ==
          lines{"in[0] -> 2", "0 -> tmp[0]", "tmp[0] + 1 -> tmp[0]", "tmp[0] + 2 -> out[0]"});
    CHECK(steps(linear_reduce{.root = 1}, 1, 2) == lines{"0 + in[0] -> out[0]"});
    check_all<linear_reduce>();
}

TEST_CASE("linear sums of parts: every rank takes the operands of its chunk in rank order") {
    CHECK(steps(linear_reduce_scatter{}, 0, 3) ==
          lines{"in[1] -> 1", "in[2] -> 2", "in[0] + 1 -> tmp[0]", "tmp[0] + 2 -> out[0]"});
    CHECK(steps(linear_reduce_scatter{}, 2, 3) == lines{"in[0] -> 0", "in[1] -> 1", "in[2] -> 2", "0 -> tmp[2]",
                                                        "tmp[2] + 1 -> tmp[2]", "tmp[2] + 2 -> out[2]"});
    CHECK(steps(linear_all_reduce{}, 1, 2) == lines{"in[0] -> 0", "0 + in[1] -> out[1]", "out[1] -> 0", "0 -> out[0]"});
    check_all<linear_reduce_scatter>();
    check_all<linear_all_reduce>();
}

TEST_CASE("linear gather and scatter") {
    CHECK(steps(linear_gather{}, 0, 3) == lines{"in[0] -> out[0]", "1 -> out[1]", "2 -> out[2]"});
    CHECK(steps(linear_gather{}, 2, 3) == lines{"in[2] -> 0"});
    CHECK(steps(linear_scatter{.root = 2}, 2, 3) == lines{"in[0] -> 0", "in[1] -> 1", "in[2] -> out[2]"});
    CHECK(steps(linear_scatter{.root = 2}, 0, 3) == lines{"2 -> out[0]"});
    check_all<linear_gather>();
    check_all<linear_scatter>();
}

TEMPLATE_TEST_CASE("linear collectives take n - 1 rounds and messages", "", linear_broadcast, linear_reduce,
                   linear_gather, linear_scatter) {
    for (int n : {2, 3, 7, 16, 40}) {
        const facts f = facts_of(TestType{}, n);
        CHECK(f.rounds == n - 1);
        CHECK(f.total_messages == n - 1);
        CHECK(f.total_chunks_sent == n - 1);
    }
}
