// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/algo/recursive_doubling.hpp>

#include "checks.hpp"

using namespace checks;

TEST_CASE("recursive doubling of four ranks") {
    CHECK(steps(recursive_doubling_all_reduce{}, 1, 4) ==
          lines{"in[0] -> 0", "0 + in[0] -> tmp[0]", "tmp[0] -> 3", "tmp[0] + 3 -> out[0]"});
    CHECK(steps(recursive_doubling_all_gather{}, 1, 4) ==
          lines{"in[1] -> out[1]", "out[1] -> 0", "0 -> out[0]", "out[0+2] -> 3", "3 -> out[2+2]"});
}

TEST_CASE("recursive doubling of five ranks: the first two are a team") {
    CHECK(steps(recursive_doubling_all_reduce{}, 0, 5) == lines{"in[0] + 1 -> tmp[0]", "tmp[0] -> 2",
                                                                "tmp[0] + 2 -> tmp[0]", "tmp[0] -> 3",
                                                                "tmp[0] + 3 -> out[0] -> 1"});
    CHECK(steps(recursive_doubling_all_reduce{}, 1, 5) == lines{"in[0] -> 0", "0 -> out[0]"});
    CHECK(steps(recursive_doubling_all_gather{}, 0, 5) == lines{"in[0] -> out[0]", "1 -> out[1]", "out[0+2] -> 2",
                                                                "2 -> out[2]", "out[0+3] -> 3", "3 -> out[3+2]",
                                                                "out[2+4] -> 1"});
}

TEMPLATE_TEST_CASE("recursive doubling is right for all rank counts", "", recursive_doubling_all_reduce,
                   recursive_doubling_all_gather) {
    check_all<TestType>();
}

TEST_CASE("recursive doubling takes log2 n rounds, and two more if n is no power of two") {
    for (int n = 1; n <= 64; ++n) {
        const bool power = power_below(n) == n;
        const int floor = log2_ceiling(power_below(n));
        INFO(n << " ranks");
        CHECK(facts_of(recursive_doubling_all_reduce{}, n).rounds == (power ? floor : floor + 2));
        CHECK(facts_of(recursive_doubling_all_gather{}, n).rounds == (power ? floor : floor + 2));
        if (power) CHECK(facts_of(recursive_doubling_all_gather{}, n).chunks_sent == n - 1);
    }
}
