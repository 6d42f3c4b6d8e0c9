// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/algo/scan.hpp>

#include "checks.hpp"

using namespace checks;

TEST_CASE("chain scans") {
    CHECK(steps(chain_scan{}, 0, 3) == lines{"in[0] -> 1", "in[0] -> out[0]"}); // in place hooks apply once
    CHECK(steps(chain_scan{}, 1, 3) == lines{"0 + in[0] -> out[0] -> 2"});
    CHECK(steps(chain_scan{}, 2, 3) == lines{"1 + in[0] -> out[0]"});
    CHECK(steps(chain_exclusive_scan{}, 0, 3) == lines{"in[0] -> 1"});
    CHECK(steps(chain_exclusive_scan{}, 1, 3) == lines{"in[0] -> 1", "0 -> out[0]", "out[0] + 1 -> 2"});
    CHECK(steps(chain_exclusive_scan{}, 2, 3) == lines{"1 -> out[0]"});
}

TEST_CASE("doubling scans") {
    CHECK(steps(doubling_scan{}, 3, 5) == lines{"in[0] -> 4", "2 + in[0] -> tmp[0]", "1 + tmp[0] -> out[0]"});
    CHECK(steps(doubling_scan{}, 0, 5) == lines{"in[0] -> 1", "in[0] -> 2", "in[0] -> 4", "in[0] -> out[0]"});
    CHECK(steps(doubling_exclusive_scan{}, 2, 4) ==
          lines{"in[0] -> 3", "1 -> tmp[0]", "tmp[0] -> 3", "1 + tmp[0] -> out[0]"});
    CHECK(steps(doubling_exclusive_scan{}, 1, 4) == lines{"in[0] -> 2", "0 -> out[0]", "out[0] -> 2", "out[0] -> 3"});
}

TEMPLATE_TEST_CASE("scans are right for all rank counts", "", chain_scan, chain_exclusive_scan, doubling_scan,
                   doubling_exclusive_scan) {
    check_all<TestType>();
}

TEST_CASE("scans cost what they say") {
    for (int n = 2; n <= 64; ++n) {
        INFO(n << " ranks");
        CHECK(facts_of(chain_scan{}, n).total_messages == n - 1);
        CHECK(facts_of(chain_exclusive_scan{}, n).total_messages == (n - 1) + (n - 2));
        CHECK(facts_of(doubling_scan{}, n).rounds == log2_ceiling(n));
        CHECK(facts_of(doubling_exclusive_scan{}, n).rounds == 1 + log2_ceiling(n - 1));
    }
}
