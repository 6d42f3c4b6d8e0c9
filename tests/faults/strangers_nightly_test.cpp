// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// strangers_test.cpp with the usual descriptor limits of systems.
// collx-test: serial needs=sodium label=nightly timeout=300
#include "faults/strangers.hpp"

TEST_CASE("a job with 1024 descriptors starts among 1,400 silent strangers at its store and at each listener") {
    collx_test::start_among_strangers(4, 1024, 1400);
}
TEST_CASE("a job with 256 descriptors starts among 400 silent strangers at its store and at each listener") {
    collx_test::start_among_strangers(8, 256, 400);
}
