// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/algo/ring.hpp>

#include "checks.hpp"

using namespace checks;

TEST_CASE("ring of four ranks") {
    CHECK(steps(ring_all_reduce{}, 0, 4) == lines{"in[0] -> 1", "3 + in[3] -> 1", "3 + in[2] -> 1",
                                                  "3 + in[1] -> out[1] -> 1", "3 -> out[0] -> 1", "3 -> out[3] -> 1",
                                                  "3 -> out[2]"});
    CHECK(steps(ring_reduce_scatter{}, 0, 4) ==
          lines{"in[3] -> 1", "3 + in[2] -> 1", "3 + in[1] -> 1", "3 + in[0] -> out[0]"});
    CHECK(steps(ring_all_gather{}, 0, 4) ==
          lines{"in[0] -> out[0]", "in[0] -> 1", "3 -> out[3] -> 1", "3 -> out[2] -> 1", "3 -> out[1]"});
}

TEMPLATE_TEST_CASE("rings are right for all rank counts", "", ring_all_reduce, ring_reduce_scatter, ring_all_gather) {
    check_all<TestType>();
}

TEST_CASE("rings send as few chunks as there can be") {
    for (int n = 2; n <= 64; ++n) {
        const facts f = facts_of(ring_all_reduce{}, n);
        CHECK(f.chunks_sent == 2 * (n - 1));
        CHECK(f.total_chunks_sent == 2 * n * (n - 1));
        CHECK(f.rounds == 2 * (n - 1));
        CHECK(facts_of(ring_reduce_scatter{}, n).chunks_sent == n - 1);
        CHECK(facts_of(ring_all_gather{}, n).chunks_sent == n - 1);
    }
}
