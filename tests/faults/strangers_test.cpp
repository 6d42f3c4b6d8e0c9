// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A job with a key starts despite silent connections, even if they are more than the files that a rank may open.
// collx-test: serial needs=sodium timeout=120
#include "faults/strangers.hpp"

TEST_CASE("a job with 64 descriptors starts among a hundred silent strangers at its store and at each listener") {
    collx_test::start_among_strangers(3, 64, 100);
}
