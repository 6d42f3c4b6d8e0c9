// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/algo/one_shot.hpp>
#include <collx/algo/two_shot.hpp>

#include "checks.hpp"

using namespace checks;

TEST_CASE("one shot and two shots of three ranks") {
    CHECK(steps(one_shot_all_reduce{}, 1, 3) ==
          lines{"in[0] -> w0[0]", "signal 0", "wait 0 of all", "w0[0] of 0..2, in -> out[0]"});
    const two_shot_all_reduce a{.depth = 3};
    CHECK(steps(a, 1, 3, 0) == lines{"wait 1 of all, 3 ago", "in[2] -> w0[2]", "in[0] -> w0[0]", "signal 0"});
    CHECK(steps(a, 1, 3, 1) ==
          lines{"wait 2 of all, 3 ago", "wait 0 of all", "w0[1] of 0..2, in -> out[1] and w1", "signal 1"});
    CHECK(steps(a, 1, 3, 2) ==
          lines{"wait 1 of 2", "2.w1[2] -> out[2]", "wait 1 of 0", "0.w1[0] -> out[0]", "signal 2"});
}

TEMPLATE_TEST_CASE("shots are right for all rank counts", "", one_shot_all_reduce, two_shot_all_reduce) {
    check_all<TestType>();
}

TEST_CASE("two shots write and read each byte once per phase") {
    for (int n : {1, 2, 3, 8, 20}) {
        CHECK(facts_of(one_shot_all_reduce{}, n).window_chunks_written == n);
        CHECK(facts_of(one_shot_all_reduce{}, n).window_chunks_read == n * (n - 1));
        CHECK(facts_of(two_shot_all_reduce{}, n).window_chunks_written == n * (n - 1) + n);
        CHECK(facts_of(two_shot_all_reduce{}, n).window_chunks_read == 2 * n * (n - 1));
    }
}

TEST_CASE("one shot needs two stages") {
    schedule s = record_all(one_shot_all_reduce{}, 3);
    CHECK(races(s).ok());
    s.window_depth = 1;
    CHECK(races(s).what == problem::race);
}
