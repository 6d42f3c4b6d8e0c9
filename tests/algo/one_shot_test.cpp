// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/algo/one_shot.hpp>

#include "checks.hpp"

using namespace checks;

TEST_CASE("one shot: one signal between putting and taking") {
    CHECK(steps(one_shot_all_reduce{}, 1, 3) ==
          lines{"in[0] -> w0[0]", "signal 0", "wait 0 of all", "w0[0] of 0..2, in -> out[0]"});
    CHECK(steps(one_shot_all_to_all{}, 1, 3) == lines{"in[2] -> w0[2]", "in[0] -> w0[0]", "signal 0", "in[1] -> out[1]",
                                                      "wait 0 of 2", "2.w0[1] -> out[2]", "wait 0 of 0",
                                                      "0.w0[1] -> out[0]"});
    CHECK(steps(one_shot_all_gather{}, 2, 3) == lines{"in[2] -> w0[2]", "signal 0", "in[2] -> out[2]", "wait 0 of 0",
                                                      "0.w0[0] -> out[0]", "wait 0 of 1", "1.w0[1] -> out[1]"});
    CHECK(steps(one_shot_reduce_scatter{}, 0, 2) ==
          lines{"in[1] -> w0[1]", "signal 0", "wait 0 of all", "w0[0] of 0..1, in -> out[0]"});
}

TEST_CASE("one shot with a root: who puts asks for old signals first") {
    CHECK(steps(one_shot_broadcast{.root = 1, .depth = 3}, 1, 3) ==
          lines{"wait 0 of all, 2 ago", "in[0] -> w0[0]", "signal 0", "in[0] -> out[0]"});
    CHECK(steps(one_shot_broadcast{.root = 1}, 2, 3) == lines{"signal 0", "wait 0 of 1", "1.w0[0] -> out[0]"});
    CHECK(steps(one_shot_reduce{}, 1, 3) == lines{"wait 0 of all, 3 ago", "in[0] -> w0[0]", "signal 0"});
    CHECK(steps(one_shot_reduce{}, 0, 3) == lines{"signal 0", "wait 0 of all", "w0[0] of 0..2, in -> out[0]"});
}

TEST_CASE("a verb without a root has no root to set") {
    static_assert(!collx::sched::has_root<one_shot_all_reduce> && collx::sched::has_root<one_shot_reduce>);
    CHECK(collx::sched::root_of(one_shot_all_reduce{}) == 0);
    CHECK(collx::sched::root_of(one_shot_reduce{.root = 2}) == 2);
}

TEST_CASE("one-shot scans fold the ranks up to their own") {
    CHECK(steps(one_shot_scan{}, 1, 3) ==
          lines{"in[0] -> w0[0]", "signal 0", "wait 0 of all", "w0[0] of 0..1, in -> out[0]"});
    CHECK(steps(one_shot_exclusive_scan{}, 2, 3) == lines{"signal 0", "wait 0 of all", "w0[0] of 0..1 -> out[0]"});
    CHECK(steps(one_shot_exclusive_scan{}, 0, 1) == lines{"signal 0", "wait 0 of all"});
}

TEST_CASE("one-shot scans read the windows of the ranks before") {
    for (int n : {1, 2, 3, 8, 20}) {
        const facts f = facts_of(one_shot_scan{}, n);
        CHECK(f.window_chunks_written == n - 1);
        CHECK(f.window_chunks_read == n * (n - 1) / 2);
    }
}

TEMPLATE_TEST_CASE("one shot is right for all rank counts and roots", "", one_shot_all_reduce, one_shot_reduce,
                   one_shot_broadcast, one_shot_all_gather, one_shot_reduce_scatter, one_shot_all_to_all, one_shot_scan,
                   one_shot_exclusive_scan) {
    check_all<TestType>();
}

TEST_CASE("one-shot scans need two stages") {
    schedule s = record_all(one_shot_scan{}, 4);
    CHECK(races(s).ok());
    s.window_depth = 1;
    CHECK(races(s).what == problem::race);
}
