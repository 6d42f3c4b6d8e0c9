// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/algo/binomial.hpp>

#include "checks.hpp"

using namespace checks;

TEST_CASE("binomial broadcast reaches the farthest first") {
    CHECK(steps(binomial_broadcast{}, 0, 7) == lines{"in[0] -> 4", "in[0] -> 2", "in[0] -> 1", "in[0] -> out[0]"});
    CHECK(steps(binomial_broadcast{}, 4, 7) == lines{"0 -> out[0]", "out[0] -> 6", "out[0] -> 5"});
    CHECK(steps(binomial_broadcast{.root = 3}, 0, 7) == lines{"3 -> out[0]", "out[0] -> 2", "out[0] -> 1"});
}

TEST_CASE("binomial reduction hangs a tree on either side of the root") {
    CHECK(steps(binomial_reduce{}, 0, 4) == lines{"in[0] + 1 -> tmp[0]", "tmp[0] + 2 -> out[0]"});
    CHECK(steps(binomial_reduce{}, 2, 4) == lines{"in[0] + 3 -> 0"});
    CHECK(steps(binomial_reduce{.root = 2}, 2, 5) ==
          lines{"1 + in[0] -> tmp[0]", "tmp[0] + 3 -> tmp[0]", "0 + tmp[0] -> tmp[0]", "tmp[0] + 4 -> out[0]"});
    CHECK(steps(binomial_reduce{.root = 4}, 2, 5) == lines{"1 + in[0] -> 4"});
}

TEST_CASE("binomial all-reduce turns round at rank 0") {
    CHECK(steps(binomial_all_reduce{}, 0, 4, 0) ==
          lines{"in[0] + 1 -> tmp[0]", "tmp[0] + 2 -> out[0] -> 2", "out[0] -> 1"});
    CHECK(steps(binomial_all_reduce{}, 0, 4, 1).empty());
    CHECK(steps(binomial_all_reduce{}, 2, 4, 0) == lines{"in[0] + 3 -> 0"});
    CHECK(steps(binomial_all_reduce{}, 2, 4, 1) == lines{"0 -> out[0] -> 3"});
}

TEST_CASE("binomial gather and scatter move subtrees") {
    CHECK(steps(binomial_gather{}, 0, 4) == lines{"in[0] -> out[0]", "1 -> out[1]", "2 -> out[2+2]"});
    CHECK(steps(binomial_gather{}, 2, 4) == lines{"in[2] -> tmp[2]", "3 -> tmp[3]", "tmp[2+2] -> 0"});
    CHECK(steps(binomial_gather{.root = 3}, 1, 4) == lines{"in[1] -> tmp[1]", "2 -> tmp[2]", "tmp[1+2] -> 3"});
    CHECK(steps(binomial_scatter{.root = 3}, 3, 4) == lines{"in[1+2] -> 1", "in[0] -> 0", "in[3] -> out[3]"});
    CHECK(steps(binomial_scatter{.root = 3}, 1, 4) == lines{"3 -> tmp[1+2]", "tmp[2] -> 2", "tmp[1] -> out[1]"});
}

TEMPLATE_TEST_CASE("binomial trees are right for all rank counts and roots", "", binomial_broadcast, binomial_reduce,
                   binomial_all_reduce, binomial_gather, binomial_scatter) {
    check_all<TestType>();
}

TEST_CASE("binomial trees take ceil(log2 n) rounds") {
    for (int n = 1; n <= 40; ++n) {
        const int rounds = log2_ceiling(n);
        INFO(n << " ranks");
        CHECK(facts_of(binomial_broadcast{.root = n / 3}, n).rounds == rounds);
        CHECK(facts_of(binomial_broadcast{}, n).messages == rounds);
        CHECK(facts_of(binomial_broadcast{}, n).total_messages == n - 1);
        CHECK(facts_of(binomial_reduce{}, n).rounds == rounds);
        CHECK(facts_of(binomial_all_reduce{}, n).rounds == 2 * rounds);
        CHECK(facts_of(binomial_all_reduce{}, n).total_messages == 2 * (n - 1));
        CHECK(facts_of(binomial_gather{}, n).rounds == rounds);
        CHECK(facts_of(binomial_scatter{.root = n / 2}, n).rounds == rounds);
        CHECK(facts_of(binomial_scatter{}, n).chunks_sent == n - 1);
    }
}
