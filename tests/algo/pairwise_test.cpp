// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/algo/pairwise.hpp>

#include "checks.hpp"

using namespace checks;

TEST_CASE("pairwise all-to-all sends and receives in separate strands") {
    CHECK(steps(pairwise_all_to_all{}, 1, 3, 0) == lines{"in[2] -> 2", "in[0] -> 0"});
    CHECK(steps(pairwise_all_to_all{}, 1, 3, 1) == lines{"in[1] -> out[1]", "0 -> out[0]", "2 -> out[2]"});
    check_all<pairwise_all_to_all>();
}

TEST_CASE("pairwise all-gather") {
    CHECK(steps(pairwise_all_gather{}, 2, 3, 0) == lines{"in[2] -> 0", "in[2] -> 1"});
    CHECK(steps(pairwise_all_gather{}, 2, 3, 1) == lines{"in[2] -> out[2]", "1 -> out[1]", "0 -> out[0]"});
    check_all<pairwise_all_gather>();
}

TEST_CASE("pairwise reduce-scatter takes operands outwards from its own rank") {
    CHECK(steps(pairwise_reduce_scatter{}, 1, 4, 0) == lines{"in[2] -> 2", "in[0] -> 0", "in[3] -> 3"});
    CHECK(steps(pairwise_reduce_scatter{}, 1, 4, 1) ==
          lines{"0 + in[1] -> tmp[1]", "tmp[1] + 2 -> tmp[1]", "tmp[1] + 3 -> out[1]"});
    CHECK(steps(pairwise_reduce_scatter{}, 0, 2, 1) == lines{"in[0] + 1 -> out[0]"});
    check_all<pairwise_reduce_scatter>();
}

TEMPLATE_TEST_CASE("pairwise exchanges send n - 1 chunks a rank", "", pairwise_all_to_all, pairwise_all_gather,
                   pairwise_reduce_scatter) {
    for (int n : {2, 3, 5, 8, 13, 32}) {
        const facts f = facts_of(TestType{}, n);
        CHECK(f.messages == n - 1);
        CHECK(f.chunks_sent == n - 1);
        CHECK(f.total_messages == n * (n - 1));
    }
}
