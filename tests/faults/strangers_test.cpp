// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Silent connections do not keep a job with a key from starting, also where they are more than the ranks may open
// files.
// collx-test: serial needs=sodium timeout=120
#include "faults/strangers.hpp"

TEST_CASE("a job with 64 descriptors starts among a hundred silent strangers at its store and at each listener") {
    collx_test::start_among_strangers(3, 64, 100);
}
