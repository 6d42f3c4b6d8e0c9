// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/algo/halving_doubling.hpp>

#include "checks.hpp"

using namespace checks;

TEST_CASE("halving and doubling of four ranks, the nearest partner first") {
    CHECK(steps(halving_doubling_all_reduce{}, 1, 4) == lines{"in[0+2] -> 0", "0 + in[2+2] -> tmp[2+2]", "tmp[3] -> 3",
                                                              "tmp[2] + 3 -> out[2]", "out[2] -> 3", "3 -> out[3]",
                                                              "out[2+2] -> 0", "0 -> out[0+2]"});
    CHECK(steps(halving_reduce_scatter{}, 1, 4) ==
          lines{"in[2+2] -> 3", "3 + in[0+2] -> tmp[0+2]", "tmp[0] -> 0", "0 + tmp[1] -> out[1]"});
}

TEST_CASE("halving and doubling of three ranks: the first two are a team") {
    CHECK(steps(halving_doubling_all_reduce{}, 0, 3) == lines{"in[0+2] + 1 -> tmp[0+2]", "tmp[1] -> 2",
                                                              "tmp[0] + 2 -> out[0]", "out[0] -> 2", "2 -> out[1]",
                                                              "out[0+2] -> 1"});
    CHECK(steps(halving_doubling_all_reduce{}, 1, 3) == lines{"in[0+2] -> 0", "0 -> out[0+2]"});
    CHECK(steps(halving_reduce_scatter{}, 0, 3) == lines{"in[2+2] + 1 -> tmp[2+2]", "in[1] -> tmp[1]", "tmp[2] -> 2",
                                                         "2 + tmp[0] -> out[0]", "2 + tmp[1] -> 1"});
    CHECK(steps(halving_reduce_scatter{}, 1, 3) == lines{"in[2+2] -> 0", "0 + in[1] -> out[1]"});
}

TEMPLATE_TEST_CASE("halving and doubling are right for all rank counts", "", halving_doubling_all_reduce,
                   halving_reduce_scatter) {
    check_all<TestType>();
}

TEST_CASE("halving and doubling send as few chunks as a ring") {
    for (int n = 2; n <= 64; n *= 2) {
        const facts f = facts_of(halving_doubling_all_reduce{}, n);
        CHECK(f.rounds == 2 * log2_ceiling(n));
        CHECK(f.chunks_sent == 2 * (n - 1));
        CHECK(f.total_chunks_sent == 2 * n * (n - 1));
        const facts g = facts_of(halving_reduce_scatter{}, n);
        CHECK(g.rounds == log2_ceiling(n));
        CHECK(g.chunks_sent == n - 1);
    }
    for (int n = 3; n <= 63; ++n) {
        if (power_below(n) == n) continue;
        CHECK(facts_of(halving_doubling_all_reduce{}, n).rounds == 2 * log2_ceiling(power_below(n)) + 2);
        CHECK(facts_of(halving_reduce_scatter{}, n).rounds <= log2_ceiling(power_below(n)) + 3);
    }
}
