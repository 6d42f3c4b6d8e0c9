// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/algo/dissemination.hpp>

#include "checks.hpp"

using namespace checks;

TEST_CASE("dissemination barrier") {
    CHECK(steps(dissemination_barrier{}, 1, 5) ==
          lines{"in[0] -> 2", "0 -> tmp[0]", "in[0] -> 3", "4 -> tmp[0]", "in[0] -> 0", "2 -> tmp[0]"});
    CHECK(steps(dissemination_barrier{}, 0, 1).empty());
    check_all<dissemination_barrier>();
    for (int n = 1; n <= 64; ++n) {
        CHECK(facts_of(dissemination_barrier{}, n).messages == log2_ceiling(n));
        CHECK(facts_of(dissemination_barrier{}, n).rounds == log2_ceiling(n));
    }
}

// A barrier without its last round releases some rank too early, and the checks above would detect it.
struct hasty_barrier : dissemination_barrier {
    template <class Ex>
    constexpr void operator()(Ex& ex, int r, int n) const {
        for (int d = 1; 2 * d < n; d *= 2) {
            ex.step(send, to((r + d) % n), in(0));
            ex.step(recv | copy, from((r + n - d) % n), tmp(0));
        }
    }
};

TEST_CASE("a barrier without its last round leaks") {
    for (int n = 2; n <= 20; ++n) CHECK(verify(hasty_barrier{}, n).what == problem::leaky_barrier);
}

TEST_CASE("barrier of flags") {
    CHECK(steps(flag_barrier{}, 2, 4) == lines{"signal 0", "wait 0 of all"});
    check_all<flag_barrier>();
}
