// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/algo/multicast.hpp>
#include <collx/algo/zero_copy.hpp>

#include "checks.hpp"

using namespace checks;

TEST_CASE("zero-copy collectives wait before they touch a peer's buffer and until none is touched") {
    CHECK(steps(zero_copy_all_reduce{}, 1, 3) ==
          lines{"signal 0", "wait 0 of all", "in[1] of 0..2, in -> all out[1]", "signal 1", "wait 1 of all"});
    CHECK(steps(zero_copy_reduce_scatter{}, 1, 3) ==
          lines{"signal 0", "wait 0 of all", "in[1] of 0..2, in -> out[1]", "signal 1", "wait 1 of all"});
    CHECK(steps(zero_copy_all_gather{}, 1, 3) == lines{"signal 0", "in[1] -> out[1]", "wait 0 of 2",
                                                       "2.in[2] -> out[2]", "wait 0 of 0", "0.in[0] -> out[0]",
                                                       "signal 1", "wait 1 of all"});
    CHECK(steps(zero_copy_all_to_all{}, 1, 3) == lines{"signal 0", "in[1] -> out[1]", "wait 0 of 2",
                                                       "2.in[1] -> out[2]", "wait 0 of 0", "0.in[1] -> out[0]",
                                                       "signal 1", "wait 1 of all"});
    CHECK(steps(zero_copy_broadcast{.root = 1}, 1, 3) ==
          lines{"signal 0", "in[0] -> out[0]", "signal 1", "wait 1 of all"});
    CHECK(steps(zero_copy_broadcast{.root = 1}, 2, 3) ==
          lines{"signal 0", "wait 0 of 1", "1.in[0] -> out[0]", "signal 1"});
    CHECK(steps(zero_copy_reduce{}, 0, 3) ==
          lines{"signal 0", "wait 0 of all", "in[0] of 0..2, in -> out[0]", "signal 1"});
    CHECK(steps(zero_copy_reduce{}, 1, 3) == lines{"signal 0", "signal 1", "wait 1 of 0"});
    CHECK(steps(zero_copy_gather{.root = 1}, 1, 3) == lines{"signal 0", "in[1] -> out[1]", "wait 0 of 2",
                                                            "2.in[2] -> out[2]", "wait 0 of 0", "0.in[0] -> out[0]",
                                                            "signal 1"});
    CHECK(steps(multicast_all_gather{}, 1, 3) ==
          lines{"signal 0", "wait 0 of all", "in[1] of 1..1, in -> all out[1]", "signal 1", "wait 1 of all"});
    CHECK(steps(zero_copy_gather{.root = 1}, 2, 3) == lines{"signal 0", "signal 1", "wait 1 of 1"});
    CHECK(steps(zero_copy_scatter{.root = 1}, 1, 3) ==
          lines{"signal 0", "in[1] -> out[1]", "signal 1", "wait 1 of all"});
    CHECK(steps(zero_copy_scatter{.root = 1}, 2, 3) ==
          lines{"signal 0", "wait 0 of 1", "1.in[2] -> out[2]", "signal 1"});
}

TEMPLATE_TEST_CASE("zero-copy collectives are right for all rank counts and roots", "", zero_copy_all_reduce,
                   zero_copy_reduce_scatter, zero_copy_all_gather, zero_copy_all_to_all, zero_copy_broadcast,
                   zero_copy_reduce, zero_copy_gather, zero_copy_scatter, multicast_all_gather, multicast_broadcast) {
    check_all<TestType>();
}

TEST_CASE("zero-copy all-reduce moves the least") {
    for (int n : {2, 3, 8, 20}) {
        const facts f = facts_of(zero_copy_all_reduce{}, n);
        CHECK(f.window_chunks_written == n * n); // every output once
        CHECK(f.window_chunks_read == n * n);    // every input once
    }
}

// Each wait is needed: without it, in some order of events a rank accesses a buffer too early or too late.
TEMPLATE_TEST_CASE("a zero-copy collective without one of its waits is caught", "", zero_copy_all_reduce,
                   zero_copy_reduce_scatter, zero_copy_all_gather, zero_copy_all_to_all, zero_copy_broadcast,
                   zero_copy_reduce, zero_copy_gather, zero_copy_scatter, multicast_all_gather, multicast_broadcast) {
    const schedule right = record_all(TestType{}, 3);
    int tried = 0;
    for (unsigned r = 0; r < 3; ++r) {
        for (unsigned i = 0; i < right.programs[r].strands[0].size(); ++i) {
            if ((right.programs[r].strands[0][i].what & collx::sched::wait) == 0) continue;
            schedule s = right;
            s.programs[r].strands[0].erase(s.programs[r].strands[0].begin() + i);
            survey(s);
            INFO("rank " << r << " without " << text(right.programs[r].strands[0][i]));
            CHECK(races(s).what == problem::race);
            ++tried;
        }
    }
    CHECK(tried >= 3);
}
