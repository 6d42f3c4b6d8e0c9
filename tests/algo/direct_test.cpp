// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/algo/direct.hpp>

#include "checks.hpp"

using namespace checks;

TEST_CASE("direct broadcast asks its readers before it overwrites a stage") {
    const direct_broadcast a{.root = 1, .depth = 3};
    CHECK(steps(a, 1, 3, 0) == lines{"wait 1 of all, 3 ago", "in[0] -> w0[0]", "signal 0"});
    CHECK(steps(a, 1, 3, 1) == lines{"in[0] -> out[0]", "signal 1"});
    CHECK(steps(a, 0, 3, 0) == lines{"signal 0"});
    CHECK(steps(a, 0, 3, 1) == lines{"wait 0 of 1", "1.w0[0] -> out[0]", "signal 1"});
}

TEST_CASE("direct reduce and reduce-scatter fold in rank order") {
    CHECK(steps(direct_reduce{.root = 2}, 2, 4, 1) ==
          lines{"wait 0 of all", "w0[0] of 0..3, in -> out[0]", "signal 1"});
    CHECK(steps(direct_reduce_scatter{}, 1, 3, 0) ==
          lines{"wait 1 of all, 4 ago", "in[2] -> w0[2]", "in[0] -> w0[0]", "signal 0"});
    CHECK(steps(direct_reduce_scatter{}, 1, 3, 1) == lines{"wait 0 of all", "w0[1] of 0..2, in -> out[1]", "signal 1"});
}

TEST_CASE("direct gathering and exchange") {
    CHECK(steps(direct_all_gather{}, 0, 3, 1) ==
          lines{"in[0] -> out[0]", "wait 0 of 1", "1.w0[1] -> out[1]", "wait 0 of 2", "2.w0[2] -> out[2]", "signal 1"});
    CHECK(steps(direct_all_to_all{}, 0, 3, 1) ==
          lines{"in[0] -> out[0]", "wait 0 of 1", "1.w0[0] -> out[1]", "wait 0 of 2", "2.w0[0] -> out[2]", "signal 1"});
    CHECK(steps(direct_scatter{}, 2, 3, 1) == lines{"wait 0 of 0", "0.w0[2] -> out[2]", "signal 1"});
    CHECK(steps(direct_gather{}, 2, 3, 0) == lines{"wait 1 of all, 4 ago", "in[2] -> w0[2]", "signal 0"});
}

TEMPLATE_TEST_CASE("direct exchange is right for all rank counts and roots", "", direct_broadcast, direct_reduce,
                   direct_all_gather, direct_reduce_scatter, direct_all_to_all, direct_gather, direct_scatter) {
    check_all<TestType>();
}

TEST_CASE("direct exchange moves each byte through a window once") {
    for (int n : {1, 2, 3, 8, 20}) {
        const auto windows = [&](const facts& f, int written, int read) {
            INFO(n << " ranks");
            CHECK(f.window_chunks_written == written);
            CHECK(f.window_chunks_read == read);
            CHECK(f.total_messages == 0);
        };
        windows(facts_of(direct_broadcast{}, n), 1, n - 1);
        windows(facts_of(direct_reduce{}, n), n - 1, n - 1);
        windows(facts_of(direct_all_gather{}, n), n, n * (n - 1));
        windows(facts_of(direct_reduce_scatter{}, n), n * (n - 1), n * (n - 1));
        windows(facts_of(direct_all_to_all{}, n), n * (n - 1), n * (n - 1));
    }
}

TEST_CASE("a direct broadcast that does not ask its readers is caught") {
    schedule s = record_all(direct_broadcast{.depth = 2}, 3);
    auto& putting = s.programs[0].strands[0];
    REQUIRE(text(putting.front()) == "wait 1 of all, 2 ago");
    CHECK(races(s).ok());
    putting.erase(putting.begin());
    survey(s);
    CHECK(races(s).what == problem::race);
}
