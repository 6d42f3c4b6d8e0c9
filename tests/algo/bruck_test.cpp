// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/algo/bruck.hpp>

#include "checks.hpp"

using namespace checks;

TEST_CASE("Bruck's all-gather doubles what a rank has") {
    CHECK(steps(bruck_all_gather{}, 0, 5) == lines{"in[0] -> out[0]", "out[0] -> 4", "1 -> out[1]", "out[0+2] -> 3",
                                                   "2 -> out[2+2]", "out[0] -> 1", "4 -> out[4]"});
    check_all<bruck_all_gather>();
    for (int n = 1; n <= 64; ++n) {
        CHECK(facts_of(bruck_all_gather{}, n).messages == log2_ceiling(n));
        CHECK(facts_of(bruck_all_gather{}, n).chunks_sent == n - 1);
    }
}

TEST_CASE("Bruck's all-to-all moves blocks along the bits of their distance") {
    CHECK(steps(bruck_all_to_all{}, 0, 4) == lines{"in[3] -> tmp[1]", "in[2] -> tmp[2]", "in[1] -> tmp[3]",
                                                   "in[0] -> out[0]", "tmp[1+2 by 1/2] -> 3", "1 -> tmp[1+2 by 1/2]",
                                                   "tmp[2+2] -> 2", "2 -> out[2+2]", "tmp[1] -> out[1]"});
    check_all<bruck_all_to_all>();
    for (int n = 1; n <= 40; ++n) {
        int bits = 0; // set bits in all distances below n
        for (int j = 1; j < n; ++j)
            for (int b = j; b > 0; b /= 2) bits += b % 2;
        const facts f = facts_of(bruck_all_to_all{}, n);
        CHECK(f.messages == log2_ceiling(n));
        CHECK(f.chunks_sent == bits);
    }
    CHECK(facts_of(bruck_all_to_all{}, 7).in_place);
}
