// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/algo/chain.hpp>

#include "checks.hpp"

using namespace checks;

TEST_CASE("chain broadcast") {
    const chain_broadcast a{.root = 2, .chunk_count = 2};
    CHECK(steps(a, 2, 3) == lines{"in[0] -> 0", "in[1] -> 0", "in[0+2] -> out[0+2]"});
    CHECK(steps(a, 0, 3) == lines{"2 -> out[0] -> 1", "2 -> out[1] -> 1"});
    CHECK(steps(a, 1, 3) == lines{"0 -> out[0]", "0 -> out[1]"});
    check_all<chain_broadcast>();
}

TEST_CASE("chain reduction meets at the root from both ends") {
    const chain_reduce a{.root = 2, .chunk_count = 1};
    CHECK(steps(a, 0, 5) == lines{"in[0] -> 1"});
    CHECK(steps(a, 1, 5) == lines{"0 + in[0] -> 2"});
    CHECK(steps(a, 2, 5) == lines{"1 + in[0] -> tmp[0]", "tmp[0] + 3 -> out[0]"});
    CHECK(steps(a, 3, 5) == lines{"in[0] + 4 -> 2"});
    CHECK(steps(a, 4, 5) == lines{"in[0] -> 3"});
    check_all<chain_reduce>();
}

TEST_CASE("a chain of n ranks passes K chunks on in n + K - 2 rounds") {
    for (int n = 2; n <= 20; ++n) {
        for (int k : {1, 2, 4, 9}) {
            INFO(n << " ranks, " << k << " chunks");
            CHECK(facts_of(chain_broadcast{.chunk_count = k}, n).rounds == n + k - 2);
            CHECK(facts_of(chain_broadcast{.root = n / 2, .chunk_count = k}, n).rounds == n + k - 2);
            CHECK(facts_of(chain_reduce{.chunk_count = k}, n).rounds == n + k - 2);
            CHECK(facts_of(chain_reduce{.root = n - 1, .chunk_count = k}, n).rounds == n + k - 2);
            CHECK(facts_of(chain_reduce{.chunk_count = k}, n).total_messages == k * (n - 1));
            CHECK(facts_of(chain_reduce{.root = n / 2, .chunk_count = k}, n).rounds <= n + 2 * k - 2);
        }
    }
}
