// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whether this is the nightly run (scripts/test --nightly), in which tests may take longer.
#pragma once

#include <cstdlib>

namespace collx_test {

inline bool is_night() { return std::getenv("COLLX_TEST_NIGHTLY") != nullptr; }

} // namespace collx_test
