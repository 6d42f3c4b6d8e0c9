// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/algo/power_of_two.hpp>

#include "checks.hpp"

using namespace checks;

static_assert(power_below(1) == 1 && power_below(2) == 2 && power_below(3) == 2 && power_below(64) == 64);
static_assert(power_below(0x7fffffff) == 0x40000000);
static_assert(lowest_bit(12) == 4 && lowest_bit(1) == 1);

TEST_CASE("teams are intervals of ranks in rank order") {
    for (int n = 1; n <= 70; ++n) {
        const team_layout all(n);
        INFO(n << " ranks");
        CHECK(all.teams + all.excess == n);
        int next = 0;
        for (int t = 0; t < all.teams; ++t) {
            CHECK(all.leader(t) == next);
            const int size = all.in_pair(next) ? 2 : 1;
            for (int r = next; r < next + size; ++r) {
                CHECK(all.team_of(r) == t);
                CHECK(all.follows(r) == (r > next));
            }
            CHECK(all.chunks_of(t, 1).count == size);
            next += size;
        }
        CHECK(next == n);
        CHECK(all.chunks_of(0, all.teams) == chunk_set(0, n));
    }
}
